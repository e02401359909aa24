"""What a program says to a pool, and what comes back."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import CONTEXT, JOB, TASK, FakePool, FakeShare, log_of
from msgspec.structs import replace

from kestrelctl.access.context import Context
from kestrelctl.client import pool as client_pool
from kestrelctl.client.blocking import Client
from kestrelctl.client.pool import AsyncClient
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.spec import Begin, JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import Busy, FileExpired, NotAllowed, TimedOut, Unreachable, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.channels import TaskWrote
from kestrelctl.protocol.job_answers import TaskOutput


def client(fake: FakePool, share: FakeShare | None = None, **context: Any) -> Client:
    return Client(
        opens=fake.open,
        finds=lambda _: replace(CONTEXT, **context),
        opens_share=lambda _connection, _context: share or FakeShare(),
    )


def submitted(command: Any, fake: FakePool | None = None, **options: Any) -> JobSpec:
    fake = fake or FakePool()
    with client(fake) as pool:
        assert pool.submit(command, **options).id == 7
    return fake.last(rq.SubmitJob).spec


def test_options_are_those_of_the_command_line() -> None:
    spec = submitted(
        ["./fit", "{}"],
        array="1-100", cpus=0.5, memory="2G", time_limit="15m", max_running=4, env={"MODE": "fast"},
        keep=["*.csv"], requires=["LINUX", "GPU"], begin="now+1hour", hold=True, retry_on="75",
        max_failures=3, asset={"fpga": 1},
    )  # fmt: skip
    assert (spec.first, spec.count, spec.max_running, spec.held) == (1, 100, 4, True)
    assert spec.request == {"cpus": 0.5, "memory": float(2 << 30), "fpga": 1.0}
    assert spec.requires == ("LINUX", "GPU")
    assert (spec.begin, spec.retry_on) == (Begin(seconds=3600.0), ((75, 75),))
    assert spec.program.argv == ("./fit", "{}")
    assert spec.program.placeholders is Placeholders.ARRAY
    assert (spec.program.env, spec.program.outputs) == ({"MODE": "fast"}, ("*.csv",))
    assert spec.program.time_limit_seconds == 900.0


def test_a_session_looks_for_its_pool_once_however_many_jobs_it_submits() -> None:
    """Whoever submits thousands of jobs does not read files of this machine for each of them."""
    looked: list[str] = []

    def find(name: str) -> Context:
        looked.append(name)
        return CONTEXT

    with Client("lab", opens=FakePool().open, finds=find) as pool:
        for _ in range(10):
            pool.submit(["x"])
    assert looked == ["lab"]


def test_options_of_one_job_are_none_of_the_next() -> None:
    fake = FakePool()
    assert submitted(["x"], fake, array="1-3", env={"MODE": "fast"}, hold=True).count == 3
    after = submitted(["x"], fake)
    assert (after.count, after.held, after.program.env) == (1, False, {})


@pytest.mark.parametrize("words", [{"*.csv"}, iter(["*.csv"]), ["*.csv"], "*.csv"])
def test_several_words_come_in_any_collection(words: Any) -> None:
    assert [str(each) for each in submitted(["fit"], keep=words).program.outputs] == ["*.csv"]


def test_bytes_and_nothing_are_no_words() -> None:
    for keep in ([None], b"*.csv"):
        with pytest.raises(UsageError, match="no text"):
            submitted(["fit"], keep=keep)


def test_a_line_is_for_the_shell_and_words_are_no_code() -> None:
    assert submitted("a | b").program.argv == ("/bin/sh", "-c", "a | b")
    assert submitted(["sleep", 1]).program.argv == ("sleep", "1")


def test_items_are_texts_or_what_json_can_say() -> None:
    spec = submitted(["./fit", "{x}"], items=[{"x": 1}, "two", 3, [4]])
    assert spec.items == ('{"x":1}', "two", "3", "[4]")
    with pytest.raises(UsageError, match="an item cannot be"):
        submitted(["x"], items=[object()])


def test_a_job_waits_for_another_by_itself_or_its_number() -> None:
    fake = FakePool()
    with client(fake) as pool:
        first = pool.submit(["prepare"])
        for after in (first, first.id, "7", [first, 8], "last"):
            pool.submit(["fit"], after=after)
            found = fake.last(rq.SubmitJob).spec.after
            assert found[0] == After(7, 7)
    assert After(8, 8) in [
        each for r in fake.asked if isinstance(r, rq.SubmitJob) for each in r.spec.after
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cpu": 2}, "there is no option 'cpu'"),
        ({"cpus": "many"}, "cpus cannot be 'many'"),
        ({"max_running": 0}, "max_running cannot be '0'"),
        ({"max_running": True}, "max_running cannot be 'True'"),
        ({"priority": 256}, "priority cannot be '256'"),
        ({"hold": 1}, "hold cannot be '1'"),
        ({"memory": "2 apples"}, "not a size"),
        ({"isolation": "prison"}, "isolation cannot be 'prison'"),
        ({"array": "1:10"}, "no range"),
        ({"env": {"A=B": "c"}}, "'A=B' has an equals sign"),
        ({"each_line": "x"}, "each_line is for the command line"),
        ({"items": ["x"], "array": "1-3"}, "items and array exclude each other"),
        ({"max_failures": 1, "retry_on": "75"}, "would not take this job"),
    ],
)
def test_what_is_no_job_is_refused_before_anything_is_sent(
    options: dict[str, Any], says: str
) -> None:
    fake = FakePool()
    with client(fake) as pool, pytest.raises(UsageError, match=says):
        pool.submit(["x"], **options)
    assert not [each for each in fake.asked if isinstance(each, rq.SubmitJob)]


def test_tasks_start_where_the_program_runs_if_the_pool_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fake = FakePool()
    with client(fake, own_directories=True) as pool:
        pool.submit(["x"])
        assert fake.last(rq.SubmitJob).spec.program.workdir == str(tmp_path)
        pool.submit(["x"], workdir="scratch")
        assert fake.last(rq.SubmitJob).spec.program.workdir == ""
        pool.submit(["x"], keep=["r"])
        assert fake.last(rq.SubmitJob).spec.program.workdir == ""


def task(index: int, state: TaskState = TaskState.DONE) -> an.TaskView:
    return replace(TASK, index=index, task_id=index + 1, state=state)


def looks(*ended: list[int]) -> tuple[Callable[[Any], an.AnyAnswer], Callable[[Any], an.AnyAnswer]]:
    """A pool in which, from look to look, these tasks have ended; the job has at the last look."""
    at = iter(range(len(ended)))
    now = 0

    def jobs(_request: Any) -> an.AnyAnswer:
        nonlocal now
        now = next(at)
        state = "done" if now == len(ended) - 1 else "active"
        return an.Jobs(id="", jobs=[replace(JOB, state=state)])

    def tasks(request: rq.ListTasks) -> an.AnyAnswer:
        there = [task(index) for index in sorted(ended[now]) if index > request.after]
        return an.Tasks(id="", tasks=there[:2], after=there[1].index if len(there) > 2 else None)

    return jobs, tasks


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_pool, "LONGEST_LOOK_SECONDS", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_each_task_comes_once_when_it_has_ended_in_whatever_order() -> None:
    jobs, tasks = looks([], [3], [3], [0, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    fake = FakePool(ListJobs=jobs, ListTasks=tasks)
    with client(fake) as pool:
        assert [each.index for each in pool.job(7).results()] == [3, 0, 4, 1, 2]
    from_the_first = [r for r in fake.asked if isinstance(r, rq.ListTasks) and r.after == -1]
    assert len(from_the_first) == 4, "of six looks: the first task had ended by then"


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("knows_ids", [True, False], ids=["this manager", "an earlier manager"])
def test_each_ended_task_comes_with_what_it_printed(knows_ids: bool) -> None:
    """A manager before version 0.3 does not know `ids`, and sends what all tasks printed."""
    texts = {1: b"one", 2: b"", 3: b"three", 4: b"lo", 5: b"five"}

    def tasks(request: rq.ListTasks) -> an.AnyAnswer:
        there = [
            replace(task(index), stdout_bytes=len(texts[index + 1]), stderr_bytes=0)
            for index in range(5)
            if index > request.after
        ]
        return an.Tasks(id="", tasks=there)

    def outputs(request: rq.AllLogs) -> an.AnyAnswer:
        ids = [each for each in texts if each - 1 > request.after]
        found = [
            TaskOutput(task_id=each, data=b"" if each == 4 else texts[each], more=each == 4)
            for each in ids
            if not knows_ids or each in request.ids
        ]
        after = found[1].task_id - 1 if len(found) > 2 else None
        return an.LogPage(id="", outputs=found[:2], after=after)

    ended = an.Jobs(id="", jobs=[replace(JOB, state="done")])
    pieces = {0: log_of(b"lo", next_offset=2), 2: log_of(b"ng")}
    fake = FakePool(
        ListJobs=ended, ListTasks=tasks, AllLogs=outputs, Logs=lambda r: pieces[r.offset]
    )
    with client(fake) as pool:
        found = {each.task_id: (stdout, stderr) for each, stdout, stderr in pool.job(7).outputs()}
    assert found == {
        1: (b"one", b""), 2: (b"", b""), 3: (b"three", b""), 4: (b"long", b""), 5: (b"five", b""),
    }  # fmt: skip
    assert {each.stream for each in fake.asked if isinstance(each, rq.AllLogs)} == {"stdout"}


@pytest.mark.usefixtures("_at_once")
def test_tasks_that_printed_nothing_are_not_asked_for() -> None:
    ended = an.Jobs(id="", jobs=[replace(JOB, state="done")])
    fake = FakePool(ListJobs=ended, ListTasks=an.Tasks(id="", tasks=[task(0), task(1)]))
    with client(fake) as pool:
        assert [(each.stdout, each.stderr) for each in pool.job(7).outputs()] == [(b"", b"")] * 2
    assert fake.count(rq.AllLogs) == 0


@pytest.mark.usefixtures("_at_once")
def test_who_follows_a_job_sits_out_a_manager_that_restarts() -> None:
    found: list[an.AnyAnswer | Exception] = [
        Unreachable(), TimedOut(), an.Jobs(id="", jobs=[replace(JOB, state="done")]),
    ]  # fmt: skip

    def jobs(_request: Any) -> an.AnyAnswer:
        answer = found.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    fake = FakePool(ListJobs=jobs, ListTasks=an.Tasks(id="", tasks=[task(0)]))
    with client(fake) as pool:
        assert [each.index for each in pool.job(7).results()] == [0]


@pytest.mark.usefixtures("_at_once")
def test_who_waits_for_a_job_sits_out_a_manager_that_restarts() -> None:
    told = iter([Unreachable("away"), TimedOut("silent"), Busy("too much")])

    def watch(_request: rq.Watch) -> an.Jobs:
        if (error := next(told, None)) is not None:
            raise error
        return an.Jobs(id="", jobs=[replace(JOB, state="done")])

    with client(FakePool(Watch=watch)) as pool:
        assert pool.job(7).wait().state == "done"


@pytest.mark.usefixtures("_at_once")
def test_who_follows_a_job_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_pool, "PATIENCE_SECONDS", 0.0)
    fake = FakePool(ListJobs=Unreachable("away"))
    with client(fake) as pool, pytest.raises(Unreachable, match="away"):
        next(pool.job(7).outputs())


async def test_the_end_of_a_job_is_pushed_and_waited_for_with_a_limit() -> None:
    watched = iter([JOB, replace(JOB, state="done")])
    fake = FakePool(Watch=lambda _: an.Jobs(id="", jobs=[next(watched)]))
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        waiting = asyncio.create_task(pool.job(7).wait())
        await asyncio.sleep(0)
        pool.end_of(7).set()
        assert (await waiting).state == "done"
        fake.answers["Watch"] = an.Jobs(id="", jobs=[JOB])
        with pytest.raises(TimeoutError):
            await pool.job(8).wait(timeout_seconds=0.0)


async def test_a_frame_at_which_its_reader_fails_keeps_no_other_back() -> None:
    fake = FakePool()
    fake.frames = [TaskWrote(id="", job=job, task_id=1, attempt=1) for job in (7, 8)]
    heard = asyncio.Event()

    def fails(_frame: TaskWrote) -> None:
        raise RuntimeError("a mistake")

    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        pool.hears = {7: fails, 8: lambda _frame: heard.set()}
        async with asyncio.timeout(10.0):
            await heard.wait()


async def test_ends_for_which_nobody_waits_are_not_kept() -> None:
    """A program may submit jobs for weeks, and be told of each end."""
    fake = FakePool()
    fake.ends = [replace(JOB, job_id=number) for number in range(8, 100)]
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        waits = pool.end_of(99)
        async with asyncio.timeout(10.0):
            await waits.wait()
        assert dict(pool._ends) == {99: waits}


async def test_a_job_that_is_tried_again_is_asked_about_when_it_ends_again() -> None:
    fake = FakePool()

    def runs(_request: rq.Watch) -> an.Jobs:
        assert fake.count(rq.Watch) < 3, "nothing was told since it was asked"
        return an.Jobs(id="", jobs=[JOB])

    fake.answers["Watch"] = runs
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        ended = pool.end_of(7)
        ended.set()
        waiting = asyncio.create_task(pool.job(7).wait())
        await asyncio.sleep(0)
        assert fake.count(rq.Watch) == 1
        fake.answers["Watch"] = an.Jobs(id="", jobs=[replace(JOB, state="done")])
        ended.set()
        assert (await waiting).state == "done"


@pytest.fixture
def _rests_for_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_LOOK_SECONDS", "SHORTEST_LOOK_SECONDS", "LONGEST_LOOK_SECONDS"):
        monkeypatch.setattr(client_pool, name, 3600.0)


@pytest.mark.usefixtures("_rests_for_an_hour")
async def test_an_end_that_is_told_during_a_look_is_looked_at_at_once() -> None:
    fake = FakePool()
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:

        def ends(_request: rq.ListTasks) -> an.Tasks:
            fake.answers |= {
                "ListJobs": an.Jobs(id="", jobs=[replace(JOB, state="done")]),
                "ListTasks": an.Tasks(id="", tasks=[task(0)]),
            }
            pool.end_of(7).set()
            return an.Tasks(id="", tasks=[])

        fake.answers |= {"ListJobs": an.Jobs(id="", jobs=[JOB]), "ListTasks": ends}
        async with asyncio.timeout(10.0):
            assert [each.index async for each in pool.job(7).results()] == [0]


@pytest.mark.usefixtures("_rests_for_an_hour")
async def test_an_end_that_was_told_before_a_job_was_tried_again_is_no_reason_to_look() -> None:
    fake = FakePool(ListJobs=an.Jobs(id="", jobs=[JOB]))

    def none(_request: rq.ListTasks) -> an.Tasks:
        assert fake.count(rq.ListTasks) < 3, "nothing was told since it looked"
        return an.Tasks(id="", tasks=[])

    fake.answers["ListTasks"] = none
    async with AsyncClient(opens=fake.open, finds=lambda _: CONTEXT) as pool:
        told = pool.end_of(7)
        told.set()
        following = asyncio.create_task(anext(pool.job(7).results()))
        for _ in range(100):
            await asyncio.sleep(0)
        assert fake.count(rq.ListTasks) == 1
        following.cancel()


def test_all_of_a_task_s_output_comes_piece_by_piece() -> None:
    pieces = {0: log_of(b"hel", next_offset=3), 3: log_of(b"lo")}
    fake = FakePool(Logs=lambda request: pieces[request.offset])
    with client(fake) as pool:
        assert pool.job(7).logs(17) == b"hello"
    assert (fake.last(rq.Logs).task_id, fake.last(rq.Logs).stream) == (17, "stdout")


def test_a_job_is_changed_and_explained() -> None:
    fake = FakePool()
    with client(fake) as pool:
        job = pool.last_job()
        job.hold("lunch")
        job.release()
        job.cancel([3])
        job.retry()
        assert job.explain().job.job_id == 7
        assert (job.info().job_id, repr(job)) == (7, "<job 7>")
    assert (fake.last(rq.HoldJobs).jobs, fake.last(rq.HoldJobs).reason) == ("7", "lunch")
    assert fake.last(rq.CancelJobs).task_ids == [3]


def test_a_submission_whose_answer_is_lost_is_sent_again_under_its_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_pool, "PAUSES_SECONDS", (0.0, 0.0))
    answers = iter([Unreachable(), Unreachable(), an.Submitted(id="", job_id=7, tasks=1)])

    def answer(_request: Any) -> an.AnyAnswer:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    fake = FakePool(SubmitJob=answer)
    submitted(["x"], fake)
    keys = {each.key for each in fake.asked if isinstance(each, rq.SubmitJob)}
    assert len(keys) == 1
    assert "" not in keys


def test_what_the_pool_refuses_is_raised_as_its_error() -> None:
    fake = FakePool(SubmitJob=NotAllowed("you may not submit"))
    with pytest.raises(NotAllowed, match="you may not submit"):
        submitted(["x"], fake)


def test_who_waits_in_another_thread_does_not_wait_for_a_client_that_is_closed() -> None:
    begun, ended = threading.Event(), queue.SimpleQueue[str]()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            pool.does(work())
        except CancelledError:
            ended.put("cancelled")

    with client(FakePool()) as pool:
        threading.Thread(target=wait, daemon=True).start()
        begun.wait()
    assert ended.get(timeout=10.0) == "cancelled"


def test_a_pool_that_cannot_be_reached_leaves_no_thread() -> None:
    def opens(*_args: object, **_options: object) -> Any:
        raise Unreachable()

    before = Client(opens=opens)
    with pytest.raises(Unreachable), before:
        pass
    assert not before._thread.is_alive()


class Keeps(FakeShare):
    """A share that gives back what it was sent."""

    async def get(self, stored: StoredFile, target: Path) -> None:
        if stored.sha256 in self.lost:
            raise FileExpired("it is not there any more")
        target.write_bytes(self.sent[0])


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files, in which a program runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "model.bin").write_text("model")
    (tmp_path / "words").write_text("words")
    return tmp_path


@pytest.mark.usefixtures("at_home")
def test_files_of_this_machine_are_sent_once_and_tasks_find_them() -> None:
    fake, share = FakePool(), FakeShare()
    with client(fake, share, own_directories=True) as pool:
        for _ in range(2):
            pool.submit(["fit"], input=["model.bin=m", "job:7"], stdin="words", after=7)
        program = fake.last(rq.SubmitJob).spec.program
        assert [each.name for each in program.inputs] == ["m"]
        assert [each.job_id for each in program.parent_files] == [7]
        assert program.stdin is not None
        assert program.workdir == "", "what they find is in scratch directories"
    assert share.sent == [b"model", b"words"]


@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"input": ["none"]}, "there is no file none"),
        ({"input": "model.bin", "workdir": "/srv"}, "inputs are put into scratch directories"),
        ({"stdin": "none"}, "none cannot be the standard input"),
        ({"input": [""]}, "an input has an empty name"),
        ({"stdin": ""}, "cannot be the standard input"),
    ],
)
def test_files_that_cannot_be_sent_are_refused_before_anything_is(
    options: dict[str, Any], says: str
) -> None:
    fake = FakePool()
    with client(fake) as pool, pytest.raises(UsageError, match=says):
        pool.submit(["fit"], **options)
    assert not any(isinstance(each, rq.SubmitJob) for each in fake.asked)


@pytest.mark.usefixtures("at_home")
def test_long_outputs_come_from_the_file_share_and_from_a_worker_where_that_has_lost_them() -> None:
    share = Keeps()
    long = an.Log(id="", data=b"", size_bytes=5, stored=asyncio.run(share.put(Path("model.bin"))))
    fake = FakePool(Logs=lambda request: long if request.stored else log_of(b"the end"))
    with client(fake, share) as pool:
        assert pool.job(7).logs() == b"model"
        assert long.stored is not None
        share.lost.add(long.stored.sha256)
        assert pool.job(7).logs() == b"the end"


@pytest.mark.usefixtures("at_home")
def test_files_of_this_machine_may_be_paths() -> None:
    fake, share = FakePool(), FakeShare()
    with client(fake, share) as pool:
        pool.submit(["fit"], input=Path("model.bin"))
    assert [each.name for each in fake.last(rq.SubmitJob).spec.program.inputs] == ["model.bin"]


@pytest.mark.usefixtures("at_home")
async def test_a_job_that_is_described_has_its_files() -> None:
    """An executor describes the job of its interpreters."""
    share = FakeShare()
    async with AsyncClient(
        opens=FakePool().open,
        finds=lambda _: CONTEXT,
        opens_share=lambda _connection, _context: share,
    ) as pool:
        spec = await pool.described(["python3"], None, {"input": ["model.bin"], "stdin": "words"})
    assert [each.name for each in spec.program.inputs] == ["model.bin"]
    assert spec.program.stdin is not None
    assert share.sent == [b"model", b"words"]


@pytest.mark.usefixtures("at_home")
def test_the_connections_of_the_file_share_end_with_the_client() -> None:
    closed: list[int] = []
    share = FakeShare()
    share.close = lambda: closed.append(1)  # type: ignore[method-assign]
    with client(FakePool(), share) as pool:
        pool.submit(["fit"], input=["model.bin"])
        assert not closed
    assert closed == [1]


def test_files_of_tasks_come_home(at_home: Path) -> None:
    with client(FakePool()) as pool:
        fetched = pool.job(7).fetch("results")
    assert (fetched.files, fetched.directory) == (0, "results")
    assert (at_home / "results").is_dir()


def test_the_thread_of_a_client_waits_for_nothing_that_it_does_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would stand still for ever."""
    with client(FakePool()) as pool, monkeypatch.context() as patch:
        patch.setattr(pool, "_thread", threading.current_thread())  # as at the end of a call
        with pytest.raises(UsageError, match="wait for itself"):
            pool.status()


def test_who_asks_a_client_that_is_not_open_is_told_so() -> None:
    """Nothing would do the work, and it would be waited for."""
    pool = client(FakePool())
    said: list[str] = []

    def ask() -> None:
        try:
            pool.status()
        except UsageError as error:
            said.append(str(error))

    def ask_from_a_thread() -> None:
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(10.0)

    ask_from_a_thread()
    with pool:
        pass
    ask_from_a_thread()
    assert said == ["the client is not open", "the client is not open"]
