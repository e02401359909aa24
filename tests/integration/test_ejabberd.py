"""A pool whose XMPP server is ejabberd: what `docs/servers.md` says of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemons import KESTRELCTL, Spawn
from ejabberd_server import Ejabberd, debian_with_ejabberd, encrypted_ejabberd
from servers import DOMAIN, EncryptedServer

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian with ejabberd, in a folder."""
    root = tmp_path_factory.mktemp("debian") / "root"
    debian_with_ejabberd(root)
    return root


@pytest.fixture
async def server(debian: Path, tmp_path: Path) -> AsyncIterator[EncryptedServer]:
    """A running ejabberd without accounts."""
    async with encrypted_ejabberd(tmp_path, debian) as found:
        yield found


class Desk:
    """The command line of a user of the pool."""

    def __init__(self, server: EncryptedServer, directory: Path, name: str = "ada") -> None:
        self._environment = {**os.environ, "XDG_CONFIG_HOME": str(directory), "KESTREL_POOL": "net"}
        self._directory = directory / "kestrel"
        self._directory.mkdir()
        jid = f"{name}@users.{DOMAIN}"
        self.has_password(server.private.add_account(jid))
        (self._directory / "config.toml").write_text(
            f'[context.net]\njid = "{jid}"\npassword_file = "password"\npool = "{DOMAIN}"\n'
            f'host = "127.0.0.1"\nport = {server.private.client_port}\n'
            f'ca_file = "{server.authority.file}"\n'
        )

    def has_password(self, password: str) -> None:
        (self._directory / "password").write_text(password)

    async def types(self, *words: str, status: int = 0) -> str:
        """What a command prints, which ends with this status."""
        done = await asyncio.to_thread(
            subprocess.run, [*KESTRELCTL, *words], text=True, env=self._environment, timeout=100,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout


async def test_a_batch_of_tasks_ends_well(
    server: EncryptedServer, tmp_path: Path, spawn: Spawn
) -> None:
    spawn(*server.manager_words())
    spawn(*server.worker_words("w1"))
    desk = Desk(server, tmp_path)
    said = await desk.types("submit", "--wait", "--array", "1-20", "--", "echo", "number", "{}")
    assert "job 1 done: 20 tasks" in said
    (job,) = json.loads(await desk.types("-o", "json", "job", "list"))
    assert job["done"] == 20
    assert "number 17" in await desk.types("job", "logs", "1", "--all")
    assert isinstance(server.private, Ejabberd)
    assert (
        f"Accepted c2s SCRAM-SHA-256 authentication for w1@workers.{DOMAIN}" in server.private.log
    )
