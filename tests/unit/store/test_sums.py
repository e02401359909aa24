"""What attempts have used, as a store adds it up."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_samples import cancelled, job, lost, result, waiting

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobForgotten, TaskRecord
from kestrelctl.errors import StoreFull
from kestrelctl.store import sums
from kestrelctl.store.port import Store
from kestrelctl.store.sqlite import migrations
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.store import SqliteStore
from kestrelctl.store.sums import DAY_SECONDS, Used, day_of

SUBMITTED_AT = job().submitted_at
ADA, BOB = "ada@pool.internal", "bob@pool.internal"


class Days:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.at = 20_000.0 * DAY_SECONDS

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def days() -> Days:
    return Days()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, days: Days) -> Iterator[Store]:
    """An open, empty store, which does not wait for the disk."""
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")
    store = SqliteStore(tmp_path / "data", days)
    store.open()
    yield store
    store.close()


def ended(
    index: int, job_id: int = 1, state: TaskState = TaskState.DONE, **took: Any
) -> TaskRecord:
    return TaskRecord(job_id, index, state, 0, 0, "w1", result(index, job_id, **took))


async def test_a_job_is_charged_for_every_attempt_that_was_reported(store: Store) -> None:
    """One that failed and ran again has used a machine too; what has no result has no figures."""
    first = ended(0, state=TaskState.WAITING, cpu_seconds=1.0, wall_seconds=2.0, peak_bytes=10)
    await store.commit([job(1), job(2), first])
    again = ended(0, started_at=SUBMITTED_AT + 8, cpu_seconds=0.5, wall_seconds=4.0, peak_bytes=30)
    other = ended(1, started_at=SUBMITTED_AT + 2, cpu_seconds=0.25, wall_seconds=1.0, peak_bytes=2)
    await store.commit([again, other, lost(2), cancelled(3), waiting(4)])
    assert store.used([1, 2, 3]) == {
        1: Used(
            attempts=3,
            tasks=2,
            cpu_seconds=1.75,
            wall_seconds=7.0,
            wait_seconds=10.0,
            byte_seconds=2.0 * 10 + 4.0 * 30 + 1.0 * 2,
            longest_wait_seconds=8.0,
            longest_wall_seconds=4.0,
            longest_cpu_seconds=1.0,
            peak_bytes=30,
        ),
        2: Used(),
    }


async def test_owners_are_charged_for_all_their_jobs_by_the_day(store: Store, days: Days) -> None:
    """What they have used stays when the jobs are forgotten, and when the manager starts anew."""
    await store.commit([job(1, owner=ADA), job(2, owner=BOB), job(3, owner=ADA)])
    await store.commit([ended(0, 1, wall_seconds=1.0), ended(0, 2, wall_seconds=10.0)])
    first_day = day_of(days.at)
    days.at += DAY_SECONDS
    await store.commit([ended(1, 1, wall_seconds=2.0), ended(0, 3, wall_seconds=4.0)])
    await store.commit([JobForgotten(1)])
    for _ in range(2):
        walls = {who: used.wall_seconds for who, used in store.used_by_owner(first_day).items()}
        assert walls == {ADA: 7.0, BOB: 10.0}
        assert store.used_by_owner(first_day + 1)[ADA].attempts == 2
        assert list(store.used_by_owner(first_day + 1)) == [ADA]
        assert list(store.used_by_owner(first_day, BOB)) == [BOB]
        assert store.used_by_owner(first_day + 2) == {}
        assert store.used([1]) == {}
        store.close()
        store.open()


async def test_a_clock_that_is_behind_makes_no_wait_negative(store: Store) -> None:
    await store.commit([job(1), ended(0, started_at=SUBMITTED_AT - 3600.0)])
    assert store.used([1])[1].wait_seconds == 0.0


async def test_nothing_is_added_up_twice_when_a_commit_is_tried_again(store: Any) -> None:
    await store.commit([job(1)])
    batch = [ended(index, wall_seconds=1.0, stdout=b"x" * 4000) for index in range(100)]
    [pages] = store._writer.execute("PRAGMA page_count").fetchone()
    store._writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreFull):
        await store.commit(batch)
    store._writer.execute("PRAGMA max_page_count = 1000000")
    assert store.used([1]) == {1: Used()}
    await store.commit(batch)
    assert store.used([1])[1].wall_seconds == 100.0


async def test_percentiles_of_a_job_are_those_of_its_ended_tasks(store: Store) -> None:
    rows = [
        ended(
            index,
            started_at=SUBMITTED_AT + index,
            wall_seconds=index / 10,
            cpu_seconds=index / 100,
            peak_bytes=index,
        )
        for index in range(1000)
    ]
    random.Random(1).shuffle(rows)
    await store.commit([job(1), *rows, ended(1000, state=TaskState.WAITING, wall_seconds=99.0)])
    found = store.spread(1)
    assert (found.tasks, found.whole) == (1000, True)
    assert found.wait_seconds == (500.0, 900.0, 990.0)
    assert found.wall_seconds == (50.0, 90.0, 99.0)
    assert found.cpu_seconds == (5.0, 9.0, 9.9)
    assert found.peak_bytes == (500, 900, 990)
    assert store.spread(2).tasks == 0


async def test_memory_that_is_not_known_counts_in_no_percentile(store: Store) -> None:
    unknown = [ended(index, wall_seconds=2.0) for index in range(90)]
    known = [ended(index, wall_seconds=2.0, peak_bytes=index) for index in range(91, 101)]
    await store.commit([job(1), *unknown, *known])
    found = store.spread(1)
    assert (found.tasks, found.memory_tasks) == (100, 10)
    assert found.peak_bytes == (96, 100, 100)
    assert found.wall_seconds == (2.0, 2.0, 2.0)
    await store.commit([job(2), *(ended(index, job_id=2) for index in range(3))])
    found = store.spread(2)
    assert (found.tasks, found.memory_tasks, found.peak_bytes) == (3, 0, ())


async def test_of_a_large_job_a_sample_is_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "MOST_SAMPLED", 400)
    rows = [ended(index, wall_seconds=float(index % 100)) for index in range(10_000)]
    await store.commit([job(1), *rows])
    found = store.spread(1)
    assert (found.tasks, found.whole) == (400, False)
    # Tasks that are alike at a regular distance: a sample at such a distance would see only one.
    assert found.wall_seconds == pytest.approx((50.0, 90.0, 99.0), abs=8.0)
    assert store.spread(1) == found


def test_a_store_of_an_earlier_version_adds_up_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each task the last attempt; users begin with the upgrade."""
    path = tmp_path / sqlite.DATABASE
    path.touch(mode=0o600)
    with monkeypatch.context() as patch, closing(sqlite3.connect(path)) as old:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:10])
        migrations.migrate(old, path)
        old.executemany(
            "INSERT INTO jobs (job_id, owner, submitted_at, state, cancelling, cursor, done,"
            " failed, lost, cancelled) VALUES (?, ?, ?, 'done', 0, 2, 2, 0, 0, 0)",
            [(1, ADA, 1000.0), (2, ADA, 2000.0)],
        )
        old.executemany(
            "INSERT INTO tasks (job_id, idx, state, failures, losses, worker, number, started_at,"
            " wall_seconds, cpu_seconds, peak_bytes) VALUES (1, ?, ?, 0, 0, 'w', ?, ?, ?, ?, ?)",
            [
                (0, 1, 7, 1005.0, 2.0, 1.0, 10),
                (1, 0, 8, 1001.0, 1.0, -3.0, 20),
                (2, 3, None, None, None, None, None),
            ],
        )
        old.commit()
    store = SqliteStore(tmp_path, Days())
    store.open()
    assert store.used([1, 2]) == {
        1: Used(
            attempts=2,
            tasks=1,
            cpu_seconds=1.0,
            wall_seconds=3.0,
            wait_seconds=5.0,
            byte_seconds=40.0,
            longest_wait_seconds=5.0,
            longest_wall_seconds=2.0,
            longest_cpu_seconds=1.0,
            peak_bytes=20,
        ),
        2: Used(),
    }
    assert store.used_by_owner(0) == {}
    store.close()


@st.composite
def histories(draw: st.DrawFn) -> list[list[TaskRecord]]:
    """Batches of results of three jobs; each attempt has one."""
    number = 0
    batches: list[list[TaskRecord]] = []
    for size in draw(st.lists(st.integers(0, 6), max_size=6)):
        batches.append([])
        for _ in range(size):
            number += 1
            job_id, index = draw(st.integers(1, 3)), draw(st.integers(0, 3))
            state = draw(st.sampled_from([TaskState.WAITING, TaskState.DONE, TaskState.FAILED]))
            took = draw(st.none() | st.tuples(st.integers(0, 99), st.integers(0, 99)))
            found = None
            if took is not None:
                seconds, size_bytes = took
                found = result(
                    index,
                    job_id,
                    number=number,
                    wall_seconds=float(seconds),
                    cpu_seconds=seconds / 2,
                    peak_bytes=size_bytes,
                    started_at=SUBMITTED_AT + seconds,
                )
            batches[-1].append(TaskRecord(job_id, index, state, 0, 0, "w1", found))
    return batches


@settings(max_examples=40, deadline=None)
@given(batches=histories(), restarts=st.sets(st.integers(0, 5)), fails=st.sets(st.integers(0, 5)))
def test_the_sums_of_users_are_those_of_their_attempts(
    batches: list[list[TaskRecord]], restarts: set[int], fails: set[int]
) -> None:
    """However they come together, and whatever is tried again or started anew in between."""
    with tempfile.TemporaryDirectory() as data_dir, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "SYNCHRONOUS", "OFF")
        asyncio.run(_hold_against_each_other(Path(data_dir), batches, restarts, fails))


async def _hold_against_each_other(
    data_dir: Path, batches: list[list[TaskRecord]], restarts: set[int], fails: set[int]
) -> None:
    owners = {1: ADA, 2: BOB, 3: ADA}
    days = Days()
    store = SqliteStore(data_dir, days)
    store.open()
    spec = JobSpec(program=Program(argv=("true",)), count=4)
    await store.commit([job(job_id, owner=who, spec=spec) for job_id, who in owners.items()])
    for place, batch in enumerate(batches):
        if place in fails:
            store._writer.execute("BEGIN IMMEDIATE")
            sqlite.write(store._writer, batch, days.at)
            store._writer.rollback()
        await store.commit(batch)
        if place in restarts:
            days.at += DAY_SECONDS
            store.close()
            store.open()
    attempts = [r for batch in batches for r in batch if r.result is not None]
    found = store.used_by_owner(0)
    for owner in (ADA, BOB):
        of_owner = [r.result for r in attempts if owners[r.job_id] == owner]
        used = found.get(owner, Used())
        assert used.attempts == len(of_owner)
        assert used.wall_seconds == sum(r.wall_seconds for r in of_owner if r)
        assert used.cpu_seconds == sum(r.cpu_seconds for r in of_owner if r)
        assert used.byte_seconds == sum(r.wall_seconds * r.peak_bytes for r in of_owner if r)
        of_jobs = [u for job_id, u in store.used([1, 2, 3]).items() if owners[job_id] == owner]
        together = Used()
        for one in of_jobs:
            together = together.plus(one)
        assert together == used
    store.close()


async def test_ended_jobs_are_found_in_the_order_of_their_ends(store: Store) -> None:
    ends = {1: 30.0, 2: 10.0, 3: None, 4: 20.0, 5: 5.0}
    for job_id, ended_at in ends.items():
        state = "active" if ended_at is None else "done"
        await store.commit([job(job_id, state=state, ended_at=ended_at, untold=job_id == 5)])
    assert store.ended_before(25.0, limit=9) == [2, 4]
    assert store.ended_before(99.0, limit=2) == [2, 4]
    assert store.ended_before(99.0, keep=2, limit=9) == [2, 4]
    assert store.ended_before(99.0, keep=3, limit=9) == [2]
    assert store.ended_before(99.0, keep=9, limit=9) == []
    assert [found.job_id for found in store.jobs(ended_since=20.0)] == [1, 4]
    assert store.job_ids(ended_since=20.0) == [1, 4]


async def test_a_job_of_which_mail_is_to_be_sent_is_kept(store: Store) -> None:
    for job_id in (1, 2):
        await store.commit([job(job_id, state="done", ended_at=5.0, unmailed=job_id == 1)])
    assert store.ended_before(99.0, limit=9) == [2]
