"""Where files of parents are: told to a worker whose task is to find them, and to no other."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from jobkit import changed
from managerkit import NOW, FarStore, PlayedManager
from msgspec.structs import replace
from store_samples import STORED

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import GraphJob, GraphSubmitted

ADA = "ada@users.pool/1"
WORKER = "w1@workers.pool/1"
OTHER = "w2@workers.pool/1"
TAGS = ("inputs", "outputs", "parent-files")
TO = "file:///shared/ada@users.pool/run"
PARENT = JobSpec(program=Program(argv=("true",), outputs=("*.csv",)))
CHILD = JobSpec(
    program=Program(argv=("true",), parent_files=(ParentFiles(name="p", job_id=1),)),
    after=(After(1, 1),),
)


class Pool(PlayedManager):
    async def join(self, worker: str, *tags: str) -> None:
        ad = WorkerAd(assets={"cpus": 5_000.0}, tags=tags)
        hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
        await self.work(worker, hello)

    async def submit(self, spec: JobSpec) -> an.AnyAnswer:
        return directions.answers.decode(await self.ask(ADA, rq.SubmitJob(spec=spec)))

    def told(self, worker: str, kind: type[workers.Message]) -> list[workers.Message]:
        messages = [directions.to_worker.decode(text) for to, text in self.sent if to == worker]
        return [each for each in messages if isinstance(each, kind)]

    def handed_out(self, job_id: int) -> list[tuple[int, int]]:
        """(number, index) of all attempts of a job that the worker was sent."""
        spans = [span for run in self.told(WORKER, workers.Run) for span in run.spans]  # type: ignore[attr-defined]
        return [(s[0] + k, s[2] + k) for s in spans if s[1] == job_id for k in range(s[3])]

    async def end(self, job_id: int, stored: StoredFile | None = STORED) -> None:
        """All tasks of a job end well, and each leaves that."""
        ended: set[int] = set()
        while fresh := [one for one in self.handed_out(job_id) if one[0] not in ended]:
            results = [
                Result(
                    number, job_id, index, Outcome.DONE, NOW, 0.0,
                    output_files=2 if stored else 0, outputs=stored,
                )
                for number, index in fresh
            ]  # fmt: skip
            together = 200 if stored is None or len(stored.pieces) < 10 else 2
            for start in range(0, len(results), together):
                await self.work(WORKER, workers.Report(results=results[start : start + together]))
            ended |= {number for number, _ in fresh}

    async def found(self, worker: str = WORKER, **said: int) -> list[workers.FilesFound]:
        """The answers to a question of a worker."""
        before = len(self.told(worker, workers.FilesFound))
        await self.work(worker, workers.FindFiles(**said))  # type: ignore[arg-type]
        return self.told(worker, workers.FilesFound)[before:]  # type: ignore[return-value]


@pytest.fixture
async def pool(tmp_path: Path) -> Pool:
    found = Pool(tmp_path)
    await found.join(WORKER, *TAGS)
    return found


async def test_a_worker_is_told_what_tasks_of_the_parent_left(pool: Pool) -> None:
    await pool.submit(replace(PARENT, count=3, first=10))
    await pool.submit(CHILD)
    assert pool.handed_out(2) == []
    await pool.end(1)
    [(number, _)] = pool.handed_out(2)
    [page] = await pool.found(number=number, parent=1)
    assert page.files == [(10, STORED), (11, STORED), (12, STORED)]
    assert (page.next, page.problem) == (None, "")


async def test_of_tasks_that_wait_one_for_one_each_is_told_of_its_own(pool: Pool) -> None:
    await pool.submit(replace(PARENT, count=3, first=10))
    files = (ParentFiles(name="p", job_id=1, each=True),)
    await pool.submit(changed(CHILD, count=3, after=(), after_each=1, parent_files=files))
    await pool.end(1)
    told = [
        (index, [task_id for task_id, _ in page.files])
        for number, index in pool.handed_out(2)
        for page in await pool.found(number=number, parent=1)
    ]
    assert told == [(0, [10]), (1, [11]), (2, [12])]


async def test_a_worker_without_such_a_task_is_told_nothing(pool: Pool) -> None:
    await pool.submit(PARENT)
    await pool.submit(CHILD)
    await pool.end(1)
    [(number, _)] = pool.handed_out(2)
    await pool.join(OTHER, *TAGS)
    assert await pool.found(OTHER, number=number, parent=1) == []
    assert await pool.found(number=number, parent=2) == []
    assert await pool.found(number=number + 1, parent=1) == []
    await pool.work(WORKER, workers.Report(results=[Result(number, 2, 0, Outcome.DONE, NOW, 0.0)]))
    assert await pool.found(number=number, parent=1) == [], "its task has ended"


async def asking_far_away(tmp_path: Path) -> tuple[Pool, FarStore, int]:
    """A pool whose store takes its time, and the number of an attempt that has asked."""
    store = FarStore(MemoryStore())
    pool = Pool(tmp_path, store=store)
    await pool.join(WORKER, *TAGS)
    await pool.submit(PARENT)
    await pool.submit(CHILD)
    await pool.end(1)
    [(number, _)] = pool.handed_out(2)
    store.is_far = True
    store.answers.clear()
    assert await pool.found(number=number, parent=1) == []
    return pool, store, number


async def test_a_worker_is_told_when_a_store_behind_a_network_answers(tmp_path: Path) -> None:
    pool, store, _ = await asking_far_away(tmp_path)
    store.answers.set()
    await pool.settled()
    [page] = pool.told(WORKER, workers.FilesFound)
    assert page.files == [(0, STORED)]  # type: ignore[attr-defined]


async def test_a_worker_whose_task_ends_while_the_store_is_asked_is_told_nothing(
    tmp_path: Path,
) -> None:
    pool, store, number = await asking_far_away(tmp_path)
    await pool.work(WORKER, workers.Report(results=[Result(number, 2, 0, Outcome.DONE, NOW, 0.0)]))
    store.answers.set()
    await pool.settled()
    assert pool.told(WORKER, workers.FilesFound) == []


async def test_a_worker_that_does_not_ask_gets_no_such_job(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    await pool.join(WORKER, "inputs", "outputs")
    await pool.submit(PARENT)
    await pool.submit(CHILD)
    await pool.end(1)
    assert pool.handed_out(2) == []


async def test_many_come_in_pages_no_larger_than_a_message(pool: Pool) -> None:
    await pool.submit(replace(PARENT, count=40))
    await pool.submit(CHILD)
    piece = replace(STORED.pieces[0], size_bytes=1, url="https://share.pool/" + "x" * 900)
    await pool.end(1, StoredFile(sha256="5a" * 32, size_bytes=100, pieces=(piece,) * 100))
    [(number, _)] = pool.handed_out(2)
    found: list[int] = []
    after: int | None = -1
    pages = 0
    while after is not None:
        [page] = await pool.found(number=number, parent=1, after=after)
        found += [task_id for task_id, _ in page.files]
        after = page.next
        pages += 1
    assert found == list(range(40))
    assert pages > 1


async def test_tasks_that_left_nothing_are_left_out_however_many_they_are(pool: Pool) -> None:
    await pool.submit(replace(PARENT, count=2_500))
    await pool.submit(replace(CHILD, after=(After(1, 1, WantedEnd.ENDED),)))
    await pool.end(1, None)
    [(number, _)] = pool.handed_out(2)
    first, second = -1, 0
    [page] = await pool.found(number=number, parent=1, after=first)
    assert page.files == []
    assert page.next is not None
    [page] = await pool.found(number=number, parent=1, after=page.next)
    [page] = await pool.found(number=number, parent=1, after=page.next or second)
    assert page.next is None


async def test_a_parent_that_is_forgotten_is_a_problem_for_good(pool: Pool) -> None:
    await pool.submit(PARENT)
    await pool.submit(CHILD)
    await pool.end(1)
    await pool.ask(ADA, rq.ForgetJobs(jobs="1"))
    [(number, _)] = pool.handed_out(2)
    [page] = await pool.found(number=number, parent=1)
    assert page.problem == "the pool has forgotten job 1"


async def test_a_parent_that_leaves_nothing_is_refused_at_once(pool: Pool) -> None:
    await pool.submit(changed(PARENT, outputs=()))
    refused = await pool.submit(CHILD)
    assert isinstance(refused, an.Failed)
    assert refused.message == "job 1 leaves no files that tasks could find"


async def test_files_that_a_parent_leaves_at_an_address_are_to_be_read_there(pool: Pool) -> None:
    await pool.submit(changed(PARENT, output_to=TO))
    refused = await pool.submit(CHILD)
    assert isinstance(refused, an.Failed)
    assert refused.message == "the files of job 1 are not in the file share"
    assert f"--input {TO}/" in (refused.hint or "")


async def test_files_of_a_job_that_is_not_waited_for_are_refused(pool: Pool) -> None:
    await pool.submit(PARENT)
    for after in ((), (After(1, 1, WantedEnd.FAILED),)):
        refused = await pool.submit(replace(CHILD, after=after))
        assert isinstance(refused, an.Failed)
        assert "files of job 1 are wanted" in refused.cause


async def test_files_of_one_task_are_for_tasks_that_wait_for_it(pool: Pool) -> None:
    await pool.submit(PARENT)
    files = (ParentFiles(name="p", job_id=1, each=True),)
    refused = await pool.submit(changed(CHILD, parent_files=files))
    assert isinstance(refused, an.Failed)
    assert "files of job 1 are wanted" in refused.cause


async def graph(pool: Pool, *jobs: GraphJob) -> an.AnyAnswer:
    lines = [msgspec.json.encode(job).decode() for job in jobs]
    await pool.ask(ADA, rq.UploadItems(upload="u", lines=lines))
    return directions.answers.decode(await pool.ask(ADA, rq.SubmitJobs(upload="u")))


PLACED = changed(CHILD, after=(), parent_files=(ParentFiles(name="p", job_id=0, placed=True),))


async def test_places_of_a_graph_become_ids(pool: Pool) -> None:
    await pool.submit(PARENT)
    answer = await graph(pool, GraphJob(spec=PARENT), GraphJob(spec=PLACED, after=(After(0, 0),)))
    assert isinstance(answer, GraphSubmitted)
    await pool.end(1)
    await pool.end(2)
    runs = pool.told(WORKER, workers.Run)
    [template] = [each for run in runs for each in run.jobs if each.job_id == 3]  # type: ignore[attr-defined]
    assert template.program.parent_files == (ParentFiles(name="p", job_id=2),)


@pytest.mark.parametrize(
    ("parent", "after", "said"),
    [
        (PARENT, (), "files of job 1 of them are wanted"),
        (PARENT, (After(0, 0, WantedEnd.FAILED),), "files of job 1 of them are wanted"),
        (changed(PARENT, outputs=()), (After(0, 0),), "job 1 of 2 leaves no files"),
        (changed(PARENT, output_to=TO), (After(0, 0),), "of job 1 of 2 are not in the file share"),
    ],
)
async def test_of_a_graph_in_which_files_cannot_be_had_no_job_comes(
    pool: Pool, parent: JobSpec, after: tuple[After, ...], said: str
) -> None:
    refused = await graph(pool, GraphJob(spec=parent), GraphJob(spec=PLACED, after=after))
    assert isinstance(refused, an.Failed)
    assert said in f"{refused.message} {refused.cause}"
    assert pool.store.jobs() == []
