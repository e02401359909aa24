"""A process that commits batches to a store until it is killed."""

from __future__ import annotations

import asyncio
import time
from multiprocessing.connection import Connection
from pathlib import Path

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


async def _commit_for_ever(data_dir: Path, conninfo: str, said: Connection) -> None:
    store = store_in(data_dir, conninfo)
    snapshot = opened(store)
    if snapshot.next_job_id == 1:
        spec = JobSpec(program=Program(argv=("true",)), count=1_000_000)
        await store.commit([JobRecord(job_id=1, owner="ada", spec=spec, submitted_at=0.0)])
    n = store.jobs(ids=[1])[0].cursor
    said.send(n)
    while True:
        n += 1
        await store.commit(batch(n))
        said.send(n)


def live(data_dir: Path, conninfo: str, said: Connection) -> None:
    """Says how many batches there are, and each batch's number once it is durable."""
    asyncio.run(_commit_for_ever(data_dir, conninfo, said))
