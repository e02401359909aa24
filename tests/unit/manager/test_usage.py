"""What the manager says of what jobs and users took, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import NOW, PlayedManager
from store_samples import job, result
from storekit import QuickStore

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import TaskRecord
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.use import Use
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq

ADA, ROOT, W1 = "ada@users.pool/1", "root@users.pool/1", "w1@workers.pool/1"


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    """Ada's job 1 has ended an hour ago, with two tasks; Bob's job 2 two days ago, with one."""
    for job_id, owner, tasks, ago in ((1, "ada", 2, 3600.0), (2, "bob", 1, 2 * 86400.0)):
        quick_store.at = NOW - ago
        at = NOW - ago - 10.0
        took = {"started_at": at + 1, "wall_seconds": 5.0, "peak_bytes": 7}
        rows = [
            TaskRecord(job_id, i, TaskState.DONE, 0, 0, "w1", result(i, job_id, **took))
            for i in range(tasks)
        ]
        who = f"{owner}@users.pool"
        record = job(job_id, owner=who, submitted_at=at, state="done", ended_at=NOW - ago)
        await quick_store.commit([record, *rows])
    return PlayedManager(tmp_path, store=quick_store)


async def users(manager: PlayedManager, whom: str, **asked: object) -> dict[str, float]:
    request = rq.UserUsage(**{"since": NOW - 7 * 86400.0} | asked)  # type: ignore[arg-type]
    found = directions.answers.decode(await manager.ask(whom, request))
    assert isinstance(found, an.UsedByUsers), found
    return {line.user: line.wall_seconds for line in found.users}


async def test_an_admin_sees_all_users_and_others_themselves(manager: PlayedManager) -> None:
    both = {"ada@users.pool": 10.0, "bob@users.pool": 5.0}
    assert await users(manager, ROOT) == both
    assert await users(manager, ROOT, user="bob") == {"bob@users.pool": 5.0}
    assert await users(manager, ROOT, user="carl") == {}
    assert await users(manager, ADA) == {"ada@users.pool": 10.0}
    assert await users(manager, ADA, user="ada") == {"ada@users.pool": 10.0}
    refused = directions.answers.decode(await manager.ask(ADA, rq.UserUsage(user="bob", since=0.0)))
    assert isinstance(refused, an.Failed)
    assert refused.code == "not-allowed"


async def test_whole_days_count(manager: PlayedManager) -> None:
    assert await users(manager, ROOT, since=NOW - 86400.0) == {"ada@users.pool": 10.0}
    request = rq.UserUsage(since=NOW - 86400.0)
    found = directions.answers.decode(await manager.ask(ROOT, request))
    assert isinstance(found, an.UsedByUsers)
    assert found.since == (NOW - 86400.0) // 86400 * 86400


async def test_a_time_to_come_is_refused(manager: PlayedManager) -> None:
    found = directions.answers.decode(await manager.ask(ROOT, rq.UserUsage(since=NOW + 60.0)))
    assert isinstance(found, an.Failed)
    assert "60 seconds ahead" in found.message


async def test_users_come_page_by_page(
    manager: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "MAX_PAYLOAD_BYTES", 1200)
    first = directions.answers.decode(await manager.ask(ROOT, rq.UserUsage(since=0.0)))
    assert isinstance(first, an.UsedByUsers)
    assert first.after == "ada@users.pool"
    assert await users(manager, ROOT, after=first.after) == {"bob@users.pool": 5.0}


async def jobs(manager: PlayedManager, whom: str, **asked: object) -> list[an.JobView]:
    request = rq.ListJobs(**asked)  # type: ignore[arg-type]
    found = directions.answers.decode(await manager.ask(whom, request))
    assert isinstance(found, an.Jobs), found
    return found.jobs


async def test_history_has_what_jobs_took_as_far_as_they_are_yours(manager: PlayedManager) -> None:
    mine, theirs = await jobs(manager, ADA, used=True, jobs="1-2")
    assert (mine.wall_seconds, mine.attempts, mine.memory_byte_seconds) == (10.0, 2, 70.0)
    assert theirs.wall_seconds is None
    assert [view.wall_seconds for view in await jobs(manager, ROOT, used=True)] == [10.0, 5.0]
    late = await jobs(manager, ROOT, used=True, ended_since=NOW - 86400.0)
    assert [view.job_id for view in late] == [1]


async def test_info_has_percentiles(manager: PlayedManager) -> None:
    [view] = await jobs(manager, ADA, jobs="1", details=True)
    assert view.spread["wall_seconds"] == [5.0, 5.0, 5.0, 5.0]
    assert view.spread["wait_seconds"] == [1.0, 1.0, 1.0, 1.0]
    assert (view.spread["peak_bytes"], view.spread_memory_tasks) == ([7, 7, 7, 7], 2)
    assert (view.spread_tasks, view.sampled) == (2, False)


async def test_memory_that_nobody_knows_is_told_as_unknown(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    quick_store.at = NOW
    took = {"started_at": NOW - 9.0, "wall_seconds": 5.0}
    row = TaskRecord(1, 0, TaskState.DONE, 0, 0, "w1", result(0, 1, **took))
    ended = job(1, owner="ada@users.pool", submitted_at=NOW - 10.0, state="done", ended_at=NOW)
    await quick_store.commit([ended, row])
    manager = PlayedManager(tmp_path, store=quick_store)
    [view] = await jobs(manager, ADA, jobs="1", details=True)
    assert (view.attempts, view.peak_bytes, view.memory_byte_seconds) == (1, None, None)
    assert "peak_bytes" not in view.spread
    assert (view.spread_tasks, view.spread_memory_tasks) == (1, 0)
    listed = directions.answers.decode(await manager.ask(ADA, rq.ListTasks(job="1")))
    assert isinstance(listed, an.Tasks)
    assert listed.tasks[0].peak_bytes is None
    request = rq.UserUsage(since=NOW - 86400.0)
    used = directions.answers.decode(await manager.ask(ADA, request))
    assert isinstance(used, an.UsedByUsers)
    assert (used.users[0].peak_bytes, used.users[0].memory_byte_seconds) == (None, None)


async def at_work(directory: Path, store: QuickStore) -> tuple[PlayedManager, int]:
    """Ada's job 1 runs at w1, which has said what its task uses."""
    manager = PlayedManager(directory, store=store)
    await manager.work(W1, workers.Hello(version=workers.VERSION, incarnation="x", ad=WorkerAd()))
    await manager.ask(ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("x",)), first=5)))
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == W1]
    [run] = [message for message in runs if isinstance(message, workers.Run)]
    number = run.spans[0][0]
    manager.now += 400.0
    await manager.work(W1, workers.RunningUsage(uses=[Use(number, 399.0, 100.0, 1 << 20)]))
    manager.now += 10.0
    return manager, number


async def test_what_a_running_task_uses_is_shown_with_its_job_itself_and_its_worker(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    manager, _ = await at_work(tmp_path, quick_store)
    [view] = await jobs(manager, ADA, jobs="1", details=True)
    use = an.RunningUse(
        tasks=1, wall_seconds=399.0, cpu_seconds=100.0, memory_bytes=1 << 20, since=NOW + 400.0
    )
    assert view.running_use == use
    tasks = directions.answers.decode(await manager.ask(ADA, rq.ListTasks(job="1")))
    assert isinstance(tasks, an.Tasks)
    [task] = tasks.tasks
    assert (task.wall_seconds, task.cpu_seconds, task.memory_bytes) == (409.0, 100.0, 1 << 20)
    assert task.said_at == NOW + 400.0
    found = directions.answers.decode(await manager.ask(ADA, rq.ListWorkers(names=["w1"])))
    assert isinstance(found, an.Workers)
    [running] = found.workers[0].runs
    assert (running.job_id, running.task_id, running.cpu_seconds) == (1, 5, 100.0)
    assert running.wall_seconds == 409.0, "until now"
    found = directions.answers.decode(await manager.ask(ADA, rq.ListWorkers()))
    assert isinstance(found, an.Workers)
    assert found.workers[0].runs == []


async def test_after_a_restart_it_is_unknown_until_the_worker_speaks(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    manager, number = await at_work(tmp_path, quick_store)
    again = PlayedManager(tmp_path, store=quick_store)
    hello = workers.Hello(
        version=workers.VERSION,
        incarnation="x",
        ad=WorkerAd(),
        holds=[(number, 1, 0, 0)],
        claims=[{"cpus": 1000}],
        seals=[(*span[:4], span[5]) for run in _runs(manager) for span in run.spans],
    )
    await again.work(W1, hello)
    [view] = await jobs(again, ADA, jobs="1", details=True)
    assert (view.running, view.running_use) == (1, None)
    await again.work(W1, workers.RunningUsage(uses=[Use(number, 500.0, 100.0, 1 << 20)]))
    [view] = await jobs(again, ADA, jobs="1", details=True)
    assert view.running_use is not None


def _runs(manager: PlayedManager) -> list[workers.Run]:
    found = [directions.to_worker.decode(text) for to, text in manager.sent if to == W1]
    return [message for message in found if isinstance(message, workers.Run)]
