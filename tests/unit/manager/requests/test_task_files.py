"""Where the files are that tasks left: told to their owner, page by page, and kept with the job."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobkit import job_spec
from managerkit import NOW, PlayedManager
from msgspec.structs import replace
from store_samples import STORED

from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.result import MOST_PIECES, MOST_URL_CHARACTERS, Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.requests.task_files import MOST_TASKS
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import OutputPage, TaskFiles

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
WORKER = "w1@workers.pool/1"


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    found = PlayedManager(tmp_path)
    ad = WorkerAd(assets={"cpus": 10_000.0}, tags=("outputs",))
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
    await found.work(WORKER, hello)
    return found


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


def handed_out(manager: PlayedManager) -> list[tuple[int, int, int]]:
    """(number, job id, index) of all attempts that the worker was sent."""
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    spans = [span for run in runs if isinstance(run, workers.Run) for span in run.spans]
    return [(span[0] + k, span[1], span[2] + k) for span in spans for k in range(span[3])]


async def end(
    manager: PlayedManager, stored: StoredFile | None = STORED, outcome: int = Outcome.DONE
) -> None:
    """All that was handed out, and what follows it, ends so."""
    known = 0
    while len(handed_out(manager)) > known:
        known = len(handed_out(manager))
        await _end_what_runs(manager, stored, outcome)


async def _end_what_runs(manager: PlayedManager, stored: StoredFile | None, outcome: int) -> None:
    results = [
        Result(
            number, job_id, index, outcome, NOW, 0.0,
            output_files=2 if stored else 0, outputs=stored,
        )
        for number, job_id, index in handed_out(manager)
    ]  # fmt: skip
    together = 200 if stored is None or len(stored.pieces) < 10 else 2
    for start in range(0, len(results), together):
        await manager.work(WORKER, workers.Report(results=results[start : start + together]))


async def submit(manager: PlayedManager, **spec: object) -> None:
    job = job_spec(**({"outputs": ("*.csv",)} | spec))
    assert isinstance(await asked(manager, rq.SubmitJob(spec=job)), an.Submitted)


async def all_of(manager: PlayedManager, **request: object) -> tuple[list[TaskFiles], int]:
    """What all pages say, and how many there were."""
    found: list[TaskFiles] = []
    after: int | None = -1
    pages = 0
    while after is not None:
        asks = rq.ListOutputs(job="1", after=after, **request)  # type: ignore[arg-type]
        page = await asked(manager, asks)
        assert isinstance(page, OutputPage), page
        found += page.tasks
        after = page.after
        pages += 1
    return found, pages


async def test_a_worker_is_told_what_is_to_come_home(manager: PlayedManager) -> None:
    await submit(manager)
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    [run] = [run for run in runs if isinstance(run, workers.Run)]
    assert run.jobs[0].program.outputs == ("*.csv",)


async def test_a_worker_that_cannot_store_gets_no_such_job(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    ad = WorkerAd(assets={"cpus": 8.0})
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
    await manager.work(WORKER, hello)
    await submit(manager)
    assert handed_out(manager) == []


async def test_the_owner_is_told_where_files_are(manager: PlayedManager) -> None:
    await submit(manager, count=3, first=10)
    await end(manager)
    page = await asked(manager, rq.ListOutputs(job="1"))
    assert isinstance(page, OutputPage)
    assert page.tasks == [TaskFiles(task_id=n, files=2, stored=STORED) for n in (10, 11, 12)]
    assert page.after is None
    only = await asked(manager, rq.ListOutputs(job="1", ids=[11]))
    assert isinstance(only, OutputPage)
    assert [task.task_id for task in only.tasks] == [11]


async def test_nobody_else_is_told(manager: PlayedManager) -> None:
    await submit(manager)
    await end(manager)
    refusal = await asked(manager, rq.ListOutputs(job="1"), BOB)
    assert isinstance(refusal, an.Failed)
    assert refusal.code == "not-allowed"
    assert "share.pool" not in "".join(text for to, text in manager.sent if to == BOB)


async def test_many_come_in_pages_each_once(manager: PlayedManager) -> None:
    await submit(manager, count=2_500)
    await end(manager)
    found, pages = await all_of(manager)
    assert [task.task_id for task in found] == list(range(2_500))
    assert pages >= 2_500 // MOST_TASKS


async def test_a_page_is_no_larger_than_a_message(manager: PlayedManager) -> None:
    """Files of many pieces: fewer tasks are on it."""
    await submit(manager, count=40)
    piece = replace(STORED.pieces[0], size_bytes=1, url="https://share.pool/" + "x" * 900)
    await end(manager, StoredFile(sha256="5a" * 32, size_bytes=100, pieces=(piece,) * 100))
    found, pages = await all_of(manager)
    assert [task.task_id for task in found] == list(range(40))
    assert pages > 1
    named, pages = await all_of(manager, ids=list(range(5, 40)))
    assert [task.task_id for task in named] == list(range(5, 40))
    assert pages > 1


async def test_only_what_ended_well_is_told(manager: PlayedManager) -> None:
    await submit(manager, count=2)
    await end(manager, outcome=Outcome.FAILED)
    assert (await all_of(manager))[0] == []


async def test_of_a_job_that_leaves_nothing_that_is_said(manager: PlayedManager) -> None:
    await submit(manager, outputs=())
    refusal = await asked(manager, rq.ListOutputs(job="1"))
    assert isinstance(refusal, an.Failed)
    assert (refusal.code, refusal.message) == ("usage", "job 1 leaves no files")


async def test_of_files_at_an_address_the_owner_is_told_where_they_are(tmp_path: Path) -> None:
    manager = PlayedManager(tmp_path)
    ad = WorkerAd(assets={"cpus": 8.0}, tags=("outputs", "output-to-file"))
    await manager.work(
        WORKER, workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
    )
    address = "file:///shared/ada@users.pool/run"
    await submit(manager, output_to=address)
    [(number, job_id, index)] = handed_out(manager)
    result = Result(number, job_id, index, Outcome.DONE, NOW, 0.0, output_files=3)
    await manager.work(WORKER, workers.Report(results=[result]))
    told = await asked(manager, rq.ListOutputs(job="1"))
    assert isinstance(told, an.Failed)
    assert (told.code, told.message) == ("usage", f"the files of job 1 are at {address}")
    told = await asked(manager, rq.ListOutputs(job="1"), BOB)
    assert isinstance(told, an.Failed)
    assert told.code == "not-allowed"
    assert address not in "".join(text for to, text in manager.sent if to == BOB)
    page = await asked(manager, rq.ListTasks(job="1"))
    assert isinstance(page, an.Tasks)
    assert [(task.state, task.output_files) for task in page.tasks] == [("done", 3)]


async def test_where_files_are_goes_with_the_job(manager: PlayedManager) -> None:
    await submit(manager)
    await end(manager)
    await asked(manager, rq.ForgetJobs(jobs="1"))
    refusal = await asked(manager, rq.ListOutputs(job="1"))
    assert isinstance(refusal, an.Failed)
    assert refusal.code == "not-found"


async def test_tasks_are_shown_with_what_they_left(manager: PlayedManager) -> None:
    await submit(manager)
    await end(manager)
    page = await asked(manager, rq.ListTasks(job="1"))
    assert isinstance(page, an.Tasks)
    assert (page.tasks[0].output_files, page.tasks[0].outputs_bytes) == (2, STORED.size_bytes)


@pytest.mark.parametrize(
    "lie",
    [
        replace(STORED, sha256="no hash"),
        replace(STORED, size_bytes=1),
        replace(STORED, pieces=(replace(STORED.pieces[0], url="file:///etc/passwd"),) * 3),
        StoredFile(
            sha256="5a" * 32,
            size_bytes=MOST_PIECES + 1,
            pieces=(replace(STORED.pieces[0], size_bytes=1),) * (MOST_PIECES + 1),
        ),
        StoredFile(
            sha256="5a" * 32,
            size_bytes=1,
            pieces=(
                replace(
                    STORED.pieces[0],
                    size_bytes=1,
                    url="https://x/" + "x" * MOST_URL_CHARACTERS,
                ),
            ),
        ),
    ],
)
async def test_what_cannot_be_had_is_not_kept(manager: PlayedManager, lie: StoredFile) -> None:
    await submit(manager)
    await end(manager, lie)
    assert (await all_of(manager))[0] == []
    [row] = manager.store.tasks(1)
    assert row.result is not None
    assert row.result.outputs is None


async def test_what_dispatch_added_does_not_count_what_storing_took(
    manager: PlayedManager,
) -> None:
    await submit(manager)
    [(number, job_id, index)] = handed_out(manager)
    manager.now += 60.0
    done = Result(number, job_id, index, Outcome.DONE, NOW, 2.0, stored_seconds=58.0)
    await manager.work(WORKER, workers.Report(results=[done]))
    answer = await asked(manager, rq.ListJobs(jobs="1"))
    totals = manager.service.pool.totals
    assert isinstance(answer, an.Jobs)
    assert totals.dispatches.sum == pytest.approx(0.0)
    assert totals.runs.sum == pytest.approx(2.0)
