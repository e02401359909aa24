"""What the tables of the SQLite store say, as records."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from kestrelctl.core.model.records import (
    Happening,
    JobRecord,
    Snapshot,
    TaskRecord,
    UnfinishedJob,
)
from kestrelctl.core.model.task_state import Counts, TaskState
from kestrelctl.errors import KestrelError
from kestrelctl.store.rows import (
    HAPPENING_COLUMNS,
    HEAD_COLUMNS,
    JOB_COLUMNS,
    STATE_CODES,
    STATES,
    TASK_COLUMNS,
    WORKER_COLUMNS,
    Unreadable,
    happening,
    job_record,
    readable,
    task_record,
    worker_record,
)

_WHOLE_JOBS = f"SELECT {JOB_COLUMNS} FROM jobs LEFT JOIN specs USING (job_id)"
_HEADS = f"SELECT {HEAD_COLUMNS} FROM jobs LEFT JOIN heads USING (job_id)"
_WAITING = STATE_CODES[TaskState.WAITING]
_DONE = STATE_CODES[TaskState.DONE]

#: Spelled like the condition of the index, so that SQLite uses it.
_NOT_DONE = f"state <> {_DONE}"


#: Called with the id of a job that cannot be read, and why.
SetAside = Callable[[int, str], None]


def snapshot(connection: sqlite3.Connection, set_aside: SetAside) -> Snapshot:
    """What a manager needs to go on. Walks once over the tasks of each active job."""
    pool = connection.execute("SELECT epoch, last_job_id, secret FROM pool")
    epoch, last_job_id, secret = pool.fetchone()
    active = connection.execute("SELECT job_id FROM jobs WHERE state = 'active' ORDER BY job_id")
    workers = connection.execute(f"SELECT {WORKER_COLUMNS} FROM workers ORDER BY worker")
    return Snapshot(
        epoch=epoch,
        secret=secret,
        next_job_id=last_job_id + 1,
        jobs=list(_unfinished_jobs(connection, active.fetchall(), set_aside)),
        workers=[worker_record(row) for row in workers if isinstance(row[0], str)],
    )


def _unfinished_jobs(
    connection: sqlite3.Connection, ids: Iterable[tuple[int]], set_aside: SetAside
) -> Iterator[UnfinishedJob]:
    """These jobs, without those that cannot be read. One row at a time: it may be megabytes."""
    for (job_id,) in ids:
        row = connection.execute(f"{_WHOLE_JOBS} WHERE job_id = ?", (job_id,)).fetchone()
        try:
            record = job_record(row)
            with readable("rows of its tasks"):
                yield _unfinished(connection, record)
        except Unreadable as error:
            set_aside(job_id, str(error))


def _unfinished(connection: sqlite3.Connection, record: JobRecord) -> UnfinishedJob:
    """Counts a job's tasks and collects the gaps between them, keeping nothing else in memory."""
    counts = dict.fromkeys(range(len(STATES)), 0)
    unfinished: list[int] = []
    beyond = 0
    walk = "SELECT idx, state FROM tasks WHERE job_id = ? ORDER BY idx"
    for index, state in connection.execute(walk, (record.job_id,)):
        counts[state] += 1
        if index != beyond:
            if not beyond < index < record.spec.count:
                raise ValueError(f"there is no task {index}")
            unfinished.extend(range(beyond, index))
        if state == _WAITING:
            unfinished.append(index)
        beyond = index + 1
    cursor = max(record.cursor, beyond)
    if cursor > record.spec.count:
        raise ValueError(f"there is no task {beyond - 1}")
    unfinished.extend(range(beyond, cursor))
    by_state = {state.value: counts[code] for state, code in STATE_CODES.items() if code}
    remembered = connection.execute(
        "SELECT idx, failures, losses, concluded FROM tasks"
        f" WHERE job_id = ? AND idx >= 0 AND {_NOT_DONE} AND state = {_WAITING}"
        " AND (failures <> 0 OR losses <> 0 OR concluded <> 0)",
        (record.job_id,),
    ).fetchall()
    for _, *numbers in remembered:
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"failures, losses and the last attempt cannot be {numbers}")
    [happenings] = connection.execute(
        "SELECT count(*) FROM happenings WHERE job_id = ?", (record.job_id,)
    ).fetchone()
    return UnfinishedJob(
        record=replace(record, cursor=cursor, counts=Counts(**by_state)),
        unfinished=unfinished,
        counters={
            index: (failures, losses)
            for index, failures, losses, _ in remembered
            if failures or losses
        },
        concluded={index: concluded for index, _, _, concluded in remembered if concluded},
        happenings=happenings,
    )


def jobs(
    connection: sqlite3.Connection,
    ids: Sequence[int] | None,
    states: Sequence[str],
    owner: str | None,
    limit: int,
    set_aside: SetAside,
) -> list[JobRecord]:
    """As `Store.jobs`."""
    conditions = ["true"]
    values: list[Any] = []
    if ids is not None:
        conditions.append("job_id IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(ids)))
    if states:
        conditions.append("state IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(list(states)))
    if owner is not None:
        conditions.append("owner = ?")
        values.append(owner)
    rows = connection.execute(
        f"{_HEADS} WHERE {' AND '.join(conditions)} ORDER BY job_id DESC LIMIT ?",
        (*values, max(limit, 0)),
    ).fetchall()
    found = []
    for row in reversed(rows):
        try:
            found.append(job_record(row))
        except Unreadable as error:
            set_aside(row[0], str(error))
    return found


def job_of_key(
    connection: sqlite3.Connection, owner: str, key: str, set_aside: SetAside
) -> JobRecord | None:
    """As `Store.job_of_key`."""
    return _whole(connection, "owner = ? AND submission_key = ?", (owner, key), set_aside)


def job(connection: sqlite3.Connection, job_id: int, set_aside: SetAside) -> JobRecord | None:
    """As `Store.job`."""
    return _whole(connection, "job_id = ?", (job_id,), set_aside)


def _whole(
    connection: sqlite3.Connection, condition: str, values: tuple[Any, ...], set_aside: SetAside
) -> JobRecord | None:
    """The one job that fits.

    Raises:
        KestrelError: it cannot be read.
    """
    row = connection.execute(f"{_WHOLE_JOBS} WHERE {condition}", values).fetchone()
    if row is None:
        return None
    try:
        return job_record(row)
    except Unreadable as error:
        set_aside(row[0], str(error))
        raise KestrelError(f"job {row[0]} cannot be read in the store", cause=str(error)) from error


def tasks(
    connection: sqlite3.Connection,
    job_id: int,
    states: Sequence[TaskState],
    after: int,
    limit: int,
    indexes: Sequence[int],
) -> list[TaskRecord]:
    """As `Store.tasks`."""
    where, values = _of_job(job_id, states, after, indexes)
    rows = connection.execute(
        f"SELECT {TASK_COLUMNS} FROM tasks WHERE {where} ORDER BY idx LIMIT ?",
        (*values, max(limit, 0)),
    )
    try:
        with readable(f"tasks of job {job_id}"):
            return [task_record(row) for row in rows]
    except Unreadable as error:
        raise KestrelError(
            f"tasks of job {job_id} cannot be read in the store", cause=str(error)
        ) from error


def ended_badly(
    connection: sqlite3.Connection, job_id: int, indexes: Sequence[int]
) -> list[tuple[int, str]]:
    """As `Store.ended_badly`."""
    bad = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
    where, values = _of_job(job_id, bad, -1, indexes)
    rows = connection.execute(f"SELECT idx, state FROM tasks WHERE {where} ORDER BY idx", values)
    return [(index, STATES[state].value) for index, state in rows]


def happenings(
    connection: sqlite3.Connection, job_id: int, indexes: Sequence[int], limit: int
) -> list[Happening]:
    """As `Store.happenings`."""
    # Happenings of a forgotten job are left out: they may not be deleted yet.
    where = "job_id = ? AND EXISTS (SELECT 1 FROM jobs WHERE job_id = ?)"
    values: list[Any] = [job_id, job_id]
    if indexes:
        where += " AND idx IN (SELECT value FROM json_each(?))"
        values.append(json.dumps([-1, *indexes]))
    rows = connection.execute(
        f"SELECT {HAPPENING_COLUMNS} FROM happenings WHERE {where} ORDER BY rowid DESC LIMIT ?",
        (*values, max(limit, 0)),
    ).fetchall()
    return [happening(row) for row in reversed(rows)]


def _of_job(
    job_id: int, states: Sequence[TaskState], after: int, indexes: Sequence[int]
) -> tuple[str, list[Any]]:
    """A condition for tasks, and its values. Tasks of a forgotten job are left out."""
    conditions = ["job_id = ?", "EXISTS (SELECT 1 FROM jobs WHERE job_id = ?)"]
    values: list[Any] = [job_id, job_id]
    if indexes:
        # No second condition on idx, because SQLite would walk along that one instead.
        conditions.append("idx IN (SELECT value FROM json_each(?))")
        values.append(json.dumps([index for index in indexes if index > after]))
    else:
        conditions.append("idx > ?")
        values.append(after)
    if states:
        codes = ", ".join(str(STATE_CODES[state]) for state in states if state in STATE_CODES)
        conditions.append(f"state IN ({codes})")
        if TaskState.DONE not in states:
            conditions.append(_NOT_DONE)
    return " AND ".join(conditions), values
