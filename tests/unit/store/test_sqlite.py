"""What is particular to the store on disk: files, locks, versions, damage, full disks, threads."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
import stat
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from store_samples import FULL_SPEC, done, failed, happening, job, waiting

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.records import (
    GroupRecord,
    JobForgotten,
    PolicyRecord,
    Progress,
    Record,
    TokenRecord,
    WorkerRecord,
)
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import KestrelError, StoreFull
from kestrelctl.store import reading, writing
from kestrelctl.store.directory import MOST_PATH_BYTES
from kestrelctl.store.sqlite import migrations
from kestrelctl.store.sqlite import store as sqlite
from kestrelctl.store.sqlite.errors import explained
from kestrelctl.store.sqlite.store import SqliteStore


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "lib" / "kestrel"


@pytest.fixture
def store(data_dir: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(data_dir)
    store.open()
    yield store
    store.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes_in(directory: Path) -> dict[str, int]:
    return {path.name: mode(path) for path in directory.iterdir()}


class TestFiles:
    async def test_nobody_else_can_read_them(self, data_dir: Path) -> None:
        umask = os.umask(0)
        try:
            store = SqliteStore(data_dir)
            store.open()
            await store.commit([job()])
            assert mode(data_dir) == 0o700
            found = modes_in(data_dir)
            store.close()
        finally:
            os.umask(umask)
        assert set(found) == {
            "kestrel.db", "kestrel.db-wal", "kestrel.db-shm", "kestrel.mark", "manager.lock"
        }  # fmt: skip
        assert set(found.values()) == {0o600}

    def test_a_readable_database_is_made_private(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True)
        (data_dir / "kestrel.db").touch(0o644)
        store = SqliteStore(data_dir)
        store.open()
        store.close()
        assert mode(data_dir / "kestrel.db") == 0o600

    @pytest.mark.parametrize("in_the_way", ["", "manager.lock", "kestrel.db"])
    def test_a_directory_that_cannot_be_used_is_named(
        self, data_dir: Path, in_the_way: str
    ) -> None:
        if in_the_way:
            (data_dir / in_the_way).mkdir(parents=True)
        else:
            data_dir.parent.mkdir()
            data_dir.touch()
        with pytest.raises(KestrelError, match=str(data_dir)) as caught:
            SqliteStore(data_dir).open()
        assert str(data_dir / in_the_way) in (caught.value.cause or "")
        assert "--data-dir" in (caught.value.hint or "")

    def test_a_power_failure_loses_nothing(self, store: SqliteStore) -> None:
        # FULL: the log is flushed to the disk at each commit. https://www.sqlite.org/pragma.html
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)

    async def test_statistics_count_the_log_too(self, store: SqliteStore, data_dir: Path) -> None:
        before = store.statistics().bytes_on_disk
        await store.commit([job(), *(done(index) for index in range(500))])
        found = store.statistics()
        sizes = [(data_dir / name).stat().st_size for name in ("kestrel.db", "kestrel.db-wal")]
        assert found.bytes_on_disk == sum(sizes) > before
        assert found.commit_seconds > 0


class TestOneManager:
    def test_a_second_one_is_told_who_holds_the_store(
        self, store: SqliteStore, data_dir: Path
    ) -> None:
        with pytest.raises(KestrelError, match="Another manager") as caught:
            SqliteStore(data_dir).open()
        assert f"process {os.getpid()} holds" in (caught.value.cause or "")
        assert "--data-dir" in (caught.value.hint or "")

    def test_the_refused_one_leaves_the_first_alone(
        self, store: SqliteStore, data_dir: Path
    ) -> None:
        for _ in range(2):
            with pytest.raises(KestrelError):
                SqliteStore(data_dir).open()
        store.close()
        assert store.open().epoch == 2

    def test_closing_twice_is_closing_once(self, store: SqliteStore) -> None:
        store.close()
        store.close()

    async def test_a_program_that_holds_the_database_is_waited_for(
        self, store: SqliteStore, data_dir: Path
    ) -> None:
        store._writer.execute("PRAGMA busy_timeout = 0")
        other = sqlite3.connect(data_dir / sqlite.DATABASE, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreFull) as caught:
            await store.commit([job()])
        assert "locked" in (caught.value.hint or "")
        other.execute("ROLLBACK")
        other.close()
        await store.commit([job()])
        assert store.jobs() == [job()]


class TestVersions:
    def version_1(self, data_dir: Path) -> Path:
        """A database as the first migration alone made it, with a little of everything in it."""
        data_dir.mkdir(parents=True)
        path = data_dir / sqlite.DATABASE
        old = sqlite3.connect(path)
        for statement in migrations.MIGRATIONS[0]:
            old.execute(statement)
        old.executescript(
            """
            PRAGMA user_version = 1;
            UPDATE pool SET epoch = 41, last_job_id = 7;
            INSERT INTO jobs VALUES
                (3, 'ada', 1.5, 'active', 0, 4, 0, 0, 0, 0, NULL),
                (5, 'bob', 2.5, 'done', 0, 1, 1, 0, 0, 0, 3.5);
            INSERT INTO specs VALUES (3, '{"argv":["true"],"count":9}'), (5, '{"argv":["id"]}');
            INSERT INTO tasks (job_id, idx, state, failures, losses, worker) VALUES
                (3, 0, 4, 0, 0, ''), (3, 2, 0, 1, 2, 'w');
            INSERT INTO tasks VALUES
                (3, 1, 1, 0, 0, 'w', 9, 0, 1.0, 2.0, 3.0, 4.0, 5, 0, 0, '', 'out', 'err', 3, 3);
            INSERT INTO workers VALUES ('w', 1);
            """
        )
        old.close()
        return path

    def check(self, store: SqliteStore) -> None:
        snapshot = store.open()
        assert (snapshot.epoch, snapshot.next_job_id) == (42, 8)
        assert snapshot.workers == [WorkerRecord("w", draining=True)]
        [found] = snapshot.jobs
        assert (found.record.job_id, found.record.spec.count) == (3, 9)
        assert found.record.counts == Counts(done=1, cancelled=1)
        assert (found.unfinished, found.counters) == ([2, 3], {2: (1, 2)})
        assert [record.state for record in store.jobs()] == ["active", "done"]
        assert store.happenings(3) == []
        [record] = store.tasks(3, indexes=[1])
        assert record.concluded == 0
        assert record.result is not None
        assert (record.result.number, record.result.stdout, record.result.peak_bytes) == (
            9,
            b"out",
            5,
        )
        version = store._reader.execute("PRAGMA user_version").fetchone()[0]
        store.close()
        assert version == len(migrations.MIGRATIONS)

    def test_the_first_one_is_still_understood(self, data_dir: Path) -> None:
        self.version_1(data_dir)
        self.check(SqliteStore(data_dir))

    def version_30(self, data_dir: Path, *statements: str) -> None:
        """A database as it was when each kind of settings had a table of its own."""
        data_dir.mkdir(parents=True)
        path = data_dir / sqlite.DATABASE
        old = sqlite3.connect(path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:30])
            migrations.migrate(old, path)
        for statement in statements:
            old.execute(statement)
        old.commit()
        old.close()

    def test_settings_of_all_kinds_are_brought_along(self, data_dir: Path) -> None:
        rule = b'{"name":"eve","direction":"borrow","action":"deny","users":["e\xc3\xa9"]}'
        self.version_30(
            data_dir,
            "INSERT INTO policies VALUES ('lean', 'Cpus > 1', 'ConsumptionCpus = 2\n# größer')",
            "INSERT INTO tokens VALUES ('seats', 9007199254740993)",
            """INSERT INTO user_groups VALUES ('bio', 0.1 + 0.2, NULL, 5, '{"cpus":8}')""",
            f"INSERT INTO flock_rules VALUES ('eve', 'borrow', x'{rule.hex()}')",
            """INSERT INTO worker_groups VALUES ('gpu', '{"name":"gpu","tags":["gpu"]}')""",
        )
        store = SqliteStore(data_dir)
        assert store.open().settings == [
            PolicyRecord("lean", "Cpus > 1", "ConsumptionCpus = 2\n# größer"),
            TokenRecord("seats", 9007199254740993),
            GroupRecord(name="bio", weight=0.1 + 0.2, max_queued=5, limits={"cpus": 8}),
            FlockRule(name="eve", direction="borrow", action="deny", users=("eé",)),
            WorkerGroup(name="gpu", tags=("gpu",)),
        ]
        store.close()

    def test_damaged_settings_do_not_keep_a_store_from_its_next_version(
        self, data_dir: Path
    ) -> None:
        self.version_30(
            data_dir,
            "INSERT INTO policies VALUES (CAST(x'ff' AS TEXT), 'true', CAST(x'ff' AS TEXT))",
            "INSERT INTO tokens VALUES ('seats', 'many'), ('matlab', x'00'), ('idl', 2)",
            "INSERT INTO user_groups VALUES ('bio', 9e999, NULL, NULL, x'00'),"
            " ('geo', 'heavy', NULL, NULL, '{}'), ('lab', 2.0, NULL, NULL, '{}')",
            "INSERT INTO flock_rules VALUES ('eve', 'borrow', x'00')",
            "INSERT INTO worker_groups VALUES ('gpu', 7)",
        )
        store = SqliteStore(data_dir)
        assert store.open().settings == [
            PolicyRecord("\ufffd", "true", "\ufffd"),  # it is no policy, as the core will find
            TokenRecord("idl", 2),
            GroupRecord(name="lab", weight=2.0),
            FlockRule(name="eve", direction="borrow", action="deny", order=0),
        ]
        store.close()

    def version_2(self, data_dir: Path, specs: dict[int, bytes]) -> None:
        """A database as it was when jobs asked for `cpus` and `memory_bytes`."""
        data_dir.mkdir(parents=True)
        old = sqlite3.connect(data_dir / sqlite.DATABASE)
        old.executescript(
            """
            CREATE TABLE pool (
                one INTEGER PRIMARY KEY CHECK (one = 1),
                epoch INTEGER NOT NULL,
                last_job_id INTEGER NOT NULL
            );
            INSERT INTO pool VALUES (1, 4, 9);
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
            );
            CREATE TABLE specs (job_id INTEGER PRIMARY KEY, spec BLOB NOT NULL);
            CREATE TABLE tasks (
                job_id INTEGER NOT NULL,
                idx INTEGER NOT NULL,
                state INTEGER NOT NULL,
                failures INTEGER NOT NULL,
                losses INTEGER NOT NULL,
                worker TEXT NOT NULL,
                number INTEGER,
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
                concluded INTEGER NOT NULL DEFAULT 0,
                PRIMARY KEY (job_id, idx)
            ) WITHOUT ROWID;
            CREATE INDEX tasks_not_done ON tasks (job_id, idx) WHERE state <> 1;
            CREATE TABLE workers (worker TEXT PRIMARY KEY, draining INTEGER NOT NULL) WITHOUT ROWID;
            CREATE TABLE forgotten (job_id INTEGER PRIMARY KEY);
            INSERT INTO workers VALUES ('v', 0), ('w', 1);
            PRAGMA user_version = 2;
            """
        )
        for job_id, spec in specs.items():
            job = (job_id, "ada", 1.5, "active", 0, 0, 0, 0, 0, 0, None)
            old.execute("INSERT INTO jobs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", job)
            old.execute("INSERT INTO specs VALUES (?, ?)", (job_id, spec))
        old.commit()
        old.close()

    def test_old_jobs_ask_for_what_they_asked_for_and_keep_all_else(self, data_dir: Path) -> None:
        items = tuple(
            f'{{"cpus": {n}, "memory_bytes": "\\u0000 ü\\n\\ud83d"}}' for n in range(40_000)
        )
        everything = replace(
            FULL_SPEC,
            count=len(items),
            items=items,
            program=replace(FULL_SPEC.program, env={"cpus": "8", "memory_bytes": "ü\n"}),
            request={"cpus": 0.3, "memory": 3 * 2**30 + 1},
            guest=None,  # there were none then
        )
        old = msgspec.to_builtins(everything)
        old |= old.pop("program")
        del old["request"]
        specs = {
            1: msgspec.json.encode({**old, "cpus": 0.3, "memory_bytes": 3 * 2**30 + 1}),
            2: b'{"argv":["true"]}',
            3: b'{"argv":["true"],"memory_bytes":1024,"requires":["gpu"]}',
            4: b'{"argv":["true"],"cpus":64,"memory_bytes":0,"time_limit_seconds":null}',
        }
        assert len(specs[1]) > 1 << 20
        self.version_2(data_dir, specs)
        store = SqliteStore(data_dir)
        snapshot = store.open()
        assert [found.record.spec for found in snapshot.jobs] == [
            replace(everything, items=None),
            JobSpec(program=Program(argv=("true",)), request={"cpus": 1}),
            JobSpec(
                program=Program(argv=("true",)),
                request={"cpus": 1, "memory": 1024},
                requires=("gpu",),
            ),
            JobSpec(program=Program(argv=("true",)), request={"cpus": 64}),
        ]
        assert [found.spec for found in store.jobs()] == [
            found.record.spec.head() for found in snapshot.jobs
        ]
        whole = store.job(1)
        assert whole is not None
        assert whole.spec == everything
        rows = store._reader.execute("SELECT spec FROM specs").fetchall()
        heads = store._reader.execute("SELECT length(head) FROM heads").fetchall()
        assert max(heads) < (1_000,)
        store.close()
        assert all(isinstance(spec, bytes) for (spec,) in rows)
        assert not any(json.loads(spec).keys() & {"cpus", "memory_bytes"} for (spec,) in rows)

    async def test_what_old_workers_offer_is_not_known_until_they_say_so(
        self, data_dir: Path
    ) -> None:
        self.version_2(data_dir, {})
        store = SqliteStore(data_dir)
        assert store.open().workers == [
            WorkerRecord("v"),
            WorkerRecord("w", draining=True),
        ]
        said = WorkerAd(assets={"cpus": 8, "fpga": 2}, tags=("gpu",), host="lab7", version="0.2")
        await store.commit([WorkerRecord("w", ad=said)])
        store.close()
        assert store.open().workers == [
            WorkerRecord("v"),
            WorkerRecord("w", ad=said),
        ]
        store.close()

    def test_a_further_step_is_taken_once(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.version_1(data_dir)
        step = ("ALTER TABLE workers ADD COLUMN note TEXT", "UPDATE workers SET note = 'new'")
        monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, step))
        self.check(SqliteStore(data_dir))
        store = SqliteStore(data_dir)
        store.open()
        assert store._reader.execute("SELECT note FROM workers").fetchall() == [("new",)]
        store.close()

    def test_a_step_that_fails_changes_nothing(
        self, data_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.version_1(data_dir)
        with monkeypatch.context() as patch:
            step = ("DELETE FROM tasks", "ALTER TABLE nonsense ADD COLUMN note TEXT")
            patch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, step))
            with pytest.raises(KestrelError, match="failed") as caught:
                SqliteStore(data_dir).open()
            assert "no such table: nonsense" in (caught.value.cause or "")
        self.check(SqliteStore(data_dir))

    def test_one_from_the_future_is_refused_and_left_alone(self, data_dir: Path) -> None:
        path = self.version_1(data_dir)
        future = sqlite3.connect(path)
        future.execute("PRAGMA user_version = 1000")
        future.close()
        before = path.read_bytes()
        with pytest.raises(KestrelError, match="newer Kestrel") as caught:
            SqliteStore(data_dir).open()
        assert "version 1000" in (caught.value.cause or "")
        assert caught.value.hint
        assert path.read_bytes() == before


class TestDamage:
    def refused(self, data_dir: Path) -> None:
        with pytest.raises(KestrelError, match="damaged") as caught:
            SqliteStore(data_dir).open()
        assert not isinstance(caught.value, StoreFull)
        assert "kestrel.db" in (caught.value.cause or "")
        assert "backup" in (caught.value.hint or "")

    def test_a_file_that_is_no_database(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True)
        (data_dir / sqlite.DATABASE).write_bytes(b"these are not the bytes " * 1000)
        self.refused(data_dir)

    async def test_a_database_with_holes(self, store: SqliteStore, data_dir: Path) -> None:
        await store.commit([job(), *(done(index) for index in range(2000))])
        store.close()
        path = data_dir / sqlite.DATABASE
        with path.open("r+b") as file:
            for page in range(2, path.stat().st_size // 4096):
                file.seek(page * 4096)
                file.write(b"\xff" * 4096)
        self.refused(data_dir)

    async def test_damage_found_while_working_is_told_as_such(
        self, store: SqliteStore, data_dir: Path
    ) -> None:
        await store.commit([job(), *(done(index) for index in range(2000))])
        store.close()
        path = data_dir / sqlite.DATABASE
        with sqlite3.connect(path) as reader:
            [root] = reader.execute(
                "SELECT rootpage FROM sqlite_master WHERE name = 'tasks'"
            ).fetchone()
            reader.execute("UPDATE jobs SET state = 'done'")  # Recovery does not look at its tasks.
        reader.close()
        with path.open("r+b") as file:
            file.seek((root - 1) * 4096)
            file.write(b"\xff" * 4096)
        store.open()
        for ask in (lambda: store.tasks(1), lambda: store.ended_badly(1, [5])):
            with pytest.raises(KestrelError, match="damaged"):
                ask()
        with pytest.raises(KestrelError, match="damaged"):
            await store.commit([done(1)])
        await store.commit([job(2)])
        assert [found.job_id for found in store.jobs()] == [1, 2]


@contextmanager
def no_file_longer_than(size_bytes: int) -> Iterator[None]:
    """Writes beyond that size fail, as with an exceeded quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class TestFullDisk:
    async def test_a_commit_that_cannot_be_written_leaves_nothing(
        self, store: SqliteStore, data_dir: Path
    ) -> None:
        await store.commit([job(), done(0)])
        batch: list[Record] = [Progress(1, 300), *(failed(index) for index in range(300))]
        log = data_dir / "kestrel.db-wal"
        for room_bytes in (0, 100, 5000, 20000):
            with no_file_longer_than(log.stat().st_size + room_bytes):
                with pytest.raises(StoreFull) as caught:
                    await store.commit(batch)
                assert str(data_dir) in (caught.value.hint or "")
                assert store.tasks(1) == [done(0)]
        await store.commit(batch)
        assert store.tasks(1) == batch[1:]
        store.close()
        assert store.open().jobs[0].record.counts == Counts(failed=300)

    @pytest.mark.parametrize("too_long_bytes", [0, 1])
    def test_a_path_that_is_too_long_is_no_full_disk(
        self, data_dir: Path, too_long_bytes: int
    ) -> None:
        data_dir = data_dir.resolve()
        size_bytes = MOST_PATH_BYTES + too_long_bytes - len(f"/{sqlite.DATABASE}")
        while (left_bytes := size_bytes - len(os.fsencode(data_dir))) > 0:
            name_bytes = left_bytes - 1 if left_bytes <= 200 else 100
            data_dir = data_dir / ("x" * name_bytes)
        store = SqliteStore(data_dir)
        if not too_long_bytes:
            assert store.open().epoch == 1
            store.close()
            return
        with pytest.raises(KestrelError) as caught:
            store.open()
        assert type(caught.value) is KestrelError
        assert "its path has 505 bytes, and SQLite takes 504" in (caught.value.cause or "")
        assert "space" not in f"{caught.value} {caught.value.cause} {caught.value.hint}"

    @pytest.mark.parametrize("code", ["READONLY", "CANTOPEN"])
    def test_what_may_not_be_written_is_no_full_disk(self, data_dir: Path, code: str) -> None:
        refused = sqlite3.OperationalError("no")
        refused.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{code}")
        with pytest.raises(StoreFull) as caught, explained(data_dir / sqlite.DATABASE):
            raise refused
        assert "space" not in (caught.value.hint or "")
        assert "user" in (caught.value.hint or "")

    def test_a_store_that_cannot_be_made_says_so(self, data_dir: Path) -> None:
        data_dir.mkdir(parents=True)
        with no_file_longer_than(5000), pytest.raises(StoreFull):
            SqliteStore(data_dir).open()
        store = SqliteStore(data_dir)
        assert store.open().epoch == 1
        store.close()


class TestWhileACommitIsUnderWay:
    @pytest.fixture
    def disk(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[threading.Event]:
        """The disk: while this is not set, commits wait for it."""
        disk, end = threading.Event(), store._end

        def wait_and_end() -> None:
            disk.wait()
            end()

        monkeypatch.setattr(store, "_end", wait_and_end)
        disk.set()
        yield disk
        disk.set()

    async def begun(
        self, store: SqliteStore, disk: threading.Event, records: list[Record]
    ) -> asyncio.Task[None]:
        disk.clear()
        commit = asyncio.create_task(store.commit(records))
        await asyncio.sleep(0)
        assert not commit.done()
        return commit

    async def test_the_loop_is_free_and_what_is_read_is_durable(
        self, store: SqliteStore, disk: threading.Event
    ) -> None:
        await store.commit([job(), failed(0)])
        commit = await self.begun(store, disk, [job(2), done(0)])
        assert store.jobs() == [job()]
        assert store.tasks(1) == [failed(0)]
        assert store.ended_badly(1) == [(0, "failed")]
        disk.set()
        await commit
        assert store.jobs() == [job(), job(2)]
        assert store.tasks(1) == [done(0)]
        assert store.ended_badly(1) == []

    async def test_a_second_one_is_a_mistake_of_the_caller(
        self, store: SqliteStore, disk: threading.Event
    ) -> None:
        commit = await self.begun(store, disk, [job()])
        with pytest.raises(AssertionError, match="one commit at a time"):
            await store.commit([job(2)])
        disk.set()
        await commit
        assert store.jobs() == [job()]

    async def test_a_cancelled_one_ends_before_the_next(
        self, store: SqliteStore, disk: threading.Event
    ) -> None:
        commit = await self.begun(store, disk, [job()])
        commit.cancel()
        disk.set()
        with pytest.raises(asyncio.CancelledError):
            await commit
        await store.commit([job(2)])
        assert store.jobs() == [job(), job(2)]

    async def test_closing_waits_for_it(self, store: SqliteStore, disk: threading.Event) -> None:
        commit = await self.begun(store, disk, [job()])
        disk.set()
        store.close()
        await commit
        store.open()
        assert store.jobs() == [job()]

    async def test_one_that_fails_half_way_leaves_nothing_behind(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(connection: sqlite3.Connection) -> None:
            raise MemoryError

        with monkeypatch.context() as patch:
            patch.setattr(sqlite, "delete_forgotten", fail)
            with pytest.raises(MemoryError):
                await store.commit([job()])
        await store.commit([job(2)])
        assert store.jobs() == [job(2)]


class TestSize:
    async def test_a_long_forgotten_job_goes_piece_by_piece(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "FORGET_ROWS", 100)
        await store.commit([job(1, state="done"), *(done(index) for index in range(250))])
        await store.commit([job(2), done(0, 2), JobForgotten(1)])
        left = []
        for cursor in range(4):
            left += store._reader.execute("SELECT count(*) FROM tasks WHERE job_id = 1").fetchone()
            assert (store.tasks(1), store.ended_badly(1)) == ([], [])
            store.close()
            assert [found.record.job_id for found in store.open().jobs] == [2]
            await store.commit([Progress(2, cursor)])
        assert left == [150, 50, 0, 0]
        assert store._reader.execute("SELECT count(*) FROM forgotten").fetchone() == (0,)
        assert store.tasks(2) == [done(0, 2)]
        for table in ("jobs", "specs", "heads"):
            assert store._reader.execute(f"SELECT job_id FROM {table}").fetchall() == [(2,)]

    async def test_a_long_story_goes_after_the_tasks_of_its_job_piece_by_piece(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writing, "FORGET_ROWS", 100)
        told = [happening(index) for index in range(210)]
        await store.commit([job(1, state="done"), *map(done, range(150)), *told])
        await store.commit([job(2), happening(0, 2), JobForgotten(1)])
        left = []
        for cursor in range(4):
            left += store._reader.execute(
                "SELECT count(*) FROM happenings WHERE job_id = 1"
            ).fetchone()
            assert (store.happenings(1), store.count_happenings(1)) == ([], 0)
            await store.commit([Progress(2, cursor)])
        assert left == [210, 160, 60, 0]
        assert store._reader.execute("SELECT count(*) FROM forgotten").fetchone() == (0,)
        assert store.happenings(2) == [happening(0, 2)]

    async def test_the_story_of_a_job_is_found_without_a_walk(self, store: SqliteStore) -> None:
        others = [happening(index, 2) for index in range(20_000)]
        await store.commit([job(1), job(2), happening(0), *others, happening(1)])
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 100

        store._reader.set_progress_handler(count, 100)
        assert store.happenings(1) == [happening(0), happening(1)]
        assert store.happenings(1, indexes=[1]) == [happening(1)]
        assert steps < 1_000

    async def test_a_page_of_the_newest_jobs_is_read_without_a_walk(
        self, store: SqliteStore
    ) -> None:
        ended = [job(n, owner="ada", state="done", ended_at=float(n)) for n in range(1, 5_001)]
        await store.commit(ended)
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 100

        store._reader.set_progress_handler(count, 100)
        assert store.jobs(limit=10) == ended[-10:]
        assert store.jobs(limit=10, states=["done"], owner="ada") == ended[-10:]
        assert store.jobs(limit=10, ended_of="ada", before=2_001) == ended[1_990:2_000]
        assert store.ended_before(9.0, limit=10) == list(range(1, 9))
        assert steps < 10_000

    async def test_a_start_reads_no_task_of_a_job_that_has_ended(self, store: SqliteStore) -> None:
        many = [done(index) for index in range(20_000)]
        await store.commit([job(1, state="done", ended_at=1.0), *many, job(2)])
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 100

        store._reader.set_progress_handler(count, 100)
        found = reading.snapshot(store._reader, lambda *_: None)
        assert [unfinished.record.job_id for unfinished in found.jobs] == [2]
        assert steps < 2_000

    async def test_the_few_that_are_not_done_are_found_without_a_walk(
        self, store: SqliteStore
    ) -> None:
        many = [done(index) for index in range(20_000)]
        await store.commit([job(), *many, failed(7_000), waiting(13_000, failures=1)])
        steps = 0

        def count() -> None:
            nonlocal steps
            steps += 1000

        store._reader.set_progress_handler(count, 1000)
        assert store.ended_badly(1) == [(7_000, "failed")]
        assert store.ended_badly(1, [3, 7_000]) == [(7_000, "failed")]
        assert store.tasks(1, states=[failed(0).state], after=5) == [failed(7_000)]
        assert len(store.tasks(1, indexes=[4, 19_999], after=1)) == 2
        assert steps < 5_000

    async def test_a_long_spec_is_written_once(self, store: SqliteStore, data_dir: Path) -> None:
        items = tuple(f"item number {index}" for index in range(50_000))
        record = job(spec=JobSpec(program=Program(argv=("echo", "{}")), count=50_000, items=items))
        await store.commit([record])
        store.close()
        store.open()
        for cursor in range(10):
            await store.commit([Progress(1, cursor)])
        await store.commit([job(spec=record.spec, state="done")])
        assert (data_dir / "kestrel.db-wal").stat().st_size < 200_000
        assert store.job(1) == job(spec=record.spec, state="done")

    @pytest.mark.parametrize("ended", [False, True])
    async def test_a_list_of_jobs_reads_nothing_that_is_long_in_them(
        self, store: SqliteStore, ended: bool
    ) -> None:
        spec = JobSpec(
            program=Program(argv=("echo", "{}", *["a" * 1_000] * 100), env={"LONG": "e" * 100_000}),
            count=3_000,
            items=tuple(f"{index:0100}" for index in range(3_000)),
        )
        for job_id in range(1, 101):
            await store.commit([job(job_id, spec=spec, state="done" if ended else "active")])
        read: list[str] = []
        store._reader.set_trace_callback(read.append)
        tracemalloc.start()
        found = store.jobs(limit=100)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(found) == 100
        assert most_bytes < 2_000_000
        assert not any("specs" in statement for statement in read)


class TestKeys:
    async def test_a_key_is_found_without_walking_through_the_jobs(
        self, store: SqliteStore
    ) -> None:
        await store.commit([job(n, key=f"k{n}") for n in range(1, 4)])
        query = "SELECT job_id FROM jobs WHERE owner = 'x' AND submission_key = 'y'"
        [(*_, plan)] = store._reader.execute(f"EXPLAIN QUERY PLAN {query}").fetchall()
        assert plan.startswith("SEARCH jobs USING")
        assert "jobs_by_key" in plan

    async def test_two_jobs_of_an_owner_cannot_have_one_key(self, store: SqliteStore) -> None:
        await store.commit([job(1, key="k")])
        with pytest.raises(sqlite3.IntegrityError):
            await store.commit([job(2, key="k")])
        assert [found.job_id for found in store.jobs()] == [1]
        await store.commit([job(3), job(4), job(5, key="k", owner="bob")])
