"""The machine's clock is set while a manager runs: what is shown follows it, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobkit import job_spec
from managerkit import NOW, PlayedManager
from storekit import QuickStore

from kestrelctl import clock
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.wall_clock import TOLERANCE_SECONDS
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq

ADA = "ada@users.pool/1"
WORKER = "w1@workers.pool/1"
DAY_SECONDS = 86_400.0
TEN_DAYS = 10 * DAY_SECONDS
EITHER_WAY = pytest.mark.parametrize("ahead_seconds", [TEN_DAYS, -TEN_DAYS])


@pytest.fixture
async def manager(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    return PlayedManager(tmp_path, store=quick_store)


def clock_is_set(manager: PlayedManager, ahead_seconds: float) -> None:
    manager.wall_ahead_seconds = ahead_seconds
    manager.service.look_at_clock()


async def submit(manager: PlayedManager, **spec: float) -> int:
    found = await manager.ask(ADA, rq.SubmitJob(spec=job_spec(**spec)))
    answer = directions.answers.decode(found)
    assert isinstance(answer, an.Submitted), answer
    return answer.job_id


async def jobs(manager: PlayedManager, ended_since: float | None = None) -> list[an.JobView]:
    request = rq.ListJobs(details=True, ended_since=ended_since)
    answer = directions.answers.decode(await manager.ask(ADA, request))
    assert isinstance(answer, an.Jobs), answer
    return answer.jobs


@EITHER_WAY
async def test_moments_are_shown_by_the_clock_as_it_is_set_now(
    manager: PlayedManager, ahead_seconds: float
) -> None:
    await submit(manager, deadline_seconds=60.0)
    manager.now += 5.0
    clock_is_set(manager, ahead_seconds)
    [view] = await jobs(manager)
    assert view.submitted_at == NOW + ahead_seconds
    assert view.deadline_at == NOW + ahead_seconds + 60.0
    clock_is_set(manager, 0.0)
    [view] = await jobs(manager)
    assert (view.submitted_at, view.deadline_at) == (NOW, NOW + 60.0)


@EITHER_WAY
async def test_a_moment_that_was_named_is_shown_as_it_was_named(
    manager: PlayedManager, ahead_seconds: float
) -> None:
    await submit(manager, deadline_at=NOW + 2 * TEN_DAYS)
    clock_is_set(manager, ahead_seconds)
    [view] = await jobs(manager)
    assert view.deadline_at == NOW + 2 * TEN_DAYS


async def test_a_deadline_is_kept_by_the_clock_as_it_is_set_now(manager: PlayedManager) -> None:
    await submit(manager, deadline_at=NOW + TEN_DAYS)
    clock_is_set(manager, TEN_DAYS + 1.0)
    await manager.settled()
    [view] = await jobs(manager)
    assert (view.state, view.stopped_by) == ("cancelled", "deadline")


async def test_what_an_earlier_process_has_dated_is_shown_as_it_was_dated(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    old = JobRecord(
        job_id=1,
        owner="ada@users.pool",
        spec=JobSpec(program=Program(argv=("x",))),
        submitted_at=NOW - 9.0,
    )
    await quick_store.commit([old])
    manager = PlayedManager(tmp_path, store=quick_store)
    clock_is_set(manager, TEN_DAYS)
    [view] = await jobs(manager)
    assert view.submitted_at == NOW - 9.0


@EITHER_WAY
async def test_what_ended_since_a_moment_is_found_by_the_clock_as_it_is_set_now(
    manager: PlayedManager, ahead_seconds: float
) -> None:
    job = await submit(manager)
    manager.now += 60.0
    clock_is_set(manager, ahead_seconds)
    await manager.ask(ADA, rq.CancelJobs(jobs=str(job)))
    await manager.settled()
    moment = manager.now + ahead_seconds
    assert [view.ended_at for view in await jobs(manager, moment - 1.0)] == [moment]
    assert await jobs(manager, moment + 1.0) == []
    assert len(await jobs(manager, moment - 2 * TEN_DAYS)) == 1


@EITHER_WAY
async def test_the_start_of_a_task_is_shown_where_it_was(
    manager: PlayedManager, ahead_seconds: float
) -> None:
    """Its worker's machine has its clock set alike."""
    job = await submit(manager)
    clock_is_set(manager, ahead_seconds)
    hello = workers.Hello(
        version=workers.VERSION,
        incarnation="one",
        greeting=1,
        at=manager.now,
        ad=WorkerAd(),
        holds=[],
    )
    await manager.work(WORKER, hello)
    manager.now += 30.0
    run = next(
        message
        for to, text in manager.sent
        if to == WORKER and isinstance(message := directions.to_worker.decode(text), workers.Run)
    )
    number = run.spans[0][0]
    started_at = manager.now - 20.0 + ahead_seconds
    result = Result(number, job, 0, Outcome.DONE, started_at, 10.0)
    await manager.work(WORKER, workers.Report(results=[result], seals=[]))
    answer = directions.answers.decode(await manager.ask(ADA, rq.ListTasks(job=str(job))))
    assert isinstance(answer, an.Tasks), answer
    assert [task.started_at for task in answer.tasks] == [started_at]


async def test_what_a_clock_is_off_by_itself_is_nobody_s_doing(manager: PlayedManager) -> None:
    await submit(manager)
    clock_is_set(manager, TOLERANCE_SECONDS / 2)
    [view] = await jobs(manager)
    assert view.submitted_at == NOW


@EITHER_WAY
def test_what_was_used_a_while_ago_is_no_older_however_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    """As a file says that was used before the clock was set, and one that was used since."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    monkeypatch.setattr(clock, "wall", lambda: NOW + ahead_seconds)
    for used_at in (NOW - 60.0, NOW + ahead_seconds - 60.0):
        assert max(0.0, clock.unused_seconds(used_at)) in (0.0, 60.0)


@EITHER_WAY
def test_what_must_not_last_too_long_is_told_by_no_clock_that_is_set(
    monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    """As how long a token lets a machine join."""
    before = clock.awake_or_asleep()
    real = clock.time.time()
    monkeypatch.setattr(clock.time, "time", lambda: real + ahead_seconds)
    assert abs(clock.awake_or_asleep() - before) < 3600.0
    assert abs(clock.now() - before) < 3600.0
