"""Real XMPP servers to test against: plain ones, and those that take nothing in the clear.

Keys are made for each test and trusted by nothing else.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from certificates import expire

from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp import prosody
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

DOMAIN = "pool.internal"
NAMES = (DOMAIN, f"workers.{DOMAIN}", f"users.{DOMAIN}")

_TLS = """\
modules_enabled = {{ "saslauth", "ping", "tls", "net_multiplex", "kestrel_guard" }}
c2s_require_encryption = true
allow_unencrypted_plain_auth = false
ssl_ports = {{ {port} }}
ssl_interfaces = {{ "127.0.0.1" }}
ssl = {{ certificate = "{directory}/server.crt", key = "{directory}/server.key" }}
kestrel_share_ports = {{ {share_port} }}
kestrel_share_interfaces = {{ "127.0.0.1" }}

"""
_SHARE = (
    'http_host = "localhost"; kestrel_share_host = "localhost"'
    '; http_external_url = "https://localhost:{share_port}/"'
)


#: What a server is given to stop; then it is killed, as systemd and `kestrelctl down` do.
STOP_SECONDS = 10.0


@asynccontextmanager
async def running(server: PrivateServer) -> AsyncIterator[PrivateServer]:
    """Run the server as a child process for as long as the context lasts."""
    process = await asyncio.create_subprocess_exec(*server.command())
    try:
        await server.wait_ready()
        yield server
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_SECONDS)
        except TimeoutError:  # seldom it hears no signal any more, and works on
            process.kill()
            await process.wait()


class Authority:
    """Signs certificates.

    Attributes:
        file: its own certificate.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self.file = directory / "ca.pem"
        openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", directory / "ca.key", "-out", self.file,
            "-days", "2", "-subj", "/CN=an authority",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
        )  # fmt: skip

    def issue(self, directory: Path, *names: str, expired: bool = False) -> None:
        """Writes `server.crt` and `server.key`.

        Args:
            expired: the certificate was valid until yesterday; otherwise it is valid for a day.
        """
        request, names_too = directory / "server.csr", ",".join(f"DNS:{name}" for name in names)
        openssl(
            "req", "-new", *_NEW_KEY, "-keyout", directory / "server.key", "-out", request,
            "-subj", f"/CN={names[0]}", "-addext", f"subjectAltName={names_too}",
        )  # fmt: skip
        openssl(
            "x509", "-req", "-in", request, "-out", directory / "server.crt",
            "-CA", self.file, "-CAkey", self._directory / "ca.key", "-CAcreateserial",
            "-days", 1, "-copy_extensions", "copyall",
        )  # fmt: skip
        if expired:
            expire(directory / "server.crt", self._directory / "ca.key")


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


class PoolServer(Protocol):
    """What a pool wants of its server, whoever has made that."""

    @property
    def directory(self) -> Path: ...

    @property
    def client_port(self) -> int: ...

    @property
    def secret(self) -> str: ...

    def add_account(self, jid: str) -> str: ...


@dataclass(frozen=True)
class EncryptedServer:
    """A running server.

    Attributes:
        authority: the one that has signed what the server shows.
        tls_port: for components; the plain one is there, too, on loopback.
    """

    directory: Path
    authority: Authority
    private: PoolServer
    tls_port: int

    def renew(self) -> None:
        """Gives the server, a Prosody, a certificate that is valid, and lets it read that."""
        self.authority.issue(self.private.directory, *NAMES, "localhost")
        pid = (self.private.directory / "prosody.pid").read_text()
        os.kill(int(pid), signal.SIGHUP)

    def state(self) -> PoolState:
        """What tests for local pools want to know."""
        return PoolState(
            name="encrypted", pid=0, domain=DOMAIN, host="127.0.0.1",
            port=self.private.client_port, user="", admin="",
            password_file=str(self.directory / "user.password"),
            admin_password_file="", workers=1, server_pid=0, manager_pid=0, worker_pids=[],
        )  # fmt: skip

    @asynccontextmanager
    async def connect(
        self, name: str, ca_file: Path | None = None, *, host: str = "users"
    ) -> AsyncIterator[UserConnection]:
        """A user's connection, as `connect_user` makes it; for an account that is made for it."""
        jid = f"{name}@{host}.{DOMAIN}"
        async with connect_user(
            jid, self.private.add_account(jid), DOMAIN, "127.0.0.1", self.private.client_port,
            tls=True, ca_file=ca_file or self.authority.file,
        ) as connection:  # fmt: skip
            yield connection

    def manager_words(self, *, ca_file: Path | None = None) -> list[str]:
        """The command line of the pool's manager."""
        secret = self.directory / "component.secret"
        secret.write_text(self.private.secret)
        return [
            "manager", "run", "--domain", DOMAIN, "--secret-file", str(secret),
            "--host", "127.0.0.1", "--port", str(self.tls_port), "--tls",
            "--ca-file", str(ca_file or self.authority.file),
            "--data-dir", str(self.directory / "manager"), "--admin", f"root@users.{DOMAIN}",
        ]  # fmt: skip

    def worker_words(
        self, name: str, *, ca_file: Path | None = None, password: str = ""
    ) -> list[str]:
        """The command line of a worker."""
        jid = f"{name}@workers.{DOMAIN}"
        credentials = self.directory / f"{name}.credentials"
        credentials.write_text(f"{jid} {password or self.private.add_account(jid)}\n")
        credentials.chmod(0o600)
        return [
            "worker", "run", "--pool", DOMAIN, "--credentials", str(credentials),
            "--port", str(self.private.client_port), "--cpus", "2",
            "--ca-file", str(ca_file or self.authority.file),
            "--data-dir", str(self.directory / name),
        ]  # fmt: skip


@asynccontextmanager
async def encrypted_server(
    directory: Path, *names: str, expired: bool = False
) -> AsyncIterator[EncryptedServer]:
    """A server that takes nothing in the clear from clients.

    Args:
        names: for which its certificate is; those of the pool by default.
        expired: its certificate was valid until yesterday.
    """
    authority = Authority(directory / "authority")
    private = PrivateServer.create(directory / "server", DOMAIN)
    authority.issue(private.directory, *(names or (*NAMES, "localhost")), expired=expired)
    port, share_port = prosody.free_ports(2)
    file = private.directory / "prosody.cfg.lua"
    tls = _TLS.format(port=port, share_port=share_port, directory=private.directory)
    options = {line.partition(" =")[0] for line in tls.splitlines() if line}
    plain = file.read_text().splitlines(keepends=True)
    kept = "".join(line for line in plain if line.partition(" =")[0] not in options)
    kept = kept.replace('http_host = "127.0.0.1"', _SHARE.format(share_port=share_port))
    file.write_text(kept.replace("VirtualHost", f"{tls}VirtualHost", 1))
    async with running(private):
        yield EncryptedServer(directory, authority, private, port)
