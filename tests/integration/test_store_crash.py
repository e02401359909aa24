"""A manager that is killed in the middle of its commits: what it acknowledged is there, whole."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from postgresqlkit import PostgresqlServer, running_server

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import (
    Happening,
    JobForgotten,
    JobRecord,
    Progress,
    Record,
    Snapshot,
    TaskRecord,
)
from kestrelctl.core.model.result import Result
from kestrelctl.errors import AnotherLeads
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite.store import SqliteStore

ROUNDS = 25
#: Tasks in a batch. Job n + 1 is batch n; the cursor of job 1 says how many batches there are.
SIZE = 200


def batch(n: int) -> list[Record]:
    """Batch n: a job, its tasks, all done, its story; a step of job 1; an old job forgotten."""
    job_id = n + 1
    spec = JobSpec(program=Program(argv=("true",)), count=SIZE)
    records: list[Record] = [
        JobRecord(job_id=job_id, owner="ada", spec=spec, submitted_at=float(n), cursor=SIZE)
    ]
    records += [
        TaskRecord(job_id, index, TaskState.DONE, 0, 0, "w", Result(n, job_id, index, 0, 1.0, 0.5))
        for index in range(SIZE)
    ]
    records += [Happening(job_id=job_id, index=i, at=float(n), what="lost") for i in range(-1, 40)]
    records.append(Progress(1, n))
    if n > 20:
        records.append(JobForgotten(job_id - 10))
    return records


def store_in(data_dir: Path, conninfo: str) -> SqliteStore | PostgresqlStore:
    """The store in PostgreSQL if it is said how to connect, otherwise SQLite."""
    return PostgresqlStore(data_dir, conninfo, "pool") if conninfo else SqliteStore(data_dir)


def opened(store: SqliteStore | PostgresqlStore) -> Snapshot:
    """Opens a store once the database has noticed that the last process that led has gone."""
    give_up = time.monotonic() + 20
    while True:
        try:
            return store.open()
        except AnotherLeads:
            if time.monotonic() > give_up:
                raise
            time.sleep(0.01)


async def commit_for_ever(data_dir: Path, conninfo: str) -> None:
    """The life of the process that is killed: says each batch's number once it is durable."""
    store = store_in(data_dir, conninfo)
    snapshot = opened(store)
    if snapshot.next_job_id == 1:
        spec = JobSpec(program=Program(argv=("true",)), count=1_000_000)
        await store.commit([JobRecord(job_id=1, owner="ada", spec=spec, submitted_at=0.0)])
    n = store.jobs(ids=[1])[0].cursor
    print("open", n, flush=True)
    while True:
        n += 1
        await store.commit(batch(n))
        print("durable", n, flush=True)


def run_and_kill(data_dir: Path, conninfo: str, batches: int, delay_seconds: float) -> int:
    """Kills the process after so many batches and a bit; returns the last it said to be durable."""
    process = subprocess.Popen(
        [sys.executable, __file__, str(data_dir), conninfo],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    with process.stdout as said:
        lines = [said.readline() for _ in range(batches + 1)]
        time.sleep(delay_seconds)
        os.kill(process.pid, signal.SIGKILL)
        lines += said.readlines()
    assert process.wait() == -signal.SIGKILL
    whole = [line.split() for line in lines if line.endswith("\n")]
    assert [word for word, _ in whole] == ["open"] + ["durable"] * (len(whole) - 1)
    return int(whole[-1][1])


def check(store: SqliteStore | PostgresqlStore, durable: int) -> int:
    """Finds each batch up to the last durable one whole, and at most one more, whole too."""
    found = store.jobs(ids=[1])[0].cursor
    assert found in (durable, durable + 1)
    jobs = {job.job_id: job for job in store.jobs(limit=10 * found + 10)}
    kept = {n + 1 for n in range(1, found + 1) if n + 10 > found or n <= 10}
    assert set(jobs) == kept | {1}
    for job_id in kept:
        assert store.tasks(job_id) == [r for r in batch(job_id - 1) if isinstance(r, TaskRecord)]
        assert store.happenings(job_id) == [
            r for r in batch(job_id - 1) if isinstance(r, Happening)
        ]
    assert store.tasks(found + 2) == []
    # Also none that nobody can ask for, because their job is not there.
    of_whom = store._reader.execute("SELECT DISTINCT job_id FROM happenings").fetchall()
    assert {job_id for (job_id,) in of_whom} == kept
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """A database that waits for its disk."""
    with running_server(fsync=True) as found:
        yield found


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_what_was_acknowledged_before_a_kill_is_there(
    tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    conninfo = ""
    if where == "postgresql":
        conninfo = request.getfixturevalue("server").new_database()
    chance = random.Random(2009)
    found = 0
    for round_number in range(ROUNDS):
        batches, delay = chance.randrange(12), chance.random() * 0.005
        durable = run_and_kill(tmp_path, conninfo, batches, delay)
        assert durable >= found + batches
        store = store_in(tmp_path, conninfo)
        snapshot = opened(store)
        assert snapshot.epoch == 2 * round_number + 2
        assert not any(job.unfinished for job in snapshot.jobs[1:])
        found = check(store, durable)
        assert snapshot.next_job_id == found + 2
        store.close()


if __name__ == "__main__":
    asyncio.run(commit_for_ever(Path(sys.argv[1]), sys.argv[2]))
