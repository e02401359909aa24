"""A pool whose PostgreSQL is full or slow, and one that is reached by TLS."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from daemons import Spawn, answering, until
from postgresqlkit import ACCOUNT, PostgresqlServer, database_of, running_server
from postgresqlpool import TASKS, PoolOnPostgresql, ada, status, until_done, until_told
from slow_network import delayed
from small_disk import mounted

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import StoreFull, Untrusted
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.xmpp.prosody import PrivateServer, free_ports

#: How long each statement takes on a slow network.
SLOW_SECONDS = 0.5


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A database that waits for its disk."""
    with running_server(fsync=True) as found:
        yield found


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system that is the server's."""
    with (
        TemporaryDirectory(prefix="kestrel-pg-") as directory,
        mounted(Path(directory), "32m"),
    ):
        shutil.chown(directory, ACCOUNT)
        yield Path(directory)


def fill(disk: Path) -> Path:
    """Takes all room that is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


def assert_done_once(pool: PoolOnPostgresql, server: PostgresqlServer) -> None:
    """Each task of job 1 has run once, and its result was taken in once."""
    assert sorted(pool.left(), key=int) == [str(n) for n in range(TASKS)]
    [sums] = server.run(
        "SELECT attempts, tasks FROM jobs WHERE job_id = 1", database=database_of(pool.conninfo)
    )
    assert sums == (TASKS, TASKS)


class TestFullDisk:
    @pytest.fixture
    def conninfo(self, server: PostgresqlServer, disk: Path) -> Iterator[str]:
        """A database that lies there."""
        found = server.new_database()
        name = database_of(found)
        server.run(
            f"CREATE TABLESPACE small LOCATION '{disk}'",
            f"ALTER DATABASE {name} SET TABLESPACE small",
        )
        yield found
        server.stop()
        server.start()  # the tablespace is in use no more, and can be unmounted

    async def test_a_disk_that_is_full_for_a_while_loses_nothing(
        self, private_server: PrivateServer, conninfo: str, disk: Path, spawn: Spawn,
        tmp_path: Path, server: PostgresqlServer,
    ) -> None:  # fmt: skip
        pool = PoolOnPostgresql(private_server, conninfo, spawn, tmp_path)
        async with ada(private_server) as user:
            await answering(user)
            await user.ask(rq.SubmitJob(spec=pool.spec()))
            await until(lambda: len(pool.left()) > TASKS // 4, 60.0)
            ballast = fill(disk)
            assert len(pool.left()) < TASKS, "it was filled in the middle"
            items = tuple(secrets.token_hex(500) for _ in range(500))  # no page has room for that
            large = JobSpec(program=Program(argv=("true",)), items=items, count=len(items))
            with pytest.raises(StoreFull):
                await user.ask(rq.SubmitJob(spec=large))
            await until_told(user, "No space left on device")
            ballast.unlink()
            await until_told(user, "")
            assert pool.manager.poll() is None
            answer = await user.ask(rq.SubmitJob(spec=large))
            assert isinstance(answer, an.Submitted)
            assert (await until_done(user, jobs="1")).done == TASKS
            assert (await until_done(user, jobs=str(answer.job_id))).done == len(items)
        assert_done_once(pool, server)


class TestFullLog:
    @pytest.fixture
    def server(self, disk: Path) -> Iterator[PostgresqlServer]:
        """A database whose write-ahead log has a disk of its own, without much room.

        PostgreSQL starts anew when it cannot write its log, and ends when it still cannot (15.18).
        """
        log = disk / "log"
        log.mkdir()
        shutil.chown(log, ACCOUNT)
        sizes = ("min_wal_size=2MB", "max_wal_size=4MB", "wal_recycle=off")
        with running_server(*sizes, fsync=True, log_directory=log) as found:
            yield found

    async def test_a_disk_that_is_full_under_the_log_loses_nothing(
        self, private_server: PrivateServer, server: PostgresqlServer, disk: Path, spawn: Spawn,
        tmp_path: Path,
    ) -> None:  # fmt: skip
        conninfo = server.new_database()
        pool = PoolOnPostgresql(private_server, conninfo, spawn, tmp_path)
        async with ada(private_server) as user:
            await answering(user)
            await user.ask(rq.SubmitJob(spec=pool.spec()))
            await until(lambda: len(pool.left()) > TASKS // 10, 60.0)
            ballast = fill(disk)
            assert len(pool.left()) < TASKS, "it was filled in the middle"
            said = server.directory / "log"
            await until(lambda: "No space left on device" in said.read_text(), 60.0)
            await until(lambda: "the store cannot be written" in pool.log.read_text(), 60.0)
            ballast.unlink()
            await until(server.is_back, 60.0)
            await answering(user, 60.0)
            assert pool.manager.poll() is None
            assert (await until_done(user, jobs="1")).done == TASKS
        assert_done_once(pool, server)


class TestSlowNetwork:
    @pytest.fixture
    async def conninfo(self, server: PostgresqlServer) -> AsyncIterator[str]:
        """A database whose server hears each statement late."""
        name = database_of(server.new_database())
        socket = server.directory / f".s.PGSQL.{server.port}"
        async with delayed(socket, SLOW_SECONDS) as port:
            yield f"host=127.0.0.1 port={port} dbname={name} user={name} sslmode=disable"

    async def test_a_pool_with_slow_statements_works_and_says_why_it_is_slow(
        self, private_server: PrivateServer, conninfo: str, spawn: Spawn, tmp_path: Path,
        server: PostgresqlServer,
    ) -> None:  # fmt: skip
        pool = PoolOnPostgresql(private_server, conninfo, spawn, tmp_path)
        async with ada(private_server) as user:
            await answering(user, 120.0)
            notes = (await status(user)).store_notes
            assert any("each commit takes at least as long" in note for note in notes)
            await user.ask(rq.SubmitJob(spec=pool.spec()))
            assert (await until_done(user, 120.0)).done == TASKS
            found = await status(user)
        assert [each.leads for each in found.managers] == [True]
        assert found.store_error == ""
        [(epoch,)] = server.run("SELECT epoch FROM pool", database=database_of(conninfo))
        assert epoch == 1, "it led all the time"
        assert sorted(pool.left(), key=int) == [str(n) for n in range(TASKS)]


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class Authority:
    """Signs certificates."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self.certificate = directory / "ca.crt"
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=tests", "-days", "2",
            "-keyout", directory / "ca.key", "-out", self.certificate,
        )  # fmt: skip

    def signs(self, address: str, key: Path, certificate: Path) -> None:
        """Makes a key and a certificate for a server at an IP address."""
        request, extension = self._directory / "request", self._directory / "extension"
        extension.write_text(f"subjectAltName=IP:{address}\n")
        openssl(
            "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=database",
            "-keyout", key, "-out", request,
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-days", "2",
            "-CAkey", self._directory / "ca.key", "-CAcreateserial", "-extfile", extension,
            "-out", certificate,
        )  # fmt: skip


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def by_tls(authority: Authority) -> Iterator[str]:
    """How a manager connects to a server with a certificate, but for whom it trusts."""
    with running_server() as server:
        key, certificate = server.directory / "key", server.directory / "certificate"
        authority.signs("127.0.0.1", key, certificate)
        key.chmod(0o600)
        for path in (key, certificate):
            shutil.chown(path, server.data.owner())
        server.run(
            f"ALTER SYSTEM SET ssl_cert_file = '{certificate}'",
            f"ALTER SYSTEM SET ssl_key_file = '{key}'",
            "ALTER SYSTEM SET ssl = on",
        )
        [port] = free_ports(1)
        name = database_of(server.new_database())
        server.stop("fast")
        server.start("listen_addresses=127.0.0.1", f"port={port}")
        yield f"host=127.0.0.1 port={port} dbname={name} user={name} sslmode=verify-full"


class TestTls:
    def test_a_server_with_a_certificate_that_is_trusted_is_used(
        self, by_tls: str, authority: Authority, tmp_path: Path
    ) -> None:
        conninfo = f"{by_tls} sslrootcert={authority.certificate}"
        store = PostgresqlStore(tmp_path, conninfo, "pool")
        store.open()
        rows = store._reader.execute(
            "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            " WHERE datname = current_database()"
        ).fetchall()
        store.close()
        assert set(rows) == {(True,)}, "each of its connections"

    def test_one_that_another_authority_has_signed_is_refused(
        self, by_tls: str, tmp_path: Path
    ) -> None:
        other = Authority(tmp_path / "other")
        store = PostgresqlStore(tmp_path / "m", f"{by_tls} sslrootcert={other.certificate}", "pool")
        with pytest.raises(Untrusted) as caught:
            store.open()
        assert "sslrootcert" in str(caught.value.hint)

    def test_one_whose_certificate_is_for_another_name_is_refused(
        self, by_tls: str, authority: Authority, tmp_path: Path
    ) -> None:
        elsewhere = by_tls.replace("host=127.0.0.1", "host=localhost hostaddr=127.0.0.1")
        conninfo = f"{elsewhere} sslrootcert={authority.certificate}"
        with pytest.raises(Untrusted):
            PostgresqlStore(tmp_path, conninfo, "pool").open()
