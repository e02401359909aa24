"""The tables of the SQLite store, as the steps that made them.

Once released, a step is never changed; what comes next is appended. `PRAGMA user_version` says how
many of them a database has been through.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from kestrelctl.errors import StoreUnusable
from kestrelctl.store.opening import APPLICATION_ID
from kestrelctl.store.sqlite.earlier_specs import with_program
from kestrelctl.store.sqlite.inline_items import take_items_out

#: SQL, or a function of Python that does what SQL cannot.
Statement: TypeAlias = str | Callable[[sqlite3.Connection], None]

_FIRST = (
    """
    CREATE TABLE pool (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        epoch INTEGER NOT NULL,
        last_job_id INTEGER NOT NULL  -- the highest ever, also if that job was forgotten
    )
    """,
    "INSERT INTO pool (one, epoch, last_job_id) VALUES (1, 0, 0)",
    """
    CREATE TABLE jobs (
        job_id INTEGER PRIMARY KEY,
        owner TEXT NOT NULL,
        submitted_at REAL NOT NULL,
        state TEXT NOT NULL,
        cancelling INTEGER NOT NULL,
        cursor INTEGER NOT NULL,
        done INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        cancelled INTEGER NOT NULL,
        ended_at REAL
    )
    """,
    # A spec is apart from its job: it may be megabytes long, and the cursor changes all the time.
    "CREATE TABLE specs (job_id INTEGER PRIMARY KEY, spec BLOB NOT NULL)",
    """
    CREATE TABLE tasks (
        job_id INTEGER NOT NULL,
        idx INTEGER NOT NULL,
        state INTEGER NOT NULL,  -- 0 waiting, 1 done, 2 failed, 3 lost, 4 cancelled
        failures INTEGER NOT NULL,
        losses INTEGER NOT NULL,
        worker TEXT NOT NULL,
        number INTEGER,  -- this and what follows: NULL if no attempt was reported
        outcome INTEGER,
        started_at REAL,
        wall_seconds REAL,
        waited_seconds REAL,
        cpu_seconds REAL,
        peak_bytes INTEGER,
        exit_code INTEGER,
        signal INTEGER,
        reason TEXT,
        stdout TEXT,
        stderr TEXT,
        stdout_bytes INTEGER,
        stderr_bytes INTEGER,
        PRIMARY KEY (job_id, idx)
    ) WITHOUT ROWID
    """,
    # Finds the few tasks that are not done without walking through those that are.
    "CREATE INDEX tasks_not_done ON tasks (job_id, idx) WHERE state <> 1",
    "CREATE TABLE workers (worker TEXT PRIMARY KEY, draining INTEGER NOT NULL) WITHOUT ROWID",
    # Jobs whose tasks are still to be deleted, some with each commit.
    "CREATE TABLE forgotten (job_id INTEGER PRIMARY KEY)",
)

_SECOND = (
    # Attempts up to this number are over: a result that comes again is not counted again.
    "ALTER TABLE tasks ADD COLUMN concluded INTEGER NOT NULL DEFAULT 0",
)

_THIRD = (
    # They are in the order of their rowids. A job has some thousands at most.
    """
    CREATE TABLE happenings (
        job_id INTEGER NOT NULL,
        idx INTEGER NOT NULL,  -- -1: of the job as a whole
        at REAL NOT NULL,
        what TEXT NOT NULL,
        number INTEGER NOT NULL,
        worker TEXT NOT NULL,
        cause TEXT NOT NULL,
        detail TEXT NOT NULL
    )
    """,
    "CREATE INDEX happenings_of_job ON happenings (job_id)",
)

_FOURTH = (
    # What a job asks for is one object: a merge patch (RFC 7396) removes what it gives as NULL.
    """
    UPDATE specs SET spec = CAST(
        json_patch(
            CAST(spec AS TEXT),
            json_object(
                'cpus', NULL,
                'memory_bytes', NULL,
                'request', json_object(
                    'cpus', ifnull(json_extract(CAST(spec AS TEXT), '$.cpus'), 1.0),
                    'memory', nullif(json_extract(CAST(spec AS TEXT), '$.memory_bytes'), 0)
                )
            )
        ) AS BLOB
    )
    """,
    # The worker's latest ad, as JSON; NULL until it joins again.
    "ALTER TABLE workers ADD COLUMN ad BLOB",
)

_FIFTH = (
    # What a user called the submission; NULL if it had no key.
    "ALTER TABLE jobs ADD COLUMN submission_key TEXT",
    """
    CREATE UNIQUE INDEX jobs_by_key ON jobs (owner, submission_key)
        WHERE submission_key IS NOT NULL
    """,
)

_SIXTH = (
    # The secret of seals; drawn when a manager opens the store for the first time.
    "ALTER TABLE pool ADD COLUMN secret BLOB",
)

_SEVENTH = (
    # Each commit counts itself, so that a store that has lost some can be told (`store.mark`).
    "ALTER TABLE pool ADD COLUMN commits INTEGER NOT NULL DEFAULT 0",
    """
    CREATE TABLE gaps (
        noticed_at REAL NOT NULL,
        commits INTEGER NOT NULL,  -- how many are missing; 0 if nobody knows
        last_kept_job INTEGER NOT NULL,
        next_job INTEGER NOT NULL
    )
    """,
    f"PRAGMA application_id = {APPLICATION_ID}",
)

_EIGHTH = (
    # What lists show of a spec (`JobSpec.head`). It is apart from the spec, because SQLite walks
    # along a row to what is behind a long column. The head of a spec that cannot be read cannot be
    # read, either.
    "CREATE TABLE heads (job_id INTEGER PRIMARY KEY, head BLOB NOT NULL)",
    """
    INSERT INTO heads (job_id, head)
        SELECT job_id, CASE WHEN json_valid(CAST(spec AS TEXT))
            THEN CAST(json_remove(CAST(spec AS TEXT), '$.items', '$.env', '$.cleanup') AS BLOB)
            ELSE x'' END
        FROM specs
    """,
)

_NINTH = (
    # The job has ended, and its owner is still to be told.
    "ALTER TABLE jobs ADD COLUMN untold INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX jobs_untold ON jobs (job_id) WHERE untold",
)

_TENTH = (
    # A user had the task brought back after this attempt: none up to it can end the task any more.
    "ALTER TABLE tasks ADD COLUMN retried_after INTEGER NOT NULL DEFAULT 0",
)

_ELEVENTH = (
    # Consumption policies, and the expressions that say which workers they are for.
    """
    CREATE TABLE policies (
        name TEXT PRIMARY KEY,
        workers TEXT NOT NULL,
        text TEXT NOT NULL
    ) WITHOUT ROWID
    """,
)

#: What attempts have used (`store.sums.Used`), with how sums of both are made.
_USED_COLUMNS = {
    "attempts": "INTEGER NOT NULL DEFAULT 0",
    "tasks": "INTEGER NOT NULL DEFAULT 0",
    "cpu_seconds": "REAL NOT NULL DEFAULT 0",
    "wall_seconds": "REAL NOT NULL DEFAULT 0",
    "wait_seconds": "REAL NOT NULL DEFAULT 0",
    "byte_seconds": "REAL NOT NULL DEFAULT 0",
    "longest_wait_seconds": "REAL NOT NULL DEFAULT 0",
    "longest_wall_seconds": "REAL NOT NULL DEFAULT 0",
    "longest_cpu_seconds": "REAL NOT NULL DEFAULT 0",
    "peak_bytes": "INTEGER NOT NULL DEFAULT 0",
}

_TWELFTH = (
    # What the attempts of a job have used. For earlier jobs, only the last attempt of each task is
    # known.
    *(f"ALTER TABLE jobs ADD COLUMN {name} {kind}" for name, kind in _USED_COLUMNS.items()),
    """
    UPDATE jobs SET (attempts, tasks, cpu_seconds, wall_seconds, wait_seconds, byte_seconds,
            longest_wait_seconds, longest_wall_seconds, longest_cpu_seconds, peak_bytes) = (
        SELECT count(*), count(nullif(tasks.state, 0)),
            total(max(0.0, tasks.cpu_seconds)), total(max(0.0, tasks.wall_seconds)),
            total(iif(tasks.state, max(0.0, started_at - submitted_at), 0.0)),
            total(max(0.0, tasks.wall_seconds) * tasks.peak_bytes),
            coalesce(max(iif(tasks.state, max(0.0, started_at - submitted_at), 0.0)), 0.0),
            coalesce(max(max(0.0, tasks.wall_seconds)), 0.0),
            coalesce(max(max(0.0, tasks.cpu_seconds)), 0.0),
            coalesce(max(tasks.peak_bytes), 0)
        FROM tasks WHERE tasks.job_id = jobs.job_id AND number IS NOT NULL)
    """,
    # The same for users and days, by when results became durable; it outlasts the jobs.
    f"""
    CREATE TABLE usage (
        day INTEGER NOT NULL,  -- since 1970-01-01, UTC
        owner TEXT NOT NULL,
        {", ".join(f"{name} {kind}" for name, kind in _USED_COLUMNS.items())},
        PRIMARY KEY (day, owner)
    ) WITHOUT ROWID
    """,
    # The order in which ended jobs are forgotten.
    "CREATE INDEX jobs_ended ON jobs (ended_at, job_id) WHERE ended_at IS NOT NULL",
)

_THIRTEENTH = (
    # How often the task has asked for more memory than its job does.
    "ALTER TABLE tasks ADD COLUMN memory_step INTEGER NOT NULL DEFAULT 0",
    # What stopped a job that nobody cancelled: `deadline`; empty for all others.
    "ALTER TABLE jobs ADD COLUMN stopped_by TEXT NOT NULL DEFAULT ''",
)

_FOURTEENTH = (
    # Who holds the job back, since when and why, as JSON; NULL while nobody does.
    "ALTER TABLE jobs ADD COLUMN hold BLOB",
)

_FIFTEENTH = (
    # What is set for users, with what they have used lately, and for groups of them.
    """
    CREATE TABLE users (
        name TEXT PRIMARY KEY,
        weight REAL NOT NULL,
        member_of TEXT NOT NULL,  -- a group; empty for none
        max_running INTEGER,  -- this and the next: NULL for any number
        max_queued INTEGER,
        limits BLOB NOT NULL,  -- JSON: asset -> thousandths
        usage REAL NOT NULL,  -- weighted seconds, decayed up to the next
        usage_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE user_groups (
        name TEXT PRIMARY KEY,
        weight REAL NOT NULL,
        max_running INTEGER,
        max_queued INTEGER,
        limits BLOB NOT NULL
    ) WITHOUT ROWID
    """,
)

_SIXTEENTH = (
    # Assets of the whole pool, and how many tokens of each there are.
    """
    CREATE TABLE tokens (
        name TEXT PRIMARY KEY,
        total INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
)

_SEVENTEENTH = (
    # Jobs that a job waits for: ids in a row that must all end in one way. A child's id is higher.
    """
    CREATE TABLE edges (
        child INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        ending TEXT NOT NULL,  -- ok, ended or failed
        PRIMARY KEY (child, first)
    ) WITHOUT ROWID
    """,
    # All of these have ended as the job wants: it waits for none of them again.
    "ALTER TABLE jobs ADD COLUMN freed INTEGER NOT NULL DEFAULT 0",
    # The ends of those that were forgotten while it waited, as JSON; NULL for none.
    "ALTER TABLE jobs ADD COLUMN settled BLOB",
)

_EIGHTEENTH = (
    # Files that a task left and its job asked for: how many, and where they are, as JSON. NULL for
    # none.
    "ALTER TABLE tasks ADD COLUMN output_files INTEGER",
    "ALTER TABLE tasks ADD COLUMN outputs BLOB",
    # How long it took until they were there.
    "ALTER TABLE tasks ADD COLUMN stored_seconds REAL",
)

_NINETEENTH = (
    # Where a user is sent mail; empty for nowhere.
    "ALTER TABLE users ADD COLUMN mail TEXT NOT NULL DEFAULT ''",
    # Whether a job has ended and its owner is still to be sent a mail.
    "ALTER TABLE jobs ADD COLUMN unmailed INTEGER NOT NULL DEFAULT 0",
    "CREATE INDEX jobs_unmailed ON jobs (owner, job_id) WHERE unmailed",
)

_TWENTIETH = (
    # Where all output of a task is, as JSON. NULL where the row has all of it, or its worker the
    # rest.
    "ALTER TABLE tasks ADD COLUMN stdout_stored BLOB",
    "ALTER TABLE tasks ADD COLUMN stderr_stored BLOB",
)

_TWENTY_FIRST = (
    # How the stages of an attempt went, as JSON. NULL for none.
    "ALTER TABLE tasks ADD COLUMN stages BLOB",
)

_TWENTY_SECOND = (
    # The checkpoint from which the next attempt of a task goes on, as JSON; NULL to begin anew.
    "ALTER TABLE tasks ADD COLUMN checkpoint BLOB",
    # How many attempts were begun from a checkpoint.
    "ALTER TABLE jobs ADD COLUMN resumed INTEGER NOT NULL DEFAULT 0",
)

_TWENTY_THIRD = (
    # How much a user may have in the file share: NULL as for all, -1 for any number of bytes.
    "ALTER TABLE users ADD COLUMN max_stored INTEGER",
    # What his tasks have put there, by the hour in which that became known; as long as it counts.
    """
    CREATE TABLE stored (
        owner TEXT NOT NULL,
        hour INTEGER NOT NULL,  -- since 1970-01-01, UTC
        size_bytes INTEGER NOT NULL,
        PRIMARY KEY (owner, hour)
    ) WITHOUT ROWID
    """,
)

_TWENTY_FOURTH = (
    # What is lent to other pools and borrowed from them; the whole rule is JSON.
    """
    CREATE TABLE flock_rules (
        name TEXT PRIMARY KEY,
        direction TEXT NOT NULL,
        rule BLOB NOT NULL
    ) WITHOUT ROWID
    """,
    # Pools by which a flock is found again after a restart.
    """
    CREATE TABLE flock_peers (
        pool TEXT PRIMARY KEY,
        through INTEGER NOT NULL,
        heard_at REAL NOT NULL
    ) WITHOUT ROWID
    """,
)

_TWENTY_FIFTH = (
    # Events of workers, as long as they are kept.
    """
    CREATE TABLE member_events (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        worker TEXT NOT NULL,
        groups BLOB,  -- as JSON; NULL for none
        reason TEXT NOT NULL
    )
    """,
    "CREATE INDEX member_events_at ON member_events (at)",
    # The workers that have joined and are not gone, with the numbers of these events.
    """
    CREATE TABLE members (
        worker TEXT PRIMARY KEY,
        since INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # Groups of workers; the whole group is JSON.
    """
    CREATE TABLE worker_groups (
        name TEXT PRIMARY KEY,
        definition BLOB NOT NULL
    ) WITHOUT ROWID
    """,
)

_TWENTY_SIXTH = (
    # What handlers are still to be told, each in its own order.
    """
    CREATE TABLE handler_lines (
        handler TEXT NOT NULL,
        number INTEGER NOT NULL,
        told BLOB NOT NULL,  -- as JSON
        PRIMARY KEY (handler, number)
    ) WITHOUT ROWID
    """,
    # When triggers fired, as long as it is kept.
    """
    CREATE TABLE triggers_fired (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        trigger_name TEXT NOT NULL,
        actions BLOB NOT NULL,  -- as JSON, like the problems
        problems BLOB NOT NULL
    )
    """,
    # When each trigger last fired, and how often it has: that outlasts the log.
    """
    CREATE TABLE trigger_courses (
        trigger_name TEXT PRIMARY KEY,
        fired_at REAL NOT NULL,
        times INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # Recorded moments of the pool, for tests of triggers.
    """
    CREATE TABLE trigger_moments (
        number INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        packed BLOB NOT NULL
    )
    """,
)

_TWENTY_SEVENTH = (
    # Which restore of the pool this store comes from: `core.model.sealed_epoch`.
    "ALTER TABLE pool ADD COLUMN term INTEGER NOT NULL DEFAULT 0",
)

_TWENTY_EIGHTH = (
    # The most that a user's jobs that have not ended may take: NULL as for all, -1 for any size.
    "ALTER TABLE users ADD COLUMN max_queued_bytes INTEGER",
)

_TWENTY_NINTH = (
    # The least time that a task takes, as far as a lender's limit has shown; 0 if none has.
    "ALTER TABLE tasks ADD COLUMN least_seconds REAL NOT NULL DEFAULT 0",
)

_THIRTIETH = (
    # What a worker runs is one object in a spec, `program`: row by row, by a function of Python.
    "UPDATE specs SET spec = with_program(spec)",
    "UPDATE heads SET head = with_program(head)",
)


def _as_object(*pairs: object) -> bytes:
    """Makes an object of JSON of names and values in turn, for the step below.

    SQLite's own function writes numbers less exactly, and ends at a damaged text: here a text comes
    as its bytes. The limits of a group are JSON already.
    """
    found: dict[str, object] = {}
    for name, value in zip(pairs[::2], pairs[1::2], strict=True):
        if isinstance(value, bytes):
            value = msgspec.Raw(value) if name == "limits" else value.decode(errors="replace")
        found[str(name)] = value
    return msgspec.json.encode(found)


_THIRTY_FIRST = (
    # What admins set, list and remove by name, of all kinds (`core.settings.table`).
    """
    CREATE TABLE settings (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        about TEXT NOT NULL,  -- what has to be known of it even if the value cannot be read
        value BLOB NOT NULL,  -- as JSON
        PRIMARY KEY (kind, name)
    ) WITHOUT ROWID
    """,
    """
    INSERT INTO settings
        SELECT 'policy', name, '', as_object('name', CAST(name AS BLOB),
            'workers', CAST(workers AS BLOB), 'text', CAST(text AS BLOB))
        FROM policies
    """,
    """
    INSERT INTO settings
        SELECT 'asset', name, '', as_object('name', CAST(name AS BLOB), 'total', total) FROM tokens
    """,
    """
    INSERT INTO settings
        SELECT 'user group', name, '', as_object('name', CAST(name AS BLOB), 'weight', weight,
            'max_running', max_running, 'max_queued', max_queued, 'limits', CAST(limits AS BLOB))
        FROM user_groups
    """,
    "INSERT INTO settings SELECT 'flock rule', name, direction, rule FROM flock_rules",
    "INSERT INTO settings SELECT 'worker group', name, '', definition FROM worker_groups",
    "DROP TABLE policies",
    "DROP TABLE tokens",
    "DROP TABLE user_groups",
    "DROP TABLE flock_rules",
    "DROP TABLE worker_groups",
)

_THIRTY_SECOND: tuple[Statement, ...] = (
    # Items and long programs by their SHA-256, each once: items in pieces, by the index of the
    # first in each; a program as one piece.
    """
    CREATE TABLE texts (
        digest BLOB NOT NULL,
        first INTEGER NOT NULL,
        body BLOB NOT NULL,  -- as JSON
        PRIMARY KEY (digest, first)
    )
    """,
    # What rows in `specs` lack; a job that lacks nothing has no row here.
    """
    CREATE TABLE apart (
        job_id INTEGER PRIMARY KEY,
        spec_bytes INTEGER NOT NULL,  -- of the whole spec as JSON
        item_count INTEGER NOT NULL,
        items BLOB,  -- their digest; NULL for none
        program BLOB  -- its digest; NULL if the spec has all of it
    )
    """,
    "CREATE INDEX apart_items ON apart (items) WHERE items IS NOT NULL",
    "CREATE INDEX apart_programs ON apart (program) WHERE program IS NOT NULL",
    take_items_out,
)

MIGRATIONS: tuple[tuple[Statement, ...], ...] = (
    _FIRST,
    _SECOND,
    _THIRD,
    _FOURTH,
    _FIFTH,
    _SIXTH,
    _SEVENTH,
    _EIGHTH,
    _NINTH,
    _TENTH,
    _ELEVENTH,
    _TWELFTH,
    _THIRTEENTH,
    _FOURTEENTH,
    _FIFTEENTH,
    _SIXTEENTH,
    _SEVENTEENTH,
    _EIGHTEENTH,
    _NINETEENTH,
    _TWENTIETH,
    _TWENTY_FIRST,
    _TWENTY_SECOND,
    _TWENTY_THIRD,
    _TWENTY_FOURTH,
    _TWENTY_FIFTH,
    _TWENTY_SIXTH,
    _TWENTY_SEVENTH,
    _TWENTY_EIGHTH,
    _TWENTY_NINTH,
    _THIRTIETH,
    _THIRTY_FIRST,
    _THIRTY_SECOND,
)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Takes a database through the steps that it lacks, each in a transaction of its own.

    Args:
        path: the database's, for the message.

    Raises:
        StoreUnusable: a newer program made it.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(MIGRATIONS):
        raise StoreUnusable(
            f"{path} was made by a newer Kestrel",
            cause=f"its schema has version {version}; this program knows up to {len(MIGRATIONS)}",
            hint="start the newer Kestrel, or give this one another --data-dir",
        )
    connection.create_function("with_program", 1, with_program, deterministic=True)
    connection.create_function("as_object", -1, _as_object, deterministic=True)
    for number, statements in enumerate(MIGRATIONS[version:], start=version + 1):
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in statements:
                if isinstance(statement, str):
                    connection.execute(statement)
                else:
                    statement(connection)
            connection.execute(f"PRAGMA user_version = {number}")
