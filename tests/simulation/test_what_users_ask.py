"""What a manager's shell answers to users, whole and page by page."""

from __future__ import annotations

import pytest
from byhand import JOBS, POOL, SOON_SECONDS, Manager, Puppet

from kestrel_worlds.network import DOMAIN
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, OnWorkerLost
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import MAX_HAPPENINGS, Happening
from kestrelctl.core.model.result import TAIL_BYTES, Outcome
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import NotFound, StoreFull
from kestrelctl.manager.commits import RETRY_SECONDS
from kestrelctl.protocol import answers, codec, directions, requests, workers
from kestrelctl.protocol.job_answers import TaskOutput


@pytest.fixture
def house() -> Manager:
    return Manager(Config(backoff_seconds=0.1))


def answer(house: Manager, request: requests.Request) -> object:
    """What the user is answered."""
    house.user.forget()
    house.ask(request)
    house.wait(0.5)
    [(_, found)] = house.user.heard
    return found


def another_worker(house: Manager, name: str) -> Puppet:
    """Somebody who says hello as a worker, too."""
    found = house.puppet(f"{name}@workers.{DOMAIN}/1")
    house.audit.machine(found.address, {})
    house.wait()
    found.say(
        workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=WorkerAd()), POOL
    )
    house.wait()
    return found


# -- pages -----------------------------------------------------------------------------------------


def pages(house: Manager, **which: object) -> list[list[int]]:
    """The indexes of tasks, a page of two each."""
    found: list[list[int]] = []
    after: int | None = -1
    while after is not None:
        page = answer(
            house,
            requests.ListTasks(id="t", job="1", limit=2, after=after, **which),  # type: ignore[arg-type]
        )
        assert isinstance(page, answers.Tasks)
        found.append([task.index for task in page.tasks])
        assert len(found) < 10, "there is no last page"
        after = page.after
    return found


def test_tasks_come_page_by_page_each_once(house: Manager) -> None:
    house.submit(count=4)
    assert pages(house) == [[0, 1], [2, 3]]


def test_so_do_tasks_in_one_state(house: Manager) -> None:
    house.hello()
    house.submit(count=7, max_failures=1)
    for index in range(5):
        house.report(house.attempts()[-1], Outcome.FAILED, index)
        house.wait(0.5)
    found = pages(house, states=[TaskState.FAILED])
    assert [index for page in found for index in page] == [0, 1, 2, 3, 4]
    assert max(map(len, found)) == 2


def test_workers_come_page_by_page_each_once(house: Manager) -> None:
    house.hello()
    for name in ("w1", "w2", "w3"):
        another_worker(house, name)
    found: list[list[str]] = []
    after: str | None = ""
    while after is not None:
        page = answer(house, requests.ListWorkers(id="w", limit=2, after=after))
        assert isinstance(page, answers.Workers)
        found.append([worker.worker.partition("@")[0] for worker in page.workers])
        assert len(found) < 10, "there is no last page"
        after = page.after
    assert found == [["w0", "w1"], ["w2", "w3"]]


# -- output ----------------------------------------------------------------------------------------


def ask_for_output(house: Manager) -> workers.FetchOutput:
    house.user.forget()
    house.ask(requests.Logs(id="l", job="1", task_id=0))
    return house.worker.of(workers.FetchOutput)[-1]


def piece(request: str, data: bytes, size_bytes: int) -> workers.Output:
    return workers.Output(request=request, offset=0, data=data, size_bytes=size_bytes)


@pytest.mark.parametrize(("size_bytes", "next_offset"), [(10, 5), (5, None)])
def test_a_piece_of_output_says_where_the_next_begins(
    house: Manager, size_bytes: int, next_offset: int | None
) -> None:
    house.hello()
    house.submit()
    house.tell(piece(ask_for_output(house).request, b"hello", size_bytes))
    [log] = house.user.of(answers.Log)
    assert log.data == b"hello"
    assert log.next_offset == next_offset


def test_a_worker_cannot_send_a_user_back_to_where_he_was(house: Manager) -> None:
    house.hello()
    house.submit()
    asked = ask_for_output(house)
    house.tell(workers.Output(request=asked.request, offset=3, data=b"hello", size_bytes=100))
    [log] = house.user.of(answers.Log)
    assert log.next_offset == 5, "counted from what was asked for"


def test_what_is_no_base64_is_no_output(house: Manager) -> None:
    house.hello()
    house.submit()
    text = codec.encode(piece(ask_for_output(house).request, b"hello", 5))
    with pytest.raises(codec.BadMessage, match="base64"):
        directions.from_worker.decode(text.replace("aGVsbG8=", "aGVsb"))


def test_only_the_worker_that_was_asked_can_say_what_a_task_printed(house: Manager) -> None:
    house.hello()
    house.submit()
    asked = ask_for_output(house)
    forger = another_worker(house, "w1")
    forger.say(piece(asked.request, b"forged", 6), POOL)
    house.wait()
    assert house.user.of(answers.Log) == []
    house.tell(piece(asked.request, b"true", 4))
    [log] = house.user.of(answers.Log)
    assert log.data == b"true"


def test_nobody_waits_for_output_of_a_worker_that_is_gone(house: Manager) -> None:
    house.hello()
    house.submit(on_worker_lost=OnWorkerLost.WAIT)
    assert house.worker.session is not None
    house.worker.session.send_presence(POOL)
    house.wait()
    house.worker.kill()
    house.wait()
    house.ask(requests.Logs(id="l", job="1", task_id=0))
    house.wait(SOON_SECONDS)
    assert house.failures() == [NotFound.code]


def wrote(house: Manager, size_bytes: int, tail: bytes) -> None:
    """Job 1 has one task, which has written something."""
    house.hello()
    house.submit()
    house.report(house.attempts()[0], stdout=tail, stdout_bytes=size_bytes)
    house.wait(1.0)


def the_log(house: Manager) -> answers.Log:
    [log] = house.user.of(answers.Log)
    return log


def test_a_short_output_is_whole_though_it_is_no_text(house: Manager) -> None:
    wrote(house, 3, b"\xff\xfex")
    house.user.forget()
    house.ask(requests.Logs(id="l", job="1", task_id=0))
    house.wait()
    log = the_log(house)
    assert (log.skipped_bytes, log.cut_bytes, log.why_missing) == (0, 0, "")


@pytest.mark.parametrize("tail", [b"x" * TAIL_BYTES, b"\xff" * TAIL_BYTES], ids=["text", "bytes"])
def test_of_a_long_output_that_its_worker_dropped_the_end_is_left(
    house: Manager, tail: bytes
) -> None:
    wrote(house, TAIL_BYTES + 10, tail)
    asked = ask_for_output(house)
    house.tell(workers.Output(request=asked.request, offset=0))
    log = the_log(house)
    assert log.data == tail
    assert log.skipped_bytes == 10
    assert "no longer has it" in log.why_missing


def test_of_a_long_output_whose_worker_is_away_the_end_is_left(house: Manager) -> None:
    wrote(house, TAIL_BYTES + 10, b"x" * TAIL_BYTES)
    assert house.worker.session is not None
    house.worker.session.send_presence(POOL)
    house.wait()
    house.worker.kill()
    house.wait()
    house.user.forget()
    house.ask(requests.Logs(id="l", job="1", task_id=0))
    house.wait(SOON_SECONDS)
    log = the_log(house)
    assert log.skipped_bytes == 10
    assert "is away" in log.why_missing


def test_the_last_piece_says_what_was_cut_off(house: Manager) -> None:
    wrote(house, TAIL_BYTES + 10, b"x" * TAIL_BYTES)
    house.tell(piece(ask_for_output(house).request, b"x" * 5000, 4100))
    log = the_log(house)
    assert log.cut_bytes == 6
    assert "keeps no more than 4,100 bytes" in log.why_missing
    house.tell(piece(ask_for_output(house).request, b"x" * 5000, TAIL_BYTES + 10))
    assert the_log(house).cut_bytes == 0


# -- retries ---------------------------------------------------------------------------------------


def test_what_is_refused_for_a_full_disk_does_not_happen_later(house: Manager) -> None:
    house.fail_a_job()
    house.store.full = True
    house.submit()  # the manager learns that its disk is full
    refused = answer(house, requests.RetryJobs(id="r", jobs="1"))
    assert isinstance(refused, answers.Failed)
    assert refused.code == StoreFull.code
    house.store.full = False
    house.wait(2 * RETRY_SECONDS)
    [first, *_] = house.store.jobs()
    assert (first.job_id, first.state) == (1, "failed")


def test_a_submission_that_met_a_full_disk_can_be_sent_again(house: Manager) -> None:
    """It was refused, but the manager goes on to store what it had begun."""
    request = requests.SubmitJob(
        id="s", spec=JobSpec(program=Program(argv=("task",)), name="long"), key="k"
    )
    house.store.full = True
    for _ in range(2):
        refused = answer(house, request)
        assert isinstance(refused, answers.Failed)
        assert refused.code == StoreFull.code
    house.store.full = False
    house.wait(2 * RETRY_SECONDS)
    submitted = answer(house, request)
    assert isinstance(submitted, answers.Submitted)
    assert (submitted.job_id, submitted.repeated) == (1, True)
    assert [job.job_id for job in house.store.jobs()] == [1]


def test_a_story_stays_bounded_when_its_job_is_retried(house: Manager) -> None:
    house.fail_a_job()
    told = [Happening(job_id=1, index=0, at=house.clock.now, what="lost", number=1)]
    for happening in told * MAX_HAPPENINGS:
        house.store._apply(happening)
    assert isinstance(answer(house, requests.RetryJobs(id="r", jobs="1")), answers.Changed)
    assert house.store.count_happenings(1) == MAX_HAPPENINGS


def test_a_job_is_forgotten_when_the_answer_says_so() -> None:
    house = Manager(commit_seconds=(1.0, 1.0))
    house.submit()
    house.wait(5.0)
    house.ask(requests.CancelJobs(id="c", jobs="1"))
    house.wait(5.0)
    house.user.forget()
    house.ask(requests.ForgetJobs(id="f", jobs="1"))
    house.wait(0.5)
    assert house.user.of(answers.Changed) == []
    house.wait(1.0)
    assert len(house.user.of(answers.Changed)) == 1
    assert house.store.jobs() == []


# -- uploads ---------------------------------------------------------------------------------------


def submit_upload(house: Manager) -> object:
    spec = JobSpec(program=Program(argv=("task", "{}")), name="long")
    return answer(house, requests.SubmitJob(id="s", spec=spec, upload="words"))


def test_lines_that_were_sent_ahead_make_one_job(house: Manager) -> None:
    answer(house, requests.UploadItems(id="u", upload="words", lines=["a", "b"]))
    answer(house, requests.UploadItems(id="u", upload="words", lines=["c"]))
    submitted = submit_upload(house)
    assert isinstance(submitted, answers.Submitted)
    assert submitted.tasks == 3
    assert isinstance(submit_upload(house), answers.Failed)


def test_lines_that_nobody_used_for_a_minute_are_gone(house: Manager) -> None:
    answer(house, requests.UploadItems(id="u", upload="words", lines=["a"]))
    house.wait(61.0)
    answer(house, requests.UploadItems(id="u", upload="others", lines=["b"]))
    assert isinstance(submit_upload(house), answers.Failed)


# -- which jobs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selector", "tasks"), [("last", 4), ("all", 6), ("1,2", 3), ("1-3", 7)])
def test_a_selector_means_the_users_own_unless_it_names_jobs(
    house: Manager, selector: str, tasks: int
) -> None:
    house.submit(count=1)
    house.stranger().say(
        requests.SubmitJob(
            id="m", spec=JobSpec(program=Program(argv=("t",)), count=2, name="long")
        ),
        JOBS,
    )
    house.wait(0.5)
    house.submit(count=4)
    house.wait(0.5)
    if selector == "all":
        house.submit(count=1)
    jobs = answer(house, requests.ListJobs(id="j", jobs=selector))
    assert isinstance(jobs, answers.Jobs)
    assert sum(job.tasks for job in jobs.jobs) == tasks


def test_a_selection_is_cancelled_as_one() -> None:
    """What the first of the jobs frees is not for the second, which is about to be cancelled."""
    house = Manager(commit_seconds=(1.0, 1.0))
    house.hello()
    for _ in range(2):
        house.submit()
        house.wait(3.0)
    [first] = house.attempts()
    house.ask(requests.CancelJobs(id="c", jobs="all"))
    house.report(first, Outcome.KILLED)
    house.wait(10.0)
    assert house.attempts() == [first]
    assert [job.state for job in house.store.jobs()] == ["cancelled", "cancelled"]
    [changed] = house.user.of(answers.Changed)
    assert changed.what == ["1", "2"]
    assert not house.audit.problems


# -- outputs of all tasks --------------------------------------------------------------------------


def all_outputs(house: Manager, stream: str = "stdout") -> list[list[TaskOutput]]:
    """Pages of outputs."""
    found: list[list[TaskOutput]] = []
    after: int | None = -1
    while after is not None:
        page = answer(house, requests.AllLogs(id="a", job="1", stream=stream, after=after))
        assert isinstance(page, answers.LogPage), page
        found.append(page.outputs)
        assert len(found) < 20, "there is no last page"
        after = page.after
    return found


def test_what_the_manager_has_of_all_tasks_comes_in_pages_that_fit(
    house: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.hello()
    house.submit(count=5, max_failures=1)
    texts = [bytes([index]) * (TAIL_BYTES - index) for index in range(5)]
    for index, text in enumerate(texts):
        house.report(house.attempts()[-1], Outcome.DONE, index, stdout=text, stdout_bytes=len(text))
        house.wait(0.5)
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 3 * TAIL_BYTES * 4 // 3)
    found = all_outputs(house)
    assert [len(page) for page in found] == [2, 2, 1]
    outputs = [output for page in found for output in page]
    assert [(output.task_id, output.data) for output in outputs] == list(enumerate(texts))
    assert not any(output.more for output in outputs)


def test_the_outputs_of_some_tasks_come_alone_and_in_pages_that_fit(
    house: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.hello()
    house.submit(count=5, max_failures=1)
    text = b"x" * TAIL_BYTES
    for index in range(5):
        house.report(house.attempts()[-1], Outcome.DONE, index, stdout=text, stdout_bytes=len(text))
        house.wait(0.5)
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 3 * TAIL_BYTES * 4 // 3)
    pages = []
    after: int | None = -1
    while after is not None:
        request = requests.AllLogs(id="a", job="1", after=after, ids=[4, 1, 3])
        page = answer(house, request)
        assert isinstance(page, answers.LogPage), page
        pages.append([output.task_id for output in page.outputs])
        after = page.after
    assert pages == [[1, 3], [4]]
    strange = answer(house, requests.AllLogs(id="a", job="1", ids=[4, 5]))
    assert isinstance(strange, answers.Failed)
    assert strange.code == "not-found"


def test_of_what_its_worker_has_a_page_says_only_that(house: Manager) -> None:
    house.hello()
    house.submit(count=3, max_failures=1)
    tail = b"x" * TAIL_BYTES
    house.report(house.attempts()[-1], Outcome.FAILED, 0, stdout=tail, stdout_bytes=TAIL_BYTES + 1)
    house.wait(0.5)
    [[ended, running]] = all_outputs(house)
    assert (ended.task_id, ended.data, ended.size_bytes, ended.more) == (
        0,
        b"",
        TAIL_BYTES + 1,
        True,
    )
    assert (running.task_id, running.more) == (1, True), "and the third one has not begun"
    assert all_outputs(house, "stderr")[0][0].more is False


def test_outputs_are_for_the_owner_of_the_job(house: Manager) -> None:
    house.submit()
    found = answer(house, requests.AllLogs(id="a", job="1", stream="stdin"))
    assert isinstance(found, answers.Failed)
    assert found.code == "usage"


def test_the_output_of_a_task_that_has_just_ended_is_asked_for_again(house: Manager) -> None:
    house.hello()
    house.submit(count=2)
    house.store.full = True
    house.report(house.attempts()[0], Outcome.DONE, 0, stdout=b"x", stdout_bytes=1)
    found = answer(house, requests.Logs(id="l", job="1", task_id=0))
    assert isinstance(found, answers.Failed)
    assert found.code == "busy"
