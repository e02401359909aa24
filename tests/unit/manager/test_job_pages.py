"""Many jobs: page by page, by ranges with gaps, by name, and forgotten all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager
from storekit import QuickStore

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    return PlayedManager(tmp_path)


async def asked(manager: PlayedManager, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
    return directions.answers.decode(await manager.ask(whom, request))


async def submit(manager: PlayedManager, names: list[str], whom: str = ADA) -> None:
    for name in names:
        spec = JobSpec(program=Program(argv=("true",)), name=name)
        assert isinstance(await asked(manager, rq.SubmitJob(spec=spec), whom), an.Submitted)


async def end(manager: PlayedManager, *job_ids: int, whom: str = ADA) -> None:
    for job_id in job_ids:
        assert isinstance(await asked(manager, rq.CancelJobs(jobs=str(job_id)), whom), an.Changed)


async def listed(manager: PlayedManager, whom: str = ADA, **which: object) -> list[int]:
    """The ids of all pages, oldest first."""
    found: list[int] = []
    before: int | None = None
    for _ in range(100):
        request = rq.ListJobs(before=before, **which)  # type: ignore[arg-type]
        page = await asked(manager, request, whom)
        assert isinstance(page, an.Jobs), page
        found[:0] = [view.job_id for view in page.jobs]
        if page.before is None:
            return found
        before = page.before
    raise AssertionError("there is no last page")


async def test_jobs_come_page_by_page_each_once_and_the_first_page_counts_all(
    manager: PlayedManager,
) -> None:
    await submit(manager, ["x"] * 7)
    assert await listed(manager, limit=3) == [1, 2, 3, 4, 5, 6, 7]
    first = await asked(manager, rq.ListJobs(limit=3))
    assert isinstance(first, an.Jobs)
    assert [view.job_id for view in first.jobs] == [5, 6, 7]
    assert (first.total, first.before) == (7, 5)


async def test_the_first_page_counts_all_without_naming_them(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submit(manager, ["x"] * 7)
    named: list[object] = []
    monkeypatch.setattr(
        type(manager.store), "job_ids", lambda _, **which: named.append(which) or []
    )
    page = await asked(manager, rq.ListJobs(limit=3))
    assert isinstance(page, an.Jobs)
    assert (page.total, named) == (7, [])


async def test_what_others_have_done_in_private_fills_nobodys_list(
    tmp_path: Path, manager: PlayedManager
) -> None:
    await submit(manager, ["mine"])
    await submit(manager, ["theirs"] * 5, BOB)
    await end(manager, *range(2, 6), whom=BOB)
    assert await listed(manager, limit=2) == [1, 6], "that one takes room in the queue"
    page = await asked(manager, rq.ListJobs(limit=1))
    assert isinstance(page, an.Jobs)
    assert page.total == 2
    assert await listed(manager, states=["cancelled"]) == []
    assert await listed(manager, where="true") == [1, 6]
    assert await listed(manager, owner="bob@users.pool") == [2, 3, 4, 5, 6]
    assert await listed(manager, jobs="1-6") == [1, 2, 3, 4, 5, 6]
    assert await listed(manager, whom="root@users.pool/1") == [1, 2, 3, 4, 5, 6]
    assert await listed(manager, whom=BOB) == [1, 2, 3, 4, 5, 6]
    open_to_all = PlayedManager(tmp_path / "shared", store=manager.store, share_jobs=True)
    assert await listed(open_to_all) == [1, 2, 3, 4, 5, 6]


async def test_a_page_is_no_larger_than_one_answer(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 10_000)
    await submit(manager, ["&" * 200] * 12)
    assert await listed(manager, limit=0) == list(range(1, 13))
    page = await asked(manager, rq.ListJobs(limit=12))
    assert isinstance(page, an.Jobs)
    assert 0 < len(page.jobs) < 12
    assert page.total == 12


async def test_who_looks_for_what_a_task_wrote_that_never_ran_is_not_told_to_wait_for_it(
    manager: PlayedManager,
) -> None:
    await submit(manager, ["x", "x"])
    await end(manager, 2)
    waits = await asked(manager, rq.Logs(job="1", task_id=0))
    never = await asked(manager, rq.Logs(job="2", task_id=0))
    assert isinstance(waits, an.Failed)
    assert isinstance(never, an.Failed)
    assert (waits.message, waits.hint) == (
        "task 0 of job 1 has not run",
        "`kestrelctl job explain 1` says why",
    )
    assert (never.message, never.hint) == (
        "task 0 of job 2 never ran: it is cancelled",
        "`kestrelctl job story 2 0` says why",
    )


async def test_all_ids_that_are_of_no_job_are_named(manager: PlayedManager) -> None:
    await submit(manager, ["x"])
    refused = await asked(manager, rq.CancelJobs(jobs="1,8,9"))
    assert isinstance(refused, an.Failed)
    assert refused.message == "there are no jobs 8, 9"
    assert [job.state for job in manager.store.jobs()] == ["active"]


async def test_a_range_has_gaps_where_jobs_were_forgotten(manager: PlayedManager) -> None:
    await submit(manager, ["x"] * 5)
    await end(manager, 2, 3)
    await asked(manager, rq.ForgetJobs(jobs="3"))
    assert await listed(manager, jobs="1-1000") == [1, 2, 4, 5]
    cancelled = await asked(manager, rq.CancelJobs(jobs="2-4"))
    assert isinstance(cancelled, an.Changed)
    assert cancelled.what == ["4"], "what has ended is no part of a range to be cancelled"


@pytest.mark.parametrize("jobs", ["3", "1-2,3", "3-9"])
async def test_what_is_named_alone_must_be_there_and_something_of_a_range(
    manager: PlayedManager, jobs: str
) -> None:
    await submit(manager, ["x"] * 2)
    for request in (rq.ListJobs(jobs=jobs), rq.CancelJobs(jobs=jobs), rq.ForgetJobs(jobs=jobs)):
        refused = await asked(manager, request)
        assert isinstance(refused, an.Failed)
        assert refused.code == "not-found"


async def test_jobs_are_listed_and_cancelled_by_name(manager: PlayedManager) -> None:
    await submit(manager, ["nightly-1", "weekly", "nightly-2", "Nightly-3"])
    await submit(manager, ["nightly-4"], BOB)
    assert await listed(manager, name="nightly*") == [1, 3]
    assert await listed(manager, name="nightly-[!1]") == [3]
    await end(manager, 1)
    found = await asked(manager, rq.CancelJobs(jobs="name:nightly*"))
    assert isinstance(found, an.Changed)
    assert found.what == ["3"]
    none = await asked(manager, rq.CancelJobs(jobs="name:hourly"))
    assert isinstance(none, an.Failed)


async def test_names_of_others_are_not_found_out_by_asking_for_them(tmp_path: Path) -> None:
    for shared, seen in ((False, []), (True, [1])):
        manager = PlayedManager(tmp_path / str(shared), share_jobs=shared)
        await submit(manager, ["secret"])
        owner = "ada@users.pool"
        assert await listed(manager, BOB, name="secret") == seen
        assert await listed(manager, BOB, name="s*", owner=owner) == seen
        assert await listed(manager, "root@users.pool/1", name="secret") == [1]


async def test_all_that_has_ended_is_forgotten_at_once(manager: PlayedManager) -> None:
    await submit(manager, ["x"] * 5)
    await submit(manager, ["x"], BOB)
    await end(manager, 1, 2, 4)
    await end(manager, 6, whom=BOB)
    found = await asked(manager, rq.ForgetJobs(jobs="all"))
    assert isinstance(found, an.Changed)
    assert (found.what, found.kept) == (["1", "2", "4"], 2)
    assert await listed(manager, jobs="1-6") == [3, 5, 6], "what goes on, and what is another's"
    again = await asked(manager, rq.ForgetJobs(jobs="all"))
    assert isinstance(again, an.Changed)
    assert (again.what, again.kept) == ([], 2)


async def test_of_a_range_only_what_has_ended_is_forgotten(manager: PlayedManager) -> None:
    await submit(manager, ["x"] * 3)
    await end(manager, 1, 3)
    found = await asked(manager, rq.ForgetJobs(jobs="1-3"))
    assert isinstance(found, an.Changed)
    assert (found.what, found.kept) == (["1", "3"], 1)
    refused = await asked(manager, rq.ForgetJobs(jobs="2"))
    assert isinstance(refused, an.Failed), "named alone, it is an error"


async def test_more_than_one_answer_can_name_are_forgotten_piece_by_piece(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kestrelctl.manager.selection.MAX_SELECTED", 2)
    await submit(manager, ["x"] * 5)
    await end(manager, 1, 2, 3, 4, 5)
    left = []
    for _ in range(3):
        found = await asked(manager, rq.ForgetJobs(jobs="all"))
        assert isinstance(found, an.Changed)
        left.append((len(found.what), found.left))
    assert left == [(2, 3), (2, 1), (1, 0)]


@pytest.mark.parametrize("jobs", ["all", "name:x"])
async def test_so_are_many_cancelled_each_once_though_their_tasks_take_a_while_to_end(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    monkeypatch.setattr("kestrelctl.manager.selection.MAX_SELECTED", 2)
    ad = WorkerAd(assets={"cpus": 9.0})
    hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
    await manager.work("w1@workers.pool/1", hello)
    await submit(manager, ["x"] * 5)
    found = []
    for _ in range(3):
        changed = await asked(manager, rq.CancelJobs(jobs=jobs))
        assert isinstance(changed, an.Changed)
        found.append((changed.what, changed.left))
    assert found == [(["1", "2"], 3), (["3", "4"], 1), (["5"], 0)]
    assert len(list(manager.service.pool.jobs)) == 5, "nothing has ended yet"


async def test_a_glob_that_no_store_takes_is_refused(manager: PlayedManager) -> None:
    glob = "*x" * 30_000
    for request in (rq.ListJobs(name=glob), rq.CancelJobs(jobs=f"name:{glob}")):
        refused = await asked(manager, request)
        assert isinstance(refused, an.Failed)
        assert refused.code == "usage", refused
        assert len(refused.message) < 100


async def test_single_tasks_are_cancelled_of_one_job_alone(manager: PlayedManager) -> None:
    spec = JobSpec(program=Program(argv=("true",)), count=5, first=10)
    for _ in range(2):
        await asked(manager, rq.SubmitJob(spec=spec))
    found = await asked(manager, rq.CancelJobs(jobs="1", task_ids=[11, 13, 13]))
    assert isinstance(found, an.Changed)
    assert (found.what, found.tasks) == (["1"], 2)
    again = await asked(manager, rq.CancelJobs(jobs="1", task_ids=[13]))
    assert isinstance(again, an.Changed)
    assert (again.what, again.tasks) == ([], 0)
    page = await asked(manager, rq.ListTasks(job="1", states=[TaskState.CANCELLED]))
    assert isinstance(page, an.Tasks)
    assert [task.task_id for task in page.tasks] == [11, 13]
    for request, who, code in (
        (rq.CancelJobs(jobs="1-2", task_ids=[10]), ADA, "usage"),
        (rq.CancelJobs(jobs="1", task_ids=[15]), ADA, "not-found"),
        (rq.CancelJobs(jobs="1", task_ids=[10]), BOB, "not-allowed"),
    ):
        refused = await asked(manager, request, who)
        assert isinstance(refused, an.Failed)
        assert refused.code == code


async def test_details_of_a_job_are_its_owners(tmp_path: Path, quick_store: QuickStore) -> None:
    manager = PlayedManager(tmp_path, store=quick_store, share_jobs=True)
    spec = JobSpec(
        program=Program(
            argv=("true",), env={"TOKEN": "x"}, cleanup=("rm", "y"), time_limit_seconds=9.0
        ),
    )
    await asked(manager, rq.SubmitJob(spec=spec))
    result = Result(1, 1, 0, Outcome.DONE, 0.0, 5.0, cpu_seconds=2.5, peak_bytes=7)
    await manager.store.commit([TaskRecord(1, 0, TaskState.DONE, 0, 0, "w", result)])

    async def one(whom: str, *, details: bool) -> an.JobView:
        page = await asked(manager, rq.ListJobs(jobs="1", details=details), whom)
        assert isinstance(page, an.Jobs)
        return page.jobs[0]

    for whom in (ADA, "root@users.pool/1"):
        found = await one(whom, details=True)
        assert (found.spec.program.env, found.spec.program.cleanup) == ({"TOKEN": "x"}, ("rm", "y"))
        assert (found.cpu_seconds, found.wall_seconds, found.peak_bytes) == (2.5, 5.0, 7)
    for found in (await one(BOB, details=True), await one(ADA, details=False)):
        program = found.spec.program
        assert (program.env, program.cleanup, found.cpu_seconds) == ({}, (), None)
        assert program.time_limit_seconds == 9.0


async def test_details_that_no_answer_can_hold_are_left_out(
    tmp_path: Path, quick_store: QuickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = PlayedManager(tmp_path, store=quick_store)
    await asked(
        manager,
        rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",), env={"LONG": "x" * 5000}))),
    )
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 5000)
    page = await asked(manager, rq.ListJobs(jobs="1", details=True))
    assert isinstance(page, an.Jobs)
    assert (page.jobs[0].spec.program.env, page.jobs[0].cpu_seconds) == ({}, 0.0)
