"""A PostgreSQL of the tests' own: a server that listens at a socket in a directory of its own."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

#: Where Debian and others keep what is not for every user's PATH, the newest release last.
PROGRAMS = "usr/lib/postgresql/*/bin/postgres"
#: Whom the server runs as if root starts it, which it refuses to be: the package makes the account.
ACCOUNT = "postgres"
ADMIN = "postgres"
#: The server asks members of this role for a password, and nobody else.
ASKED = "asked_for_a_password"

_numbers = itertools.count(1)


def programs() -> Path:
    """The directory of the server's programs; skips the test on a machine that has none.

    `./kestrel test` installs them wherever there is apt-get.
    """
    on_path = shutil.which("postgres")
    found = [Path(on_path)] if on_path else sorted(Path("/").glob(PROGRAMS))
    if found:
        return found[-1].resolve().parent
    pytest.skip("PostgreSQL is not installed, which `./kestrel test` does where it can")


class PostgresqlServer:
    """A server that waits for no disk, unless it is told to.

    Attributes:
        directory: of its data, its socket and its log.
    """

    port = 5432

    def __init__(
        self, directory: Path, *, fsync: bool = False, log_directory: Path | None = None
    ) -> None:
        self._programs = programs()
        self.directory = directory
        self._fsync = fsync
        self._as_other: dict[str, Any] = {}
        if os.geteuid() == 0:
            account = pwd.getpwnam(ACCOUNT)
            os.chown(directory, account.pw_uid, account.pw_gid)
            self._as_other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        words = f"-U {ADMIN} -A trust -E UTF8 --locale=C.UTF-8 --no-sync".split()
        if log_directory is not None:
            words += ["--waldir", str(log_directory), "--wal-segsize", "1"]
        self._run("initdb", "-D", str(self.data), *words)
        access = self.data / "pg_hba.conf"
        access.write_text(f"local all +{ASKED} scram-sha-256\n" + access.read_text())

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self, *settings: str) -> None:
        """Starts it, with these settings besides."""
        on_off = "on" if self._fsync else "off"
        said = [
            f"unix_socket_directories={self.directory}",
            "listen_addresses=",
            f"fsync={on_off}",
            f"full_page_writes={on_off}",
            *settings,
        ]
        options = " ".join(f"-c {each}" if each[-1] != "=" else f"-c {each}''" for each in said)
        log = str(self.directory / "log")
        self._run("pg_ctl", "start", "-w", "-D", str(self.data), "-l", log, "-o", options)
        # It is nobody's child. When this process is killed, its end of the pipe is closed.
        [postmaster] = (self.data / "postmaster.pid").read_text().split("\n")[:1]
        self._watchdog = subprocess.Popen(
            ["sh", "-c", 'read _; kill -QUIT "$1"', "sh", postmaster],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **self._as_other,
        )

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "stop", "-w", "-D", str(self.data), "-m", mode)
        self._watchdog.communicate()

    def is_back(self) -> bool:
        """Whether it can be asked again after a crash; starts it if it has ended."""
        if self._ends("pg_ctl", "status", "-D", str(self.data)):
            self._watchdog.communicate()
            self.start()
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _ends(self, program: str, *words: str) -> int:
        return subprocess.run(
            [str(self._programs / program), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.directory,
            check=False,
            **self._as_other,
        ).returncode

    def _run(self, program: str, *words: str) -> None:
        if status := self._ends(program, *words):
            raise RuntimeError(f"{program} {words[0]} ends with {status}")

    def conninfo(self, database: str = "postgres", user: str = ADMIN) -> str:
        return f"host={self.directory} port={self.port} dbname={database} user={user}"

    def new_database(self, password: str = "") -> str:
        """Makes a database for a manager; returns how its role connects, which owns no other.

        Args:
            password: what the server asks that role for; empty for nothing.
        """
        name = f"kestrel_{os.getpid()}_{next(_numbers)}"
        self.run(f"CREATE ROLE {name} LOGIN", f"CREATE DATABASE {name} OWNER {name}")
        if password:
            self.run(
                f"DO 'BEGIN CREATE ROLE {ASKED}; EXCEPTION WHEN duplicate_object THEN END'",
                f"GRANT {ASKED} TO {name}",
                f"ALTER ROLE {name} PASSWORD '{password}'",
            )
        return self.conninfo(name, name)

    def run(self, *statements: str, database: str = "postgres") -> list[Any]:
        """Runs statements as the server's admin; returns what the last one finds."""
        found: list[Any] = []
        with psycopg.connect(self.conninfo(database), autocommit=True) as link:
            for statement in statements:
                cursor = link.execute(statement.encode())
                found = cursor.fetchall() if cursor.description else []
        return found


@contextmanager
def running_server(
    *settings: str, fsync: bool = False, log_directory: Path | None = None
) -> Iterator[PostgresqlServer]:
    """A server for as long as the block lasts. Its path is short, as that of a socket must be.

    Args:
        log_directory: where its write-ahead log lies; None for beside the data.
    """
    with tempfile.TemporaryDirectory(prefix="kestrel-pg-") as directory:
        server = PostgresqlServer(Path(directory), fsync=fsync, log_directory=log_directory)
        server.start(*settings)
        try:
            yield server
        finally:
            server.stop()


def database_of(conninfo: str) -> str:
    """The name of the database of `new_database`."""
    return str(psycopg.conninfo.conninfo_to_dict(conninfo)["dbname"])
