"""Records into the tables of the SQLite store. The caller holds a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from kestrelctl.core.model.records import (
    Happening,
    JobForgotten,
    JobRecord,
    Progress,
    Record,
    TaskRecord,
    WorkerGone,
    WorkerRecord,
)
from kestrelctl.store.rows import (
    HAPPENING_COLUMNS,
    TASK_COLUMNS,
    TASK_PARAMETERS,
    encode_ad,
    encode_spec,
    happening_row,
    task_row,
)

#: Rows of tasks and happenings deleted with each commit while there are forgotten jobs: a few
#: milliseconds of it, and little enough of the disk to succeed when that is nearly full.
FORGET_ROWS = 5_000

_PUT_TASK = f"INSERT OR REPLACE INTO tasks ({TASK_COLUMNS}) VALUES ({TASK_PARAMETERS})"
_ADD_HAPPENING = f"INSERT INTO happenings ({HAPPENING_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"

_UPDATE_JOB = """
    UPDATE jobs SET state = ?, cancelling = ?, cursor = ?, done = ?, failed = ?, lost = ?,
        cancelled = ?, ended_at = ?
    WHERE job_id = ?
"""

_INSERT_JOB = """
    INSERT INTO jobs (state, cancelling, cursor, done, failed, lost, cancelled, ended_at,
        job_id, owner, submitted_at, submission_key)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_DELETE_SOME_TASKS = """
    DELETE FROM tasks WHERE job_id = :job_id AND idx <= (
        SELECT max(idx) FROM (
            SELECT idx FROM tasks WHERE job_id = :job_id ORDER BY idx LIMIT :limit))
"""
_DELETE_SOME_HAPPENINGS = """
    DELETE FROM happenings WHERE rowid IN (
        SELECT rowid FROM happenings WHERE job_id = :job_id LIMIT :limit)
"""


def write(connection: sqlite3.Connection, records: Sequence[Record]) -> None:
    """Writes a batch. The hot path: nearly all records of a busy pool are those of tasks."""
    tasks: list[tuple[Any, ...]] = []
    cursors: dict[int, int] = {}
    happenings: list[tuple[Any, ...]] = []
    for record in records:
        if isinstance(record, TaskRecord):
            tasks.append(task_row(record))
        elif isinstance(record, Progress):
            cursors[record.job_id] = record.cursor
        elif isinstance(record, Happening):
            happenings.append(happening_row(record))
        elif isinstance(record, JobRecord):
            cursors.pop(record.job_id, None)
            _put_job(connection, record)
        elif isinstance(record, WorkerRecord):
            connection.execute(
                "INSERT OR REPLACE INTO workers (worker, draining, ad) VALUES (?, ?, ?)",
                (record.worker, record.draining, encode_ad(record.ad)),
            )
        elif isinstance(record, WorkerGone):
            connection.execute("DELETE FROM workers WHERE worker = ?", (record.worker,))
        elif isinstance(record, JobForgotten):
            _forget_job(connection, record.job_id)
    if tasks:
        connection.executemany(_PUT_TASK, tasks)
    if happenings:
        connection.executemany(_ADD_HAPPENING, happenings)
    if cursors:
        connection.executemany(
            "UPDATE jobs SET cursor = ? WHERE job_id = ?",
            [(cursor, job_id) for job_id, cursor in cursors.items()],
        )


def _put_job(connection: sqlite3.Connection, record: JobRecord) -> None:
    """Writes a job. The spec of a stored one is left alone: it never changes and may be long."""
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
        record.job_id,
    )
    if connection.execute(_UPDATE_JOB, changing).rowcount:
        return
    fixed = (record.owner, record.submitted_at, record.key or None)
    connection.execute(_INSERT_JOB, (*changing, *fixed))
    connection.execute(
        "INSERT INTO specs (job_id, spec) VALUES (?, ?)", (record.job_id, encode_spec(record.spec))
    )
    connection.execute(
        "INSERT INTO heads (job_id, head) VALUES (?, ?)",
        (record.job_id, encode_spec(record.spec.head())),
    )
    connection.execute("UPDATE pool SET last_job_id = max(last_job_id, ?)", (record.job_id,))


def _forget_job(connection: sqlite3.Connection, job_id: int) -> None:
    """Makes a job invisible; its tasks and happenings go with this and later commits."""
    connection.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM specs WHERE job_id = ?", (job_id,))
    connection.execute("DELETE FROM heads WHERE job_id = ?", (job_id,))
    connection.execute("INSERT OR IGNORE INTO forgotten (job_id) VALUES (?)", (job_id,))


def delete_forgotten(connection: sqlite3.Connection) -> None:
    """Deletes up to `FORGET_ROWS` tasks and happenings of one forgotten job."""
    found = connection.execute("SELECT job_id FROM forgotten LIMIT 1").fetchone()
    if found is None:
        return
    [job_id] = found
    left = FORGET_ROWS
    for statement in (_DELETE_SOME_TASKS, _DELETE_SOME_HAPPENINGS):
        left -= connection.execute(statement, {"job_id": job_id, "limit": left}).rowcount
    if left:
        connection.execute("DELETE FROM forgotten WHERE job_id = ?", (job_id,))
