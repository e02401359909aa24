"""Ended jobs are kept for a while, and not for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from managerkit import NOW, FarStore, PlayedManager, settled
from neighbourskit import on_its_own_clock
from store_samples import done, failed, job
from storekit import QuickStore

from kestrelctl.cli.manager.commands import parse_keep_number, parse_keep_time
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import Unreachable, UsageError
from kestrelctl.manager.options import KEEP_JOBS, KEEP_SECONDS, ManagerOptions
from kestrelctl.manager.retention import (
    LEAST_SECONDS,
    LOOK_SECONDS,
    MOST_AT_ONCE,
    Retention,
)
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions
from kestrelctl.protocol import requests as rq
from kestrelctl.store import writing

ADA = "ada@users.pool/1"
DAY = 86_400.0


async def ended(store: QuickStore, job_id: int, days_ago: float, **fields: object) -> None:
    owner = {
        "owner": "ada@users.pool",
        "spec": JobSpec(program=Program(argv=("x",))),
        "state": "done",
    }
    at = NOW - days_ago * DAY
    await store.commit([job(job_id, **{**owner, "ended_at": at, **fields}), done(0, job_id)])


def kept(manager: PlayedManager) -> list[int]:
    return manager.store.job_ids()


async def test_jobs_go_when_they_have_been_kept_for_long_enough(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    for job_id, days_ago in ((1, 91.0), (2, 89.0), (3, 200.0), (4, 0.0)):
        await ended(quick_store, job_id, days_ago)
    manager = PlayedManager(tmp_path, store=quick_store)
    await manager.ask(ADA, rq.SubmitJob(spec=JobSpec(program=Program(argv=("x",)))))
    retention = Retention(manager.service, 90 * DAY, None)
    assert await retention.look()
    await settled()
    assert kept(manager) == [2, 4, 5]
    assert manager.service.pool.totals.jobs_expired == 2
    assert not await retention.look()
    manager.now += DAY * 1.5
    await retention.look()
    await settled()
    assert kept(manager) == [4, 5]


async def test_of_too_many_jobs_those_go_that_ended_first(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    for job_id in range(1, 8):
        await ended(quick_store, job_id, float(job_id))
    manager = PlayedManager(tmp_path, store=quick_store)
    await Retention(manager.service, None, 3).look()
    await settled()
    assert kept(manager) == [1, 2, 3]


async def test_nothing_goes_if_all_is_to_be_kept(tmp_path: Path, quick_store: QuickStore) -> None:
    await ended(quick_store, 1, 10_000.0)
    manager = PlayedManager(tmp_path, store=quick_store)
    assert not await Retention(manager.service, None, None).look()
    await settled()
    assert kept(manager) == [1]


async def test_whoever_waits_for_a_job_has_a_minute_to_learn_how_it_ended(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    for job_id in (1, 2, 3):
        await ended(quick_store, job_id, (LEAST_SECONDS - job_id) / DAY)
    manager = PlayedManager(tmp_path, store=quick_store)
    retention = Retention(manager.service, 1e-9, 1)
    await retention.look()
    await settled()
    assert kept(manager) == [1, 2, 3]
    manager.now += LEAST_SECONDS
    await retention.look()
    await settled()
    assert kept(manager) == []


async def test_a_job_whose_owner_is_still_to_be_told_stays_and_keeps_no_other(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    await ended(quick_store, 1, 300.0, untold=True)
    await ended(quick_store, 2, 200.0)
    await ended(quick_store, 3, 1.0)
    manager = PlayedManager(tmp_path, store=quick_store)
    await Retention(manager.service, 90 * DAY, None).look()
    await settled()
    assert kept(manager) == [1, 3]


async def test_they_go_in_small_pieces(tmp_path: Path, quick_store: QuickStore) -> None:
    for job_id in range(1, 2 * MOST_AT_ONCE + 8):
        await ended(quick_store, job_id, 100.0)
    manager = PlayedManager(tmp_path, store=quick_store)
    retention = Retention(manager.service, 90 * DAY, None)
    left = []
    while await retention.look():
        await settled()
        left.append(len(kept(manager)))
    assert left == [MOST_AT_ONCE + 7, 7, 0]


async def test_a_manager_that_is_always_started_anew_forgets_as_many(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    """Nothing has to come to its time while one manager lives."""
    for job_id in range(1, 4):
        await ended(quick_store, job_id, 89.0 + job_id)
    for _ in range(2):
        manager = PlayedManager(tmp_path, store=quick_store)
        run = asyncio.ensure_future(Retention(manager.service, 90 * DAY, None).run())
        await settled()
        run.cancel()
    assert kept(manager) == [1]


async def test_a_job_that_was_brought_back_stays(tmp_path: Path, quick_store: QuickStore) -> None:
    await ended(quick_store, 1, 100.0, state="failed")
    await quick_store.commit([failed(0, 1)])
    manager = PlayedManager(tmp_path, store=quick_store)
    answer = directions.answers.decode(await manager.ask(ADA, rq.RetryJobs(jobs="1")))
    assert isinstance(answer, an.Changed)
    await Retention(manager.service, 90 * DAY, 0).look()
    await settled()
    assert kept(manager) == [1]


async def test_who_asks_for_a_forgotten_job_is_told_so(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    await ended(quick_store, 1, 100.0)
    manager = PlayedManager(tmp_path, store=quick_store)
    await Retention(manager.service, 90 * DAY, None).look()
    await settled()
    answer = directions.answers.decode(await manager.ask(ADA, rq.ListJobs(jobs="1")))
    assert isinstance(answer, an.Failed)
    assert answer.message == "there is no job 1 any more"
    assert "has ended and was forgotten" in answer.cause
    never = directions.answers.decode(await manager.ask(ADA, rq.ListJobs(jobs="2")))
    assert isinstance(never, an.Failed)
    assert never.message == "there is no job 2"


async def test_rows_of_forgotten_jobs_go_though_nothing_else_happens(
    tmp_path: Path, quick_store: QuickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look deletes some; the room that they took is used again."""
    monkeypatch.setattr(writing, "FORGET_ROWS", 500)
    for job_id in (1, 2):
        record = job(job_id, state="done", ended_at=NOW - 100 * DAY)
        await quick_store.commit([record, *(done(index, job_id) for index in range(2000))])
    size = quick_store.statistics().bytes_on_disk
    manager = PlayedManager(tmp_path, store=quick_store)
    retention = Retention(manager.service, 90 * DAY, None)
    looks = 0
    while await retention.look():
        looks += 1
        while not manager.service.commits.idle:
            await asyncio.sleep(0)
    assert 8 <= looks <= 12
    assert not quick_store.has_forgotten()
    assert quick_store.statistics().free_bytes > 0
    rows = [done(index, 3) for index in range(2000)]
    await quick_store.commit(
        [job(3, spec=JobSpec(program=Program(argv=("x",)), count=2000)), *rows]
    )
    quick_store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert quick_store.statistics().bytes_on_disk < 1.2 * size
    await manager.service.close()


async def test_a_slice_ends_in_time_however_slow_the_disk_is(
    tmp_path: Path, quick_store: QuickStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "FORGET_SECONDS", 0.0)
    rows = (done(index, 1) for index in range(2000))
    await quick_store.commit([job(1, state="done", ended_at=1.0), *rows])
    await quick_store.commit([writing.JobForgotten(1)])
    [left] = quick_store._reader.execute("SELECT count(*) FROM tasks").fetchone()
    assert left == 2000 - writing.FORGET_SLICE_ROWS


def test_the_defaults_are_those_of_the_documents() -> None:
    options = ManagerOptions(domain="pool", secret_file=Path("s"), data_dir=Path("d"))
    assert (options.keep_seconds, options.keep_jobs) == (90 * DAY, 100_000)
    assert (parse_keep_time("90d"), parse_keep_number("100000")) == (KEEP_SECONDS, KEEP_JOBS)


def test_to_keep_nothing_is_refused_and_to_keep_all_is_said_in_a_word() -> None:
    assert parse_keep_time("forever") is None
    assert parse_keep_number("all") is None
    for wrong in ("0", "0d", "59", "-1d", "nan", "never"):
        with pytest.raises(UsageError, match=r"kept|too short") as refused:
            parse_keep_time(wrong)
        assert "forever" in (refused.value.hint or "")
    for wrong in ("0", "-1", "1.5", "9" * 30, "none"):
        with pytest.raises(UsageError, match="no number of jobs"):
            parse_keep_number(wrong)


@on_its_own_clock
async def test_it_goes_on_when_the_store_is_back(tmp_path: Path, quick_store: QuickStore) -> None:
    await ended(quick_store, 1, days_ago=91.0)
    store = FarStore(quick_store)
    manager = PlayedManager(tmp_path, store=store)
    store.trouble = Unreachable("the database does not answer")
    running = asyncio.ensure_future(Retention(manager.service, 90 * DAY, None).run())
    await asyncio.sleep(3 * LOOK_SECONDS)
    assert kept(manager) == [1]
    store.trouble = None
    await asyncio.sleep(2 * LOOK_SECONDS)
    assert kept(manager) == []
    running.cancel()
