"""Reads the tables of a store into records."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, NamedTuple

from msgspec.structs import replace

from kestrelctl.core.model.index_ranges import as_ranges
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import (
    EndedTasks,
    Happening,
    JobRecord,
    Snapshot,
    TaskRecord,
    UnfinishedJob,
    ended_tasks,
)
from kestrelctl.errors import KestrelError
from kestrelctl.store.connection import Rows, TableReader
from kestrelctl.store.edges import ended_parents
from kestrelctl.store.item_window import ItemWindow
from kestrelctl.store.long_parts import item_window, long_program, stored_apart, with_all_parts
from kestrelctl.store.rows import (
    HAPPENING_COLUMNS,
    HEAD_COLUMNS,
    JOB_COLUMNS,
    STATE_CODES,
    STATES,
    TASK_COLUMNS,
    USED_COLUMNS,
    WORKER_COLUMNS,
    Unreadable,
    decode_checkpoint,
    happening,
    job_record,
    readable,
    task_record,
    worker_record,
)
from kestrelctl.store.setting_rows import stored_peers, stored_settings
from kestrelctl.store.share_rows import stored_sums, stored_users
from kestrelctl.store.sums import Spread, Used, sampled_indexes
from kestrelctl.store.sums import spread as spread_of

_WHOLE_JOBS = f"SELECT {JOB_COLUMNS} FROM jobs LEFT JOIN specs USING (job_id)"
_HEADS = f"SELECT {HEAD_COLUMNS} FROM jobs LEFT JOIN heads USING (job_id)"
_WAITING = STATE_CODES[TaskState.WAITING]
_DONE = STATE_CODES[TaskState.DONE]

#: Spelled like the condition of the index, so that SQLite can use it. It is told to: left to itself
#: it walks along the table once a row has so many columns.
_NOT_DONE = f"state <> {_DONE}"
_THOSE_NOT_DONE = "tasks INDEXED BY tasks_not_done"

#: Happenings of a forgotten job are left out: they may not be deleted yet.
_HAPPENED = "job_id = ? AND EXISTS (SELECT 1 FROM jobs WHERE job_id = ?)"

#: The name in a head, which may be damaged. SQLite's globs are those of the shell, but for `[^`.
NAME_FITS = (
    "coalesce(CASE WHEN json_valid(CAST(head AS TEXT))"
    " THEN json_extract(CAST(head AS TEXT), '$.name') END, '') GLOB ?"
)

#: The rows of tasks that are read at once when a job is walked through.
WALK_ROWS = 20_000
#: Below every index, also those that no manager writes.
_BEFORE_ALL = -(1 << 63)

#: Called with the id of a job that cannot be read, and why.
SetAside = Callable[[int, str], None]


def snapshot(connection: TableReader, set_aside: SetAside) -> Snapshot:
    """Reads all that a manager needs to go on. Walks once over the tasks of each active job."""
    pool = connection.execute("SELECT epoch, term, last_job_id, secret FROM pool")
    epoch, term, last_job_id, secret = pool.fetchone()
    active = connection.execute("SELECT job_id FROM jobs WHERE state = 'active' ORDER BY job_id")
    workers = connection.execute(f"SELECT {WORKER_COLUMNS} FROM workers ORDER BY worker")
    jobs = list(_unfinished_jobs(connection, active.fetchall(), set_aside))
    return Snapshot(
        epoch=epoch,
        term=term,
        secret=secret,
        next_job_id=last_job_id + 1,
        jobs=jobs,
        workers=[worker_record(row) for row in workers if isinstance(row[0], str)],
        settings=stored_settings(connection),
        users=stored_users(connection),
        flock_peers=stored_peers(connection),
        stored=stored_sums(connection),
        parents=ended_parents(
            connection, (job.record.spec.after for job in jobs if not job.record.freed)
        ),
        paired=_ended_pairs(connection, {job.record.spec.after_each for job in jobs}, set_aside),
    )


def _ended_pairs(
    connection: TableReader, ids: set[int], set_aside: SetAside
) -> dict[int, EndedTasks]:
    """The jobs among these that have ended, with their tasks that are not done."""
    which = Which(sorted(ids - {0}), ("done", "failed", "cancelled"), None, "")
    return {
        record.job_id: ended_tasks(record, ended_badly(connection, record.job_id, []))
        for record in jobs(connection, which, len(ids), set_aside)
    }


def _unfinished_jobs(
    connection: TableReader, ids: Iterable[tuple[int]], set_aside: SetAside
) -> Iterator[UnfinishedJob]:
    """Yields these jobs but those that cannot be read. One row at a time: it may be megabytes."""
    for (job_id,) in ids:
        row = connection.execute(f"{_WHOLE_JOBS} WHERE job_id = ?", (job_id,)).fetchone()
        try:
            record = job_record(row)
            with readable("rows of its tasks"):
                found = _unfinished(connection, record)
            with readable("what its spec lacks"):
                yield replace(found, apart=stored_apart(connection, record))
        except Unreadable as error:
            set_aside(job_id, str(error))


def _unfinished(connection: TableReader, record: JobRecord) -> UnfinishedJob:
    """Counts a job's tasks and collects the gaps between them, keeping nothing else in memory."""
    counts = dict.fromkeys(range(len(STATES)), 0)
    unfinished: list[int] = []
    bad: list[int] = []
    beyond = 0
    for index, state in _walk(connection, record.job_id):
        counts[state] += 1
        if index != beyond:
            if not beyond < index < record.spec.count:
                raise ValueError(f"there is no task {index}")
            unfinished.extend(range(beyond, index))
        if state == _WAITING:
            unfinished.append(index)
        elif state != _DONE:
            bad.append(index)
        beyond = index + 1
    cursor = max(record.cursor, beyond)
    if cursor > record.spec.count:
        raise ValueError(f"there is no task {beyond - 1}")
    unfinished.extend(range(beyond, cursor))
    by_state = {state.value: counts[code] for state, code in STATE_CODES.items() if code}
    remembered = connection.execute(
        "SELECT idx, failures, losses, concluded, retried_after, memory_step, least_seconds,"
        " checkpoint"
        f" FROM {_THOSE_NOT_DONE}"
        f" WHERE job_id = ? AND idx >= 0 AND {_NOT_DONE} AND state = {_WAITING}"
        " AND (failures <> 0 OR losses <> 0 OR concluded <> 0 OR checkpoint IS NOT NULL)",
        (record.job_id,),
    ).fetchall()
    for _, *numbers, seconds, _ in remembered:
        if not all(isinstance(n, int) and n >= 0 for n in numbers):
            raise ValueError(f"failures, losses and the last attempts cannot be {numbers}")
        if not (isinstance(seconds, float) and 0 <= seconds < math.inf):
            raise ValueError(f"a task cannot take {seconds} s at least")
    return UnfinishedJob(
        record=replace(record, cursor=cursor, counts=Counts(**by_state)),
        unfinished=unfinished,
        counters={
            index: (failures, losses)
            for index, failures, losses, *_ in remembered
            if failures or losses
        },
        concluded={index: concluded for index, _, _, concluded, *_ in remembered if concluded},
        retried_after={index: after for index, *_, after, _, _, _ in remembered if after},
        memory_steps={index: step for index, *_, step, _, _ in remembered if step},
        least_seconds={index: seconds for index, *_, seconds, _ in remembered if seconds},
        checkpoints={
            index: found
            for index, *_, checkpoint in remembered
            if (found := decode_checkpoint(checkpoint)) is not None
        },
        happenings=count_happenings(connection, record.job_id),
        bad=as_ranges(bad),
    )


def _walk(connection: TableReader, job_id: int) -> Iterator[tuple[int, int]]:
    """Index and state of each stored task of a job, in order. Never all of them are in memory."""
    page = "SELECT idx, state FROM tasks WHERE job_id = ? AND idx > ? ORDER BY idx LIMIT ?"
    after = _BEFORE_ALL
    while found := connection.execute(page, (job_id, after, WALK_ROWS)).fetchall():
        yield from found
        if len(found) < WALK_ROWS:
            return
        after = found[-1][0]


class Which(NamedTuple):
    """The jobs that are meant, as for `Store.jobs`."""

    ids: Sequence[int] | None = None
    states: Sequence[str] = ()
    owner: str | None = None
    name: str = ""
    before: int | None = None
    ended_since: float | None = None
    ended_of: str | None = None

    def condition(self) -> tuple[str, list[Any]]:
        """The condition, and its values."""
        conditions = ["true"]
        values: list[Any] = []
        if self.ids is not None:
            conditions.append("job_id IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(self.ids)))
        if self.states:
            conditions.append("state IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(list(self.states)))
        if self.owner is not None:
            conditions.append("owner = ?")
            values.append(self.owner)
        if self.name:
            conditions.append(NAME_FITS)
            values.append(re.sub(r"\[!", "[^", self.name))
        if self.before is not None:
            conditions.append("job_id < ?")
            values.append(self.before)
        if self.ended_since is not None:
            conditions.append("ended_at >= ?")
            values.append(self.ended_since)
        if self.ended_of is not None:
            conditions.append("(state = 'active' OR owner = ?)")
            values.append(self.ended_of)
        return " AND ".join(conditions), values


def job_ids(connection: TableReader, which: Which) -> list[int]:
    """Implements `Store.job_ids`."""
    those, values = _those(which)
    rows = connection.execute(f"SELECT job_id {those} ORDER BY job_id", values)
    return [job_id for (job_id,) in rows]


def count_jobs(connection: TableReader, which: Which) -> int:
    """Implements `Store.count_jobs`. One row comes back, however many jobs there are."""
    those, values = _those(which)
    [found] = connection.execute(f"SELECT count(*) {those}", values).fetchone()
    return int(found)


def _those(which: Which) -> tuple[str, list[Any]]:
    """The end of a query that needs nothing but the condition, and its values."""
    condition, values = which.condition()
    heads = " LEFT JOIN heads USING (job_id)" if which.name else ""
    return f"FROM jobs{heads} WHERE {condition}", values


def jobs(connection: TableReader, which: Which, limit: int, set_aside: SetAside) -> list[JobRecord]:
    """Implements `Store.jobs`."""
    condition, values = which.condition()
    rows = connection.execute(
        f"{_HEADS} WHERE {condition} ORDER BY job_id DESC LIMIT ?", (*values, max(limit, 0))
    ).fetchall()
    return list(_readable_jobs(reversed(rows), set_aside))


def untold(connection: TableReader, limit: int, set_aside: SetAside) -> list[JobRecord]:
    """Implements `Store.untold`."""
    rows = connection.execute(f"{_HEADS} WHERE untold ORDER BY job_id")
    return _first_readable(rows, limit, set_aside)


def unmailed(
    connection: TableReader, owner: str, limit: int, set_aside: SetAside
) -> list[JobRecord]:
    """Implements `Store.unmailed`."""
    select = f"{_HEADS} WHERE unmailed AND owner = ? ORDER BY job_id"
    return _first_readable(connection.execute(select, (owner,)), limit, set_aside)


def unmailed_owners(connection: TableReader) -> list[str]:
    """Implements `Store.unmailed_owners`. It reads an index alone."""
    rows = connection.execute("SELECT DISTINCT owner FROM jobs WHERE unmailed ORDER BY owner")
    return [str(owner) for (owner,) in rows]


def _first_readable(cursor: Rows, limit: int, set_aside: SetAside) -> list[JobRecord]:
    # Rows that cannot be read do not count: they stay, and must not hide the ones after them.
    with closing(cursor) as rows:
        return list(islice(_readable_jobs(rows, set_aside), max(limit, 0)))


def _readable_jobs(rows: Iterable[tuple[Any, ...]], set_aside: SetAside) -> Iterator[JobRecord]:
    for row in rows:
        try:
            found = job_record(row)
        except Unreadable as error:
            set_aside(row[0], str(error))
        else:
            yield found


def ended_before(connection: TableReader, before: float, keep: int, limit: int) -> list[int]:
    """Implements `Store.ended_before`. It walks along an index."""
    if keep:
        [ended] = connection.execute(
            "SELECT count(*) FROM jobs WHERE ended_at IS NOT NULL"
        ).fetchone()
        limit = min(limit, ended - keep)
    rows = connection.execute(
        "SELECT job_id FROM jobs WHERE ended_at IS NOT NULL AND ended_at < ? AND NOT untold"
        " AND NOT unmailed ORDER BY ended_at, job_id LIMIT ?",
        (before, max(0, limit)),
    )
    return [job_id for (job_id,) in rows]


def has_forgotten(connection: TableReader) -> bool:
    """Implements `Store.has_forgotten`."""
    return connection.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone() is not None


def job_of_key(
    connection: TableReader, owner: str, key: str, set_aside: SetAside
) -> JobRecord | None:
    """Implements `Store.job_of_key`."""
    return _whole(connection, "owner = ? AND submission_key = ?", (owner, key), set_aside)


def job(connection: TableReader, job_id: int, set_aside: SetAside) -> JobRecord | None:
    """Implements `Store.job`."""
    return _whole(connection, "job_id = ?", (job_id,), set_aside)


def _whole(
    connection: TableReader, condition: str, values: tuple[Any, ...], set_aside: SetAside
) -> JobRecord | None:
    """The one job that fits.

    Raises:
        KestrelError: it cannot be read.
    """
    row = connection.execute(f"{_WHOLE_JOBS} WHERE {condition}", values).fetchone()
    if row is None:
        return None
    try:
        record = job_record(row)
        with readable("what its spec lacks"):
            return with_all_parts(connection, record)
    except Unreadable as error:
        set_aside(row[0], str(error))
        raise KestrelError(f"job {row[0]} cannot be read in the store", cause=str(error)) from error


def items(connection: TableReader, job_id: int, index: int) -> ItemWindow | None:
    """Reads what `CoreStore.items` promises."""
    try:
        with readable("its items"):
            return item_window(connection, job_id, index)
    except Unreadable as error:
        raise KestrelError(
            f"items of job {job_id} cannot be read in the store", cause=str(error)
        ) from error


def program(connection: TableReader, job_id: int, set_aside: SetAside) -> Program | None:
    """Reads what `CoreStore.program` promises."""
    try:
        with readable("its program"):
            found = long_program(connection, job_id)
    except Unreadable as error:
        raise KestrelError(
            f"the program of job {job_id} cannot be read in the store", cause=str(error)
        ) from error
    if found is not None:
        return found
    record = job(connection, job_id, set_aside)
    return None if record is None else record.spec.program


def tasks(
    connection: TableReader,
    job_id: int,
    states: Sequence[TaskState],
    after: int,
    limit: int,
    indexes: Sequence[int],
) -> list[TaskRecord]:
    """Implements `Store.tasks`."""
    where, values = _of_job(job_id, states, after, indexes)
    table = "tasks" if indexes or _NOT_DONE not in where else _THOSE_NOT_DONE
    rows = connection.execute(
        f"SELECT {TASK_COLUMNS} FROM {table} WHERE {where} ORDER BY idx LIMIT ?",
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
    connection: TableReader, job_id: int, indexes: Sequence[int]
) -> list[tuple[int, str]]:
    """Implements `Store.ended_badly`."""
    bad = (TaskState.FAILED, TaskState.LOST, TaskState.CANCELLED)
    where, values = _of_job(job_id, bad, -1, indexes)
    table = "tasks" if indexes else _THOSE_NOT_DONE
    rows = connection.execute(f"SELECT idx, state FROM {table} WHERE {where} ORDER BY idx", values)
    return [(index, STATES[state].value) for index, state in rows]


def used(connection: TableReader, job_ids: Sequence[int]) -> dict[int, Used]:
    """Implements `Store.used`."""
    rows = connection.execute(
        f"SELECT job_id, {', '.join(USED_COLUMNS)} FROM jobs"
        " WHERE job_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(job_ids)),),
    )
    return {job_id: _used(columns) for job_id, *columns in rows}


def spread(connection: TableReader, job_id: int) -> Spread:
    """Implements `Store.spread`."""
    where, values = _of_job(job_id, (), -1, ())
    [last] = connection.execute(f"SELECT max(idx) FROM tasks WHERE {where}", values).fetchone()
    indexes = sampled_indexes(job_id, 0 if last is None else last + 1)
    if indexes is not None:
        where, values = _of_job(job_id, (), -1, indexes)
    rows = connection.execute(
        "SELECT max(0.0, started_at - (SELECT submitted_at FROM jobs WHERE job_id = ?)),"
        f" wall_seconds, cpu_seconds, peak_bytes FROM tasks WHERE {where}"
        f" AND state <> {_WAITING} AND number IS NOT NULL",
        (job_id, *values),
    ).fetchall()
    try:
        with readable(f"tasks of job {job_id}"):
            return spread_of(rows, whole=indexes is None)
    except Unreadable as error:
        raise KestrelError(
            f"tasks of job {job_id} cannot be read in the store", cause=str(error)
        ) from error


def used_by_owner(connection: TableReader, since_day: int, owner: str | None) -> dict[str, Used]:
    """Implements `Store.used_by_owner`."""
    columns = ", ".join(
        f"max({name})" if name.startswith(("longest_", "peak_")) else f"sum({name})"
        for name in USED_COLUMNS
    )
    condition = "day >= ?"
    values: list[int | str] = [since_day]
    if owner is not None:
        condition += " AND owner = ?"
        values.append(owner)
    rows = connection.execute(
        f"SELECT owner, {columns} FROM usage WHERE {condition} GROUP BY owner ORDER BY owner",
        values,
    )
    return {whose: _used(found) for whose, *found in rows}


def _used(columns: Iterable[Any]) -> Used:
    return Used(**dict(zip(USED_COLUMNS, columns, strict=True)))


def happenings(
    connection: TableReader, job_id: int, indexes: Sequence[int], limit: int
) -> list[Happening]:
    """Implements `Store.happenings`."""
    where = _HAPPENED
    values: list[Any] = [job_id, job_id]
    if indexes:
        where += " AND idx IN (SELECT value FROM json_each(?))"
        values.append(json.dumps([-1, *indexes]))
    rows = connection.execute(
        f"SELECT {HAPPENING_COLUMNS} FROM happenings WHERE {where} ORDER BY rowid DESC LIMIT ?",
        (*values, max(limit, 0)),
    ).fetchall()
    return [happening(row) for row in reversed(rows)]


def count_happenings(connection: TableReader, job_id: int) -> int:
    """Implements `Store.count_happenings`."""
    [found] = connection.execute(
        f"SELECT count(*) FROM happenings WHERE {_HAPPENED}", (job_id, job_id)
    ).fetchone()
    return int(found)


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
        conditions.append(f"state IN ({codes or 'NULL'})")
        if codes and TaskState.DONE not in states:
            conditions.append(_NOT_DONE)
    return " AND ".join(conditions), values
