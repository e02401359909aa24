"""`kestrelctl up --smtp`: a pool of this machine whose handlers send mail."""

from __future__ import annotations

import asyncio
import email
import os
import signal
from collections.abc import Iterator
from email import policy
from pathlib import Path

import pytest
from daemons import Spawn, until
from listening import LOOPBACK
from smtp_server import SmtpServer

from kestrelctl.local.pool_state import pool_directory, read_state

pytestmark = pytest.mark.timeout(120)
HANDLERS = "[admin]\non = failed\nmail = admin@example.org\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spawn: Spawn) -> Iterator[None]:
    """A user of this machine with a state directory of his own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield
    spawn("down", "--delete", "--yes").wait(60)


async def test_the_admin_is_mailed_when_a_worker_of_this_machine_goes_down(
    tmp_path: Path, spawn: Spawn
) -> None:
    handlers = tmp_path / "handlers.ini"
    handlers.write_text(HANDLERS)
    refused = spawn("up", "--handlers", handlers)
    assert await asyncio.to_thread(refused.wait, 60) == 2
    assert "the handler admin sends mail, and no server takes any" in refused.communicate()[1]
    async with SmtpServer() as smtp:
        server = ["--smtp", f"{LOOPBACK}:{smtp.port}", "--mail-from", "pool@example.org"]
        process = spawn(
            "up", "--workers", "1", "--executor", "inline", "--handlers", handlers, *server
        )
        assert await asyncio.to_thread(process.wait, 90) == 0, process.communicate()
        state = read_state(pool_directory("default"))
        assert state is not None
        for pid in state.worker_pids:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: smtp.mails, 30.0)
    [(receivers, written)] = smtp.mails
    assert receivers == ["admin@example.org"]
    mail = email.message_from_bytes(written, policy=policy.default)
    assert mail["From"] == "pool@example.org"
    assert "failed" in mail.get_content()
