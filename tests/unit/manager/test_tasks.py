"""What a manager tells of tasks: how long each has waited and run, and which item it has."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from managerkit import NOW, PlayedManager
from storekit import QuickStore

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.views import LONGEST_COMMAND, LONGEST_ITEM
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.port import at_hand

ADA = "ada@users.pool/1"
W1 = "w1@workers.pool/a"
ITEMS = ("alpha.csv", "beta.csv", "gamma.csv")


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    return PlayedManager(tmp_path, store=quick_store)


async def submit(manager: PlayedManager, spec: JobSpec) -> None:
    answer = directions.answers.decode(await manager.ask(ADA, rq.SubmitJob(spec=spec)))
    assert isinstance(answer, an.Submitted), answer


async def joins(manager: PlayedManager, cpus: float = 1.0) -> None:
    ad = WorkerAd(assets={"cpus": cpus})
    await manager.work(W1, workers.Hello(version=workers.VERSION, incarnation="x", ad=ad))


def handed_out(manager: PlayedManager) -> list[tuple[int, int, int]]:
    """(number, job, index) of all attempts that the worker was sent."""
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == W1]
    return [
        (number + place, job_id, index + place)
        for run in runs
        if isinstance(run, workers.Run)
        for number, job_id, index, count, *_ in run.spans
        for place in range(count)
    ]


def seals_of(manager: PlayedManager) -> list[Seal]:
    """The seals of what the worker was handed out."""
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == W1]
    return [
        (number, job_id, index, count, mark)
        for run in runs
        if isinstance(run, workers.Run)
        for number, job_id, index, count, _, mark in run.spans
    ]


async def ends(
    manager: PlayedManager, attempt: tuple[int, int, int], started_at: float, ended_at: float
) -> None:
    """An attempt is done, and is reported now."""
    result = Result(*attempt, Outcome.DONE, started_at, ended_at - started_at, 0.5)
    await manager.work(W1, workers.Report(results=[result]))


async def tasks(manager: PlayedManager, **how: object) -> list[an.TaskView]:
    request = rq.ListTasks(job="1", **how)  # type: ignore[arg-type]
    answer = directions.answers.decode(await manager.ask(ADA, request))
    assert isinstance(answer, an.Tasks), answer
    return answer.tasks


# -- how long --------------------------------------------------------------------------------------


async def test_a_task_that_runs_says_how_long_it_has(manager: PlayedManager) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x",))))
    manager.now += 3.0
    await joins(manager)
    manager.now += 12.0
    [task] = await tasks(manager)
    assert (task.state, task.wall_seconds, task.wait_seconds) == (TaskState.RUNNING, 12.0, 3.0)
    assert task.started_at == NOW + 3.0
    assert (task.cpu_seconds, task.said_at) == (None, None), "its worker has said nothing of it"
    found = directions.answers.decode(await manager.ask(ADA, rq.ListWorkers(names=["w1"])))
    assert isinstance(found, an.Workers)
    assert [run.wall_seconds for run in found.workers[0].runs] == [12.0]


async def test_what_waits_at_its_worker_runs_since_the_one_before_it_ended(
    manager: PlayedManager,
) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x",)), count=3))
    await joins(manager)
    manager.now += 0.01
    await ends(manager, handed_out(manager)[0], NOW, manager.now)
    _, second, third = handed_out(manager)
    manager.now += 5.0
    assert [task.wall_seconds for task in (await tasks(manager))[1:]] == [5.0, None]
    await ends(manager, second, NOW + 0.01, manager.now)
    manager.now += 1.0
    found = await tasks(manager)
    assert (found[2].state, third[2]) == (TaskState.RUNNING, 2)
    assert found[2].wall_seconds == 1.0, "and not since it was handed out"
    assert found[2].wait_seconds == pytest.approx(5.01)


async def test_of_what_began_before_the_manager_the_time_is_unknown_and_no_zero(
    manager: PlayedManager, tmp_path: Path
) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x",))))
    await joins(manager)
    [(number, job_id, index)] = handed_out(manager)
    again = PlayedManager(tmp_path, store=manager.store)
    again.now = manager.now + 60.0
    hello = workers.Hello(
        version=workers.VERSION,
        incarnation="x",
        ad=WorkerAd(assets={"cpus": 1.0}),
        holds=[(number, job_id, index, 0)],
        claims=[{"cpus": 1000}],
        seals=seals_of(manager),
    )
    await again.work(W1, hello)
    [task] = await tasks(again)
    assert task.state is TaskState.RUNNING
    assert (task.wall_seconds, task.wait_seconds, task.started_at) == (None, None, None)


async def test_the_wait_is_from_the_submission_to_the_start_and_not_the_time_at_the_worker(
    manager: PlayedManager,
) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x",)), count=2))
    manager.now += 90.0
    assert [task.wait_seconds for task in await tasks(manager)] == [90.0, 90.0]
    await joins(manager)
    started_at = manager.now
    manager.now += 2.0
    await ends(manager, handed_out(manager)[0], started_at, manager.now)
    [first, _] = await tasks(manager)
    assert (first.state, first.wait_seconds) == (TaskState.DONE, 90.0)


# -- items -----------------------------------------------------------------------------------------


async def test_each_task_comes_with_its_item_while_the_job_runs_and_afterwards(
    manager: PlayedManager,
) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x", "{}")), count=3, items=ITEMS))
    assert [task.item for task in await tasks(manager, items=True)] == list(ITEMS)
    assert {task.item for task in await tasks(manager)} == {None}
    await manager.ask(ADA, rq.CancelJobs(jobs="1"))
    assert [task.item for task in await tasks(manager, items=True)] == list(ITEMS)
    assert [task.item for task in await tasks(manager, items=True, ids=[1])] == ["beta.csv"]


async def test_the_items_of_a_page_are_read_some_at_a_time(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(f"{n}.csv" for n in range(7))
    await submit(manager, JobSpec(program=Program(argv=("x", "{}")), count=7, items=names))
    await manager.ask(ADA, rq.CancelJobs(jobs="1"))
    reads: list[int] = []

    def three(job_id: int, index: int) -> asyncio.Future[ItemWindow | None]:
        reads.append(index)
        first = index - index % 3
        return at_hand(lambda: ItemWindow(first, names[first : first + 3], 7))

    monkeypatch.setattr(manager.store, "items", three)
    shown: list[str | None] = []
    for after in (-1, 2, 5):
        shown += [task.item for task in await tasks(manager, items=True, after=after, limit=3)]
    assert shown == list(names)
    assert reads == [0, 3, 6]
    assert [task.item for task in await tasks(manager, items=True)] == list(names)
    assert reads[3:] == [0, 3, 6]


async def test_a_long_item_is_cut_in_a_list_and_whole_alone(manager: PlayedManager) -> None:
    items = ("x" * LONGEST_ITEM, "y" * (LONGEST_ITEM + 1))
    await submit(manager, JobSpec(program=Program(argv=("x",)), count=2, items=items))
    assert [task.item for task in await tasks(manager, items=True)] == [
        "x" * LONGEST_COMMAND + "…", "y" * LONGEST_COMMAND + "…",
    ]  # fmt: skip
    assert [task.item for task in await tasks(manager, items=True, ids=[0])] == [items[0]]
    assert [task.item for task in await tasks(manager, items=True, ids=[1])] == [
        "y" * LONGEST_ITEM + "…"
    ]


async def test_a_job_without_items_has_none(manager: PlayedManager) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x", "{}")), count=2))
    assert [task.item for task in await tasks(manager, items=True)] == [None, None]


async def test_a_story_names_the_items_of_the_tasks_that_were_asked_about(
    manager: PlayedManager,
) -> None:
    await submit(manager, JobSpec(program=Program(argv=("x", "{}")), count=3, items=ITEMS))
    told = directions.answers.decode(await manager.ask(ADA, rq.TellStory(job="1", task_ids=[2])))
    assert isinstance(told, an.Story)
    assert told.items == {2: "gamma.csv"}
    told = directions.answers.decode(await manager.ask(ADA, rq.TellStory(job="1")))
    assert isinstance(told, an.Story)
    assert told.items == {}


@pytest.mark.parametrize("kind", [rq.ListTasks, rq.ListOutputs, rq.AllLogs])
async def test_a_page_that_begins_before_the_first_task_is_refused(
    manager: PlayedManager, kind: type[rq.ListTasks | rq.ListOutputs | rq.AllLogs]
) -> None:
    """The answer listed tasks that there are not."""
    await submit(manager, JobSpec(program=Program(argv=("x",)), count=3))
    answer = directions.answers.decode(await manager.ask(ADA, kind(job="1", after=-2)))
    assert isinstance(answer, an.Failed)
    assert "this is no request of the protocol" in answer.message
