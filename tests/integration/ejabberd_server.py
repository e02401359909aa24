"""ejabberd in place of Prosody: from Debian 13, in a folder of its own, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from servers import DOMAIN, NAMES, STOP_SECONDS, Authority, EncryptedServer

from kestrelctl.xmpp.prosody import LOOPBACK, MAX_STANZA_BYTES, free_ports

#: As a process that was told to go into the folder sees it.
_HOME = "/pool"
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"
_START_SECONDS = 60.0

#: With what operators are told.
_PAGE = Path(__file__).parents[2] / "docs/servers.md"
#: A door for tests, and the commands behind it.
_DOOR = """
  - module: ejabberd_http
    ip: 127.0.0.1
    port: {port}
    request_handlers:
      /api: mod_http_api
"""
_COMMANDS = """
  mod_admin_extra: {}
"""
_WHO_MAY = """
api_permissions:
  tests:
    who:
      ip: 127.0.0.1/8
    what: "*"
"""


def _configuration() -> str:
    """The configuration that the page shows."""
    found = re.search("^```yaml\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def _changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, f"{_PAGE.name} has no {old!r}"
        text = text.replace(old, new)
    return text


def debian_with_ejabberd(root: Path) -> None:
    """Makes a Debian 13 with ejabberd in a folder, or skips the test where that cannot be."""
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("only root can make a Debian in a folder, with mmdebstrap")
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=apt", "--include=ejabberd", "trixie", str(root)],
        check=True,
    )


@dataclass
class Ejabberd:
    """A server for a pool.

    Attributes:
        root: a Debian that has it.
        directory: its own, within `root`: configuration, certificate, log, accounts.
        tls_port: for the component.
        secret: that of the component.
    """

    root: Path
    directory: Path
    client_port: int
    tls_port: int
    api_port: int
    secret: str
    _process: asyncio.subprocess.Process = field(init=False)

    @classmethod
    def create(
        cls,
        root: Path,
        *,
        without: tuple[str, ...] = (),
        scram_hash: str = "sha256",
        tls: tuple[str, ...] = (),
        max_stanza_bytes: int = MAX_STANZA_BYTES,
        ping_seconds: int = 30,
    ) -> Ejabberd:
        """Writes the configuration of a server that has no accounts and is not started yet.

        Args:
            without, scram_hash: mechanisms that it does not offer, and how it stores passwords,
                which decides what it can offer.
            tls: further options of its encryption.
            ping_seconds: after so long without a word it asks whether a client is there, and waits
                for the answer up to five times as long.
        """
        directory = root / _HOME.lstrip("/")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        client_port, tls_port, api_port, share_port = free_ports(4)
        server = cls(root, directory, client_port, tls_port, api_port, secrets.token_hex(16))
        changes = {
            "/etc/ejabberd/example.org.pem": f"{_HOME}/server.pem",
            "xmpp.example.org:5443": f"localhost:{share_port}",
            "example.org": DOMAIN,
            'ip: "::"': f"ip: {LOOPBACK}",
            "port: 5222": f"port: {client_port}",
            "port: 5348": f"port: {tls_port}",
            "port: 5443": f"port: {share_port}",
            "/var/lib/ejabberd": _HOME,
            "SECRET": server.secret,
            "X-OAUTH2": ", ".join(("X-OAUTH2", *without)),
            "hash: sha256": f"hash: {scram_hash}",
            "no_tlsv1_1": ", ".join(("no_tlsv1_1", *tls)),
            f"size: {MAX_STANZA_BYTES}": f"size: {max_stanza_bytes}",
            "ping_interval: 30": f"ping_interval: {ping_seconds}",
            "ping_ack_timeout: 20": f"ping_ack_timeout: {min(20, 5 * ping_seconds)}",
            "\nlisten:\n": f"\nlisten:{_DOOR.format(port=api_port)}",
            "\nmodules:\n": f"\nmodules:{_COMMANDS}",
        }
        configuration = _changed(_configuration(), changes) + _WHO_MAY
        (directory / "ejabberd.yml").write_text(configuration)
        return server

    @property
    def log(self) -> str:
        return (self.directory / "ejabberd.log").read_text()

    def command(self) -> list[str]:
        """Returns the command that runs it in the foreground until SIGTERM."""
        return [
            "chroot", str(self.root),
            "env", "-i", f"HOME={_HOME}", "LANG=C.UTF-8", "PATH=/usr/bin:/bin",
            f"ERL_LIBS={_LIBRARIES}", f"EJABBERD_CONFIG_PATH={_HOME}/ejabberd.yml",
            f"EJABBERD_LOG_PATH={_HOME}/ejabberd.log",
            "erl", "-noinput", "-mnesia", "dir", f'"{_HOME}/data"', "-s", "ejabberd",
        ]  # fmt: skip

    def certify(self, authority: Authority, *names: str, expired: bool = False) -> None:
        """Gives it a certificate, which a server that runs is still to be told of."""
        authority.issue(self.directory, *(names or (*NAMES, "localhost")), expired=expired)
        parts = ("server.crt", "server.key")
        pem = "".join((self.directory / name).read_text() for name in parts)
        (self.directory / "server.pem").write_text(pem)

    def does(self, command: str, **arguments: str) -> object:
        """Has it carry out one of the commands that `ejabberdctl` has."""
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.api_port}/api/{command}",
            json.dumps(arguments).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def add_account(self, jid: str) -> str:
        """Creates an account, or gives it a new password, and returns the password."""
        user, _, host = jid.partition("@")
        password = secrets.token_urlsafe(24)
        if self.does("check_account", user=user, host=host) == 0:
            self.does("change_password", user=user, host=host, newpass=password)
        else:
            self.does("register", user=user, host=host, password=password)
        return password

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs it for as long as the context lasts."""
        await self._start()
        try:
            yield
        finally:
            await self._stop()

    async def restart(self) -> None:
        """Ends it, as its operator would, and starts it anew."""
        await self._stop()
        await self._start()

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self.command())
        async with asyncio.timeout(_START_SECONDS):
            while not await self._answers():
                assert self._process.returncode is None, "ejabberd has ended"
                await asyncio.sleep(0.1)

    async def _stop(self) -> None:
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def _answers(self) -> bool:
        for port in (self.api_port, self.client_port, self.tls_port):
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except OSError:
                return False
            writer.close()
        return True


@dataclass(frozen=True)
class EncryptedEjabberd(EncryptedServer):
    """A running ejabberd."""

    private: Ejabberd


@asynccontextmanager
async def encrypted_ejabberd(
    directory: Path, root: Path, **how: Any
) -> AsyncIterator[EncryptedEjabberd]:
    """A server as `servers.encrypted_server` makes it of Prosody.

    Args:
        root: where `debian_with_ejabberd` has made a Debian.
        how: as for `Ejabberd.create`.
    """
    authority = Authority(directory / "authority")
    server = Ejabberd.create(root, **how)
    server.certify(authority)
    async with server.running():
        yield EncryptedEjabberd(directory, authority, server, server.tls_port)
