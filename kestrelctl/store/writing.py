"""Records into the tables of a store. The caller holds a transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import astuple

from kestrelctl.core.model.records import (
    FlockRecord,
    Happening,
    JobForgotten,
    JobRecord,
    OwnerTold,
    Progress,
    StoredRecord,
    Swept,
    TaskRecord,
    UserGone,
    UserRecord,
    WorkerGone,
    WorkerRecord,
)
from kestrelctl.core.model.setting import Setting, SettingGone
from kestrelctl.store.connection import TableConnection, TableReader
from kestrelctl.store.edges import put_edges
from kestrelctl.store.event_rows import write_members
from kestrelctl.store.long_parts import LongParts, is_apart
from kestrelctl.store.port import MemberRecord, RuleRecord, StoreRecord
from kestrelctl.store.rows import (
    HAPPENING_COLUMNS,
    TASK_COLUMNS,
    TASK_PARAMETERS,
    USED_COLUMNS,
    encode_ad,
    encode_hold,
    encode_settled,
    encode_spec,
    happening_row,
    recounted,
    task_row,
)
from kestrelctl.store.rule_rows import write_rules
from kestrelctl.store.setting_rows import write_flock, write_setting
from kestrelctl.store.share_rows import PUT_STORED, PUT_USER, user_row
from kestrelctl.store.sums import Used, by_job, day_of, summed

#: Rows of tasks and happenings deleted with each commit while there are forgotten jobs, at most,
#: and how many at a time: little enough of the disk to succeed when that is nearly full.
FORGET_ROWS = 5_000
FORGET_SLICE_ROWS = 250
#: No other slice is begun after so long: reading from a slow disk takes its time.
FORGET_SECONDS = 0.01
#: The usage of users is kept for so many days.
USAGE_DAYS = 1_100

_PUT_TASK = f"INSERT OR REPLACE INTO tasks ({TASK_COLUMNS}) VALUES ({TASK_PARAMETERS})"
_ADD_HAPPENING = f"INSERT INTO happenings ({HAPPENING_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

_UPDATE_JOB = """
    UPDATE jobs SET state = ?, cancelling = ?, cursor = ?, done = ?, failed = ?, lost = ?,
        cancelled = ?, ended_at = ?, untold = ?, unmailed = ?, stopped_by = ?, hold = ?, freed = ?,
        settled = ?, resumed = ?
    WHERE job_id = ?
"""

_OWNER_TOLD = "UPDATE jobs SET untold = false WHERE job_id = ? AND ended_at IS ?"
_OWNER_MAILED = _OWNER_TOLD.replace("untold", "unmailed")

_INSERT_JOB = """
    INSERT INTO jobs (state, cancelling, cursor, done, failed, lost, cancelled, ended_at,
        untold, unmailed, stopped_by, hold, freed, settled, resumed, job_id, owner, submitted_at,
        submission_key)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_DELETE_SOME_TASKS = """
    DELETE FROM tasks WHERE job_id = :job_id AND idx <= (
        SELECT max(idx) FROM (
            SELECT idx FROM tasks WHERE job_id = :job_id ORDER BY idx LIMIT :limit) AS first_ones)
"""
_DELETE_SOME_HAPPENINGS = """
    DELETE FROM happenings WHERE rowid IN (
        SELECT rowid FROM happenings WHERE job_id = :job_id LIMIT :limit)
"""


def _grown(name: str, before: str, more: str) -> str:
    """Makes a column of `sums.Used` grow: the longest and the peak are a maximum."""
    longest = name.startswith(("longest_", "peak_"))
    return f"{name} = max({before}, {more})" if longest else f"{name} = {before} + {more}"


_ADD_TO_JOB = "UPDATE jobs SET {} WHERE job_id = ?".format(
    ", ".join(_grown(name, name, "?") for name in USED_COLUMNS)
)
_ADD_TO_OWNER = """
    INSERT INTO usage (day, owner, {}) VALUES (?, ?, {})
    ON CONFLICT (day, owner) DO UPDATE SET {}
""".format(
    ", ".join(USED_COLUMNS),
    ", ".join("?" for _ in USED_COLUMNS),
    ", ".join(_grown(name, f"usage.{name}", f"excluded.{name}") for name in USED_COLUMNS),
)


class KnownJob(NamedTuple):
    """The part of a stored job that no record of it changes."""

    owner: str
    submitted_at: float


def write(
    connection: TableConnection,
    records: Sequence[StoreRecord],
    now: float,
    known: dict[int, KnownJob] | None = None,
) -> None:
    """Writes a batch. The hot path: nearly all records of a busy pool are those of tasks.

    Args:
        now: seconds since the epoch.
        known: those of the batch's jobs that are stored, by id, so that nothing has to be asked for
            each of them; new ones are added. None where asking takes no time.
    """
    tasks: list[tuple[Any, ...]] = []
    ended: list[TaskRecord] = []
    cursors: dict[int, int] = {}
    happenings: list[tuple[Any, ...]] = []
    stored: dict[tuple[str, int], int] = {}
    parts = _long_parts(connection, records, known)
    for record in records:
        if isinstance(record, TaskRecord):
            tasks.append(task_row(record))
            ended.append(record)
        elif isinstance(record, Progress):
            cursors[record.job_id] = record.cursor
        elif isinstance(record, Happening):
            happenings.append(happening_row(record))
        elif isinstance(record, StoredRecord):
            stored[record.owner, record.hour] = record.size_bytes
        elif isinstance(record, JobRecord):
            cursors.pop(record.job_id, None)
            _put_job(connection, record, known, parts)
        elif isinstance(record, OwnerTold):
            told = _OWNER_MAILED if record.by_mail else _OWNER_TOLD
            connection.execute(told, (record.job_id, record.ended_at))
        elif isinstance(record, WorkerRecord):
            connection.execute(
                "INSERT OR REPLACE INTO workers (worker, draining, ad) VALUES (?, ?, ?)",
                (record.worker, record.draining, encode_ad(record.ad)),
            )
        elif isinstance(record, WorkerGone):
            connection.execute("DELETE FROM workers WHERE worker = ?", (record.worker,))
        elif isinstance(record, Setting | SettingGone):
            write_setting(connection, record)
        elif isinstance(record, UserRecord):
            connection.execute(PUT_USER, user_row(record))
        elif isinstance(record, UserGone):
            connection.execute("DELETE FROM users WHERE name = ?", (record.name,))
        elif isinstance(record, FlockRecord):
            write_flock(connection, record)
        elif isinstance(record, MemberRecord):
            write_members(connection, record)
        elif isinstance(record, RuleRecord):
            write_rules(connection, record)
        elif isinstance(record, JobForgotten):
            _forget_job(connection, record.job_id)
            parts.forget(connection, record.job_id)
            if known is not None:
                known.pop(record.job_id, None)
        elif isinstance(record, Swept):
            connection.execute("DELETE FROM usage WHERE day < ?", (day_of(now) - USAGE_DAYS,))
    if tasks:
        connection.executemany(_PUT_TASK, tasks)
    if happenings:
        connection.executemany(_ADD_HAPPENING, happenings)
    if stored:
        _put_stored(connection, stored)
    if cursors:
        connection.executemany(
            "UPDATE jobs SET cursor = ? WHERE job_id = ?",
            [(cursor, job_id) for job_id, cursor in cursors.items()],
        )
    if ended:
        _add_up(connection, by_job(ended), day_of(now), known)


def _put_stored(connection: TableConnection, sums: dict[tuple[str, int], int]) -> None:
    """Writes what users have stored, by user and hour; deletes what counts no more."""
    for hour_of_owner, size_bytes in sums.items():
        if size_bytes:
            connection.execute(PUT_STORED, (*hour_of_owner, size_bytes))
        else:
            connection.execute("DELETE FROM stored WHERE owner = ? AND hour = ?", hour_of_owner)


def known_jobs(connection: TableReader, ids: Iterable[int]) -> dict[int, KnownJob]:
    """Reads which of these jobs are stored."""
    rows = connection.execute(
        "SELECT job_id, owner, submitted_at FROM jobs"
        " WHERE job_id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(ids)),),
    )
    return {job_id: KnownJob(owner, submitted_at) for job_id, owner, submitted_at in rows}


def _add_up(
    connection: TableConnection,
    records: dict[int, list[TaskRecord]],
    day: int,
    known: dict[int, KnownJob] | None,
) -> None:
    """Adds what was used to the sums of jobs and of their owners."""
    if known is None:
        known = known_jobs(connection, records)
    of_jobs: list[tuple[Any, ...]] = []
    of_owners: dict[str, Used] = {}
    for job_id, of_job in records.items():
        if job_id not in known:
            continue
        owner, submitted_at = known[job_id]
        used = summed(of_job, submitted_at)
        of_jobs.append((*astuple(used), job_id))
        before = of_owners.get(owner)
        of_owners[owner] = used if before is None else before.plus(used)
    connection.executemany(_ADD_TO_JOB, of_jobs)
    connection.executemany(
        _ADD_TO_OWNER, [(day, owner, *astuple(used)) for owner, used in of_owners.items()]
    )


def _long_parts(
    connection: TableReader, records: Sequence[StoreRecord], known: dict[int, KnownJob] | None
) -> LongParts:
    long = [each for each in records if isinstance(each, JobRecord) and is_apart(each.spec)]
    if long and known is None:
        known = known_jobs(connection, [each.job_id for each in long])
    return LongParts(connection, [each for each in long if each.job_id not in (known or {})])


def _put_job(
    connection: TableConnection,
    record: JobRecord,
    known: dict[int, KnownJob] | None,
    parts: LongParts,
) -> None:
    """Writes a job. The spec of a stored one is left alone: it may be long, and the record has a
    light one. Only how many copies a service has ever changes.
    """
    counts = record.counts
    changing = (
        record.state,
        record.cancelling,
        record.cursor,
        counts.done,
        counts.failed,
        counts.lost,
        counts.cancelled,
        record.ended_at,
        record.untold,
        record.unmailed,
        record.stopped_by,
        encode_hold(record.hold),
        record.freed,
        encode_settled(record.settled),
        record.resumed,
        record.job_id,
    )
    if _is_updated(connection, record.job_id, changing, known):
        if record.spec.service:
            _put_count(connection, record)
        return
    fixed = (record.owner, record.submitted_at, record.key or None)
    connection.execute(_INSERT_JOB, (*changing, *fixed))
    light = parts.put(connection, record.job_id, record.spec)
    connection.execute(
        "INSERT INTO specs (job_id, spec) VALUES (?, ?)", (record.job_id, encode_spec(light))
    )
    connection.execute(
        "INSERT INTO heads (job_id, head) VALUES (?, ?)",
        (record.job_id, encode_spec(record.spec.head())),
    )
    put_edges(connection, record.job_id, record.spec)
    connection.execute("UPDATE pool SET last_job_id = max(last_job_id, ?)", (record.job_id,))
    if known is not None:
        known[record.job_id] = KnownJob(record.owner, record.submitted_at)


def _put_count(connection: TableConnection, record: JobRecord) -> None:
    """Writes how many copies a service has."""
    for table, column in (("specs", "spec"), ("heads", "head")):
        found = connection.execute(
            f"SELECT {column} FROM {table} WHERE job_id = ?", (record.job_id,)
        ).fetchall()
        connection.executemany(
            f"UPDATE {table} SET {column} = ? WHERE job_id = ?",
            [(recounted(json_text, record.spec.count), record.job_id) for (json_text,) in found],
        )


def _is_updated(
    connection: TableConnection,
    job_id: int,
    changing: tuple[Any, ...],
    known: dict[int, KnownJob] | None,
) -> bool:
    """Updates a job if it is stored; returns whether it is."""
    if known is None:
        return connection.execute(_UPDATE_JOB, changing).rowcount > 0
    if job_id in known:
        connection.execute(_UPDATE_JOB, changing)
    return job_id in known


def _forget_job(connection: TableConnection, job_id: int) -> None:
    """Makes a job invisible; this and later commits delete its tasks and happenings."""
    connection.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM specs WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM heads WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM edges WHERE child = ?", (job_id,))
    connection.execute("INSERT OR IGNORE INTO forgotten (job_id) VALUES (?)", (job_id,))


def delete_forgotten(connection: TableConnection) -> None:
    """Deletes some tasks and happenings of forgotten jobs."""
    until = time.perf_counter() + FORGET_SECONDS
    left = FORGET_ROWS
    while left > 0:
        found = connection.execute("SELECT job_id FROM forgotten LIMIT 1").fetchone()
        if found is None:
            return
        [job_id] = found
        most = room = min(left, FORGET_SLICE_ROWS)
        for statement in (_DELETE_SOME_TASKS, _DELETE_SOME_HAPPENINGS):
            room -= connection.execute(statement, {"job_id": job_id, "limit": room}).rowcount
        if room:
            connection.execute("DELETE FROM forgotten WHERE job_id = ?", (job_id,))
        left -= max(1, most - room)
        if time.perf_counter() >= until:
            return
