"""What the store in PostgreSQL promises besides: nobody guesses, and no other manager commits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from postgresqlkit import PostgresqlServer, database_of
from store_samples import done, happening, job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.records import JobRecord, Progress
from kestrelctl.errors import (
    KestrelError,
    NotAllowed,
    StoreFull,
    StoreUnusable,
    Unreachable,
    UsageError,
)
from kestrelctl.store.postgresql import commits
from kestrelctl.store.postgresql.batch import Batch
from kestrelctl.store.postgresql.reader import LinkReader
from kestrelctl.store.postgresql.store import PostgresqlStore

POOL = "pool.internal"
Opener = Callable[..., PostgresqlStore]


@pytest.fixture
def opener(tmp_path: Path) -> Iterator[Opener]:
    """Opens stores, each with a directory of its own unless told otherwise; closes them all."""
    found: list[PostgresqlStore] = []

    def opened(conninfo: str, pool: str = POOL, directory: str = "") -> PostgresqlStore:
        store = PostgresqlStore(tmp_path / (directory or f"m{len(found)}"), conninfo, pool)
        found.append(store)
        store.open()
        return store

    yield opened
    for store in found:
        store.close()


def hang(server: PostgresqlServer, store: PostgresqlStore) -> None:
    """Has a manager be as if it had been frozen until its lease was over."""
    store.leadership._stop_renewing()
    server.run("UPDATE leader SET until = '-infinity'", database=database_of(store._conninfo))


async def until(found: Callable[[], Any]) -> Any:
    """What is found at last; the server needs a moment until it shows what it waits for."""
    while not (answer := await asyncio.to_thread(found)):
        await asyncio.sleep(0)
    return answer


def waiting(
    server: PostgresqlServer, store: PostgresqlStore, event: str
) -> Callable[[], list[Any]]:
    """Finds the backends of a store that wait for something."""
    database = database_of(store._conninfo)
    return lambda: server.run(
        f"SELECT pid FROM pg_stat_activity WHERE datname = '{database}' AND wait_event = '{event}'"
    )


def _done_or(task: asyncio.Task[None], found: Callable[[], Any]) -> Any:
    return task.done() or found()


def _are_logged(caplog: pytest.LogCaptureFixture, warnings: int) -> bool:
    return caplog.text.count("canceling wait for synchronous replication") >= warnings


class TestOneManager:
    async def test_one_that_was_taken_over_commits_nothing(
        self, opener: Opener, conninfo: str, server: PostgresqlServer
    ) -> None:
        first = opener(conninfo)
        await first.commit([job(1)])
        hang(server, first)
        second = opener(conninfo)
        with pytest.raises(StoreUnusable, match="Another manager"):
            await first.commit([job(2), done(0)])
        assert [each.job_id for each in second.jobs()] == [1]
        assert second.tasks(1) == []
        await second.commit([job(2)])
        assert second.open is not None
        assert [each.job_id for each in first.jobs()] == [1, 2]

    async def test_a_takeover_waits_for_a_commit_that_is_under_way(
        self, opener: Opener, conninfo: str, server: PostgresqlServer
    ) -> None:
        first = opener(conninfo)
        hang(server, first)
        with psycopg.connect(server.conninfo(database_of(conninfo))) as other:
            other.execute("UPDATE pool SET term = term")
            committing = asyncio.create_task(first.commit([job(1)]))
            await until(waiting(server, first, "transactionid"))
            taking = asyncio.create_task(asyncio.to_thread(opener, conninfo))
            await until(lambda: len(waiting(server, first, "tuple")()) == 1)
            other.rollback()
        await committing
        second = await taking
        assert [each.job_id for each in second.jobs()] == [1]


class TestLostConnections:
    @pytest.fixture
    def lose(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
        """Has the connection of the next commit be lost, before or after the server has done it."""
        whole = Batch.commit

        def at(after: bool) -> None:
            def commit(batch: Batch) -> None:
                monkeypatch.setattr(Batch, "commit", whole)
                if after:
                    whole(batch)
                batch._link.close()
                raise psycopg.OperationalError("server closed the connection unexpectedly")

            monkeypatch.setattr(Batch, "commit", commit)

        return at

    async def test_a_commit_whose_answer_was_lost_counts_once(
        self, in_postgresql: PostgresqlStore, lose: Callable[[bool], None]
    ) -> None:
        lose(True)
        await in_postgresql.commit([job(1), happening(0)])
        assert in_postgresql.count_happenings(1) == 1
        await in_postgresql.commit([happening(0)])
        assert in_postgresql.count_happenings(1) == 2

    async def test_a_commit_that_was_lost_is_made_again(
        self, in_postgresql: PostgresqlStore, lose: Callable[[bool], None]
    ) -> None:
        lose(False)
        await in_postgresql.commit([job(1), happening(0)])
        assert in_postgresql.count_happenings(1) == 1

    async def test_a_commit_that_is_lost_again_and_again_may_be_tried_later(
        self, in_postgresql: PostgresqlStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def commit(batch: Batch) -> None:
            batch._link.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        batch = [job(1), happening(0)]
        with monkeypatch.context() as patch:
            patch.setattr(Batch, "commit", commit)
            with pytest.raises(StoreFull) as caught:
                await in_postgresql.commit(batch)
        assert "does not count" in str(caught.value.cause)
        assert in_postgresql.jobs() == []
        await in_postgresql.commit(batch)
        assert in_postgresql.count_happenings(1) == 1

    async def test_a_commit_whose_backend_was_killed_is_made_again(
        self, in_postgresql: PostgresqlStore, server: PostgresqlServer, conninfo: str
    ) -> None:
        with psycopg.connect(server.conninfo(database_of(conninfo))) as other:
            other.execute("UPDATE pool SET term = term")
            committing = asyncio.create_task(in_postgresql.commit([job(1)]))
            [(backend,)] = await until(waiting(server, in_postgresql, "transactionid"))
            server.run(f"SELECT pg_terminate_backend({backend}, 60000)")
            await until(waiting(server, in_postgresql, "transactionid"))  # it asks, and waits
            other.rollback()
        await committing
        assert [each.job_id for each in in_postgresql.jobs()] == [1]

    async def test_a_late_commit_of_a_lost_connection_fails(
        self, in_postgresql: PostgresqlStore
    ) -> None:
        """A server may get it when the next connection has asked already."""
        writer = in_postgresql._writer
        assert writer is not None
        late = Batch(writer._link)
        number, epoch = writer._connection, writer._reached.epoch
        writer._connect_again()
        late.execute(commits._COUNT_COMMIT, (epoch, number))
        with pytest.raises(psycopg.errors.CheckViolation):
            late.commit()
        late._link.close()
        await in_postgresql.commit([job(1)])

    async def test_it_asks_until_the_server_answers(
        self,
        in_postgresql: PostgresqlStore,
        lose: Callable[[bool], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(commits, "ASK_AGAIN_SECONDS", 0.0)
        writer = in_postgresql._writer
        assert writer is not None
        again, asked = writer._connect, []

        def away() -> Any:
            asked.append(1)
            if len(asked) < 3:
                raise Unreachable("nobody is there", cause="connection refused")
            return again()

        monkeypatch.setattr(writer, "_connect", away)
        lose(True)
        told: list[str] = []
        await in_postgresql.commit([job(1), happening(0)], told.append)
        assert len(asked) == 3
        assert told == ["nobody is there: connection refused"] * 2
        assert in_postgresql.count_happenings(1) == 1

    async def test_a_server_that_lost_commits_is_not_gone_on_with(
        self,
        in_postgresql: PostgresqlStore,
        lose: Callable[[bool], None],
        server: PostgresqlServer,
        conninfo: str,
    ) -> None:
        await in_postgresql.commit([job(1)])
        server.run("UPDATE pool SET commits = commits - 1", database=database_of(conninfo))
        lose(False)
        with pytest.raises(StoreUnusable, match="lost commits"):
            await in_postgresql.commit([job(2)])

    async def test_what_a_lost_connection_was_asked_is_asked_again(
        self, in_postgresql: PostgresqlStore, server: PostgresqlServer, conninfo: str
    ) -> None:
        await in_postgresql.commit([job(1)])
        server.run(
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
            f" WHERE datname = '{database_of(conninfo)}'"
        )
        assert [each.job_id for each in in_postgresql.jobs()] == [1]
        await in_postgresql.commit([job(2)])
        assert [each.job_id for each in in_postgresql.jobs()] == [1, 2]

    async def test_a_cancelled_commit_does_not_wait_for_a_server_for_ever(
        self,
        in_postgresql: PostgresqlStore,
        lose: Callable[[bool], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(commits, "ASK_AGAIN_SECONDS", 1000.0)
        writer = in_postgresql._writer
        assert writer is not None
        asked = threading.Event()

        def away() -> Any:
            asked.set()
            raise Unreachable("nobody is there", cause="connection refused")

        monkeypatch.setattr(writer, "_connect", away)
        lose(True)
        committing = asyncio.create_task(in_postgresql.commit([job(1)]))
        await asyncio.to_thread(asked.wait)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing


class TestDurability:
    async def test_a_commit_that_was_not_waited_for_is_waited_for_again(
        self,
        in_postgresql: PostgresqlStore,
        server: PostgresqlServer,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A replica is missing, and somebody cancels the wait: that ends without an error."""
        server.run(
            "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"
        )
        try:
            waits = waiting(server, in_postgresql, "SyncRep")
            committing = asyncio.create_task(in_postgresql.commit([job(1)]))
            while await until(partial(_done_or, committing, waits)) is True:
                # The server has not read its settings yet.
                committing = asyncio.create_task(in_postgresql.commit([job(1)]))
            for cancelled in (0, 1, 2):
                await until(partial(_are_logged, caplog, cancelled))
                found = await until(partial(_done_or, committing, waits))
                assert found is not True, "nobody has waited for the replica"
                [(backend,)] = found
                server.run(f"SELECT pg_cancel_backend({backend})")
        finally:
            server.run(
                "SET synchronous_commit = local",
                "ALTER SYSTEM RESET synchronous_standby_names",
                "SELECT pg_reload_conf()",
            )
        await committing
        assert [each.job_id for each in in_postgresql.jobs()] == [1]

    @pytest.mark.parametrize("level", ["off", "local", "remote_write"])
    def test_a_server_that_would_lose_commits_is_refused(
        self, opener: Opener, server: PostgresqlServer, conninfo: str, level: str
    ) -> None:
        server.run(f"ALTER ROLE {database_of(conninfo)} SET synchronous_commit = {level}")
        with pytest.raises(StoreUnusable, match=level) as caught:
            opener(conninfo)
        assert "SET synchronous_commit = on" in str(caught.value.hint)

    def test_a_server_without_fsync_is_told_of(self, in_postgresql: PostgresqlStore) -> None:
        assert any("fsync" in note for note in in_postgresql.notes())


class TestMessages:
    @pytest.fixture
    def sent(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """Notes each message of a batch."""
        found: list[int] = []
        whole = Batch._send

        def send(batch: Batch) -> None:
            found.append(1)
            whole(batch)

        monkeypatch.setattr(Batch, "_send", send)
        return found

    async def test_a_commit_of_tasks_is_one_message(
        self, in_postgresql: PostgresqlStore, sent: list[int]
    ) -> None:
        await in_postgresql.commit([job(1), job(2)])
        sent.clear()
        await in_postgresql.commit(
            [*(done(index) for index in range(500)), done(0, 2), Progress(1, 500), happening(3)]
        )
        assert len(sent) == 1
        assert len(in_postgresql.tasks(1)) == 500

    async def test_new_jobs_are_not_asked_for(
        self, in_postgresql: PostgresqlStore, sent: list[int]
    ) -> None:
        await in_postgresql.commit([job(job_id) for job_id in range(1, 50)])
        assert len(sent) == 1
        assert len(in_postgresql.jobs()) == 49

    async def test_long_parts_of_new_jobs_are_asked_for_once(
        self, in_postgresql: PostgresqlStore, sent: list[int]
    ) -> None:
        def long(job_id: int) -> JobRecord:
            program = Program(argv=("run", *("word",) * 1_000, str(job_id % 7)))
            return job(job_id, spec=JobSpec(program=program))

        await in_postgresql.commit([long(1)])
        sent.clear()
        await in_postgresql.commit([long(job_id) for job_id in range(2, 40)])
        assert len(sent) == 2
        found = in_postgresql.job(39)
        assert found is not None
        assert found.spec == long(39).spec

    async def test_jobs_of_an_earlier_start_are_asked_for_once(
        self, in_postgresql: PostgresqlStore, sent: list[int]
    ) -> None:
        await in_postgresql.commit([job(1), job(2)])
        in_postgresql.close()
        in_postgresql.open()
        sent.clear()
        await in_postgresql.commit([job(1, state="done"), done(0, 2)])
        assert len(sent) == 2
        await in_postgresql.commit([job(1, state="done"), done(1, 2)])
        assert len(sent) == 3
        assert [each.state for each in in_postgresql.jobs()] == ["done", "active"]

    async def test_a_large_batch_goes_in_several(
        self,
        in_postgresql: PostgresqlStore,
        sent: list[int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("kestrelctl.store.postgresql.batch.MOST_WAITING_BYTES", 10_000)
        monkeypatch.setattr("kestrelctl.store.postgresql.batch.MOST_ROWS", 50)
        await in_postgresql.commit([job(1), *(done(index) for index in range(500))])
        assert len(sent) > 5
        assert len(in_postgresql.tasks(1)) == 500

    async def test_a_question_is_answered_in_another_thread(
        self, in_postgresql: PostgresqlStore
    ) -> None:
        await in_postgresql.commit([job(1)])
        ids, thread = await in_postgresql.ask(lambda read: (read.job_ids(), threading.get_ident()))
        assert ids == [1]
        assert thread != threading.get_ident()


class TestBadServers:
    def refused(self, opener: Opener, kind: type[KestrelError], *how: str) -> KestrelError:
        with pytest.raises(kind) as caught:
            opener(*how)
        assert caught.value.cause
        assert caught.value.hint
        return caught.value

    def test_a_server_that_is_not_there(self, opener: Opener, tmp_path: Path) -> None:
        error = self.refused(opener, Unreachable, f"host={tmp_path} dbname=x")
        assert str(tmp_path) in str(error.cause)

    def test_a_role_that_is_not_there(self, opener: Opener, server: PostgresqlServer) -> None:
        error = self.refused(opener, NotAllowed, server.conninfo(user="nobody"))
        assert "nobody" in str(error.cause)

    async def test_a_role_with_a_password_is_given_it_for_each_connection(
        self, server: PostgresqlServer, tmp_path: Path
    ) -> None:
        conninfo = server.new_database("s3cret")
        store = PostgresqlStore(tmp_path, conninfo, POOL, password="s3cret")
        store.open()
        try:
            await store.commit([job(1)])
            assert await store.ask(lambda reads: reads.job_ids()) == [1]
            store.kept_text("note").write("text")
        finally:
            store.close()

    @pytest.mark.parametrize("password", ["", "wr0ng"])
    def test_a_role_whose_password_is_not_known(
        self, password: str, server: PostgresqlServer, tmp_path: Path
    ) -> None:
        store = PostgresqlStore(tmp_path, server.new_database("s3cret"), POOL, password=password)
        with pytest.raises(NotAllowed) as caught:
            store.open()
        assert "password" in str(caught.value.cause)
        assert "wr0ng" not in f"{caught.value} {caught.value.cause} {caught.value.hint}"

    @pytest.mark.parametrize(
        "words",
        [
            "the database system is starting up",
            "the database system is shutting down",
            "the database system is not yet accepting connections",
            "sorry, too many clients already",
            'too many connections for role "kestrel"',
        ],
    )
    def test_a_server_that_refuses_everybody_for_now_may_be_asked_again(
        self, words: str, opener: Opener, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The status of the manager's end says so: systemd does not start a refused one again."""

        def refuses(*_: object, **__: object) -> None:
            raise psycopg.OperationalError(f"connection failed: FATAL:  {words}")

        monkeypatch.setattr(psycopg, "connect", refuses)
        error = self.refused(opener, Unreachable, "dbname=x")
        assert words in str(error.cause)

    def test_a_role_without_rights(
        self, opener: Opener, server: PostgresqlServer, conninfo: str
    ) -> None:
        role = database_of(conninfo)
        error = self.refused(opener, StoreUnusable, server.conninfo("postgres", role))
        assert "owner" in str(error.hint)

    def test_a_role_that_may_not_connect(
        self, opener: Opener, server: PostgresqlServer, conninfo: str
    ) -> None:
        server.run(f"ALTER ROLE {database_of(conninfo)} NOLOGIN")
        error = self.refused(opener, NotAllowed, conninfo)
        assert "not permitted to log in" in str(error.cause)

    def test_a_role_to_which_the_tables_do_not_belong(
        self, opener: Opener, server: PostgresqlServer, conninfo: str
    ) -> None:
        opener(conninfo).close()
        other = database_of(server.new_database())
        error = self.refused(opener, StoreUnusable, server.conninfo(database_of(conninfo), other))
        assert "does not let the manager use its tables" in error.message

    async def test_a_role_that_loses_its_rights(
        self, in_postgresql: PostgresqlStore, server: PostgresqlServer, conninfo: str
    ) -> None:
        await in_postgresql.commit([job(1)])
        name = database_of(conninfo)
        server.run(f"REVOKE ALL ON tasks FROM {name}", database=name)
        with pytest.raises(StoreUnusable, match="does not let the manager use its tables"):
            await in_postgresql.commit([job(2), done(0, 1)])
        assert [each.job_id for each in in_postgresql.jobs()] == [1], "all of it or nothing"

    def test_a_version_that_is_too_old(
        self, opener: Opener, conninfo: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("kestrelctl.store.postgresql.session.OLDEST_VERSION", 99)
        assert "too old" in self.refused(opener, StoreUnusable, conninfo).message

    def test_the_store_of_another_pool(self, opener: Opener, conninfo: str) -> None:
        opener(conninfo)
        error = self.refused(opener, StoreUnusable, conninfo, "other.internal")
        assert POOL in error.message

    def test_tables_of_another_program(
        self, opener: Opener, server: PostgresqlServer, conninfo: str
    ) -> None:
        name = database_of(conninfo)
        server.run(f"SET ROLE {name}", "CREATE TABLE jobs (a INTEGER)", database=name)
        error = self.refused(opener, StoreUnusable, conninfo)
        assert "another program" in error.message

    def test_a_store_of_a_newer_program(
        self, opener: Opener, server: PostgresqlServer, conninfo: str
    ) -> None:
        opener(conninfo).close()
        server.run("UPDATE pool SET schema_version = 99", database=database_of(conninfo))
        assert "newer" in self.refused(opener, StoreUnusable, conninfo).message

    def test_a_database_that_takes_no_writes(
        self, opener: Opener, server: PostgresqlServer, conninfo: str
    ) -> None:
        name = database_of(conninfo)
        server.run(f"ALTER ROLE {name} SET default_transaction_read_only = on")
        assert "read-only" in str(self.refused(opener, StoreFull, conninfo).cause)

    @pytest.mark.parametrize(
        "conninfo", ["host=x password=y", "postgresql://u:secret@x/db", "no connection string"]
    )
    def test_strings_that_are_refused(self, conninfo: str, tmp_path: Path) -> None:
        with pytest.raises(UsageError) as caught:
            PostgresqlStore(tmp_path, conninfo, POOL)
        assert "secret" not in f"{caught.value} {caught.value.cause}"


async def test_commits_that_the_database_has_lost_are_noticed(
    opener: Opener, server: PostgresqlServer, conninfo: str
) -> None:
    """As when a replica took over that did not have the last ones."""
    first = opener(conninfo, directory="same")
    await first.commit([job(1)])
    await first.commit([job(2)])
    first.close()
    server.run(
        "UPDATE pool SET commits = commits - 1, last_job_id = 1",
        "DELETE FROM jobs WHERE job_id = 2",
        database=database_of(conninfo),
    )
    again = opener(conninfo, directory="same")
    assert any("1 commit was missing" in note for note in again.notes())
    await again.commit([job(1)])


DAMAGES = [
    "UPDATE specs SET spec = 'x' WHERE job_id = 2",
    "UPDATE jobs SET cursor = -4 WHERE job_id = 2",
    "UPDATE jobs SET state = 'active', hold = 'x' WHERE job_id = 2",
    "UPDATE tasks SET state = 9 WHERE job_id = 2 AND idx = 3",
    "UPDATE tasks SET idx = -5 WHERE job_id = 2 AND idx = 3",
]


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_job_is_set_aside_and_all_others_go_on(
    in_postgresql: PostgresqlStore, server: PostgresqlServer, conninfo: str, damage: str
) -> None:
    await in_postgresql.commit([job(1), job(2), job(3), *(done(n, 2) for n in range(5))])
    in_postgresql.close()
    server.run(damage, database=database_of(conninfo))
    found = in_postgresql.open()
    assert [each.record.job_id for each in found.jobs] == [1, 3]
    assert list(in_postgresql.damaged) == [2]
    assert [each.job_id for each in in_postgresql.jobs()] == [1, 3]


async def test_a_job_whose_head_is_damaged_has_no_name(
    in_postgresql: PostgresqlStore, server: PostgresqlServer, conninfo: str
) -> None:
    await in_postgresql.commit([job(1), job(2)])
    server.run("UPDATE heads SET head = 'x' WHERE job_id = 2", database=database_of(conninfo))
    assert in_postgresql.job_ids(name="*") == [1, 2]
    assert in_postgresql.job_ids(name="x*") == []


async def test_work_waits_for_a_server_that_is_away_and_does_not_fail_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresqlStore(tmp_path, f"host={tmp_path} connect_timeout=2", POOL)
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr(store, "_read_threads", threads, raising=False)
        monkeypatch.setattr(store, "_reader", LinkReader(store._connect_to_read), raising=False)
        for reading in (store.items(1, 0), store.program(1)):
            with pytest.raises(StoreFull) as caught:
                await reading
            assert "does not answer" in (caught.value.cause or "")
