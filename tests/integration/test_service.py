"""Daemons as a service manager meets them (sd_notify(3))."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import Spawn, until
from servers import DOMAIN

from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp.prosody import PrivateServer


class Systemd:
    """The service manager's end of the socket, and what came there."""

    def __init__(self, address: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(address))
        self.socket.setblocking(False)
        self.environment = {
            **os.environ, "NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "200000",
        }  # fmt: skip
        self.lines: list[str] = []

    def heard(self, beginning: str) -> bool:
        """Whether a line came that begins so."""
        try:
            while True:
                self.lines += self.socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return any(line.startswith(beginning) for line in self.lines)


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    found = Systemd(tmp_path / "notify")
    yield found
    found.socket.close()


async def test_a_manager_is_ready_before_the_server_is_there(
    systemd: Systemd, spawn: Spawn, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("x")
    manager = spawn(
        "manager", "run", "--domain", DOMAIN, "--port", "1", "--secret-file", tmp_path / "secret",
        "--data-dir", tmp_path / "data", env=systemd.environment,
    )  # fmt: skip
    await until(lambda: systemd.heard("READY=1"))
    await until(lambda: systemd.heard("WATCHDOG=1"))
    await until(lambda: systemd.heard("STATUS=the server is away: "))
    assert not systemd.heard("STOPPING=1")
    manager.send_signal(signal.SIGTERM)
    await until(lambda: systemd.heard("STOPPING=1"))
    assert manager.wait(15) == 0


async def test_a_worker_is_ready_and_says_how_it_is(
    local_pool: PoolState, systemd: Systemd, spawn: Spawn, tmp_path: Path
) -> None:
    directory = Path(local_pool.password_file).parent / "server"
    jid = f"service@workers.{local_pool.domain}"
    server = PrivateServer(directory, local_pool.domain, local_pool.port, 0, "")
    credentials = tmp_path / "credentials"
    credentials.write_text(f"{jid} {server.add_account(jid)}\n")
    # Readable by a group, as systemd's own may be (systemd.exec(5), LoadCredential=).
    credentials.chmod(0o440)
    worker = spawn(
        "worker", "run", "--pool", local_pool.domain, "--port", local_pool.port, "--no-tls",
        "--credentials", credentials, "--data-dir", tmp_path / "data",
        env={**systemd.environment, "CREDENTIALS_DIRECTORY": str(tmp_path)},
    )  # fmt: skip
    await until(lambda: systemd.heard("READY=1"))
    await until(lambda: systemd.heard("STATUS=connected; 0 tasks run"))
    assert systemd.lines.count("WATCHDOG=1") >= 2
    worker.send_signal(signal.SIGTERM)
    await until(lambda: systemd.heard("STOPPING=1"))
    assert worker.wait(15) == 0


def test_a_credentials_file_elsewhere_must_be_private_under_systemd_too(
    spawn: Spawn, tmp_path: Path
) -> None:
    credentials = tmp_path / "credentials"
    credentials.write_text("w1@workers.pool.internal x\n")
    credentials.chmod(0o440)
    (tmp_path / "given").mkdir()
    worker = spawn(
        "worker", "run", "--pool", DOMAIN, "--data-dir", tmp_path / "data",
        "--credentials", tmp_path / "given" / ".." / "credentials",
        env={**os.environ, "CREDENTIALS_DIRECTORY": str(tmp_path / "given")},
    )  # fmt: skip
    _, errors = worker.communicate(timeout=15)
    assert worker.returncode == 2
    assert "can be read by others" in errors
