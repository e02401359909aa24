"""Answers get lost between a real pool and its command line; one job comes of it."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from daemons import Spawn
from listening import listening

from kestrelctl.access.context import Account, Context
from kestrelctl.cli import redial
from kestrelctl.cli.command import Invocation
from kestrelctl.cli.main import kestrelctl
from kestrelctl.client import upload
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

Open = Callable[[], AbstractAsyncContextManager[UserConnection]]

#: A manager that dies when a submission is durable and not yet answered.
DIES_BEFORE_ITS_ANSWER = """
import os, signal
from kestrelctl.cli.main import main
from kestrelctl.core.effects import Answer
from kestrelctl.manager.service import Service

announce = Service._announce

def die(self, effect):
    if isinstance(effect, Answer):
        os.kill(os.getpid(), signal.SIGKILL)
    announce(self, effect)

Service._announce = die
main()
"""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "ANSWER_SECONDS", 3.0)
    monkeypatch.setattr(redial, "PAUSES_SECONDS", (0.2,) * 20)


async def command(open_pool: Open, *words: str) -> Result:
    """Runs a command line, whose connections are made by `open_pool`."""

    def open_any(
        _wanted: str, *, as_admin: bool = False
    ) -> AbstractAsyncContextManager[UserConnection]:
        return open_pool()

    # It says that workers choose where tasks run; where to connect, `open_pool` knows.
    context = Context(
        name="any",
        pool="any",
        host="127.0.0.1",
        port=0,
        tls=False,
        hint="",
        user=Account("", Path()),
    )
    invocation = Invocation(open_pool=open_any, find_context=lambda _: context)
    environment = {"KESTREL_OUTPUT": "", "KESTREL_POOL": ""}
    runner = CliRunner(env=environment)
    return await asyncio.to_thread(runner.invoke, kestrelctl, words, obj=invocation)


async def jobs_named(open_pool: Open, name: str) -> list[an.JobView]:
    async with open_pool() as connection:
        answer = await connection.ask(rq.ListJobs())
        assert isinstance(answer, an.Jobs)
        return [job for job in answer.jobs if job.name == name]


@contextlib.asynccontextmanager
async def wire_that_is_cut(port: int, word: bytes) -> AsyncIterator[tuple[int, list[str]]]:
    """A way to the server that is cut, once, instead of letting a word through to the client.

    Yields:
        Its port, and a list that holds something as soon as it was cut.
    """
    cut: list[str] = []

    async def serve(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        far, forth = await asyncio.open_connection("127.0.0.1", port)

        async def up() -> None:
            while data := await near.read(65536):
                forth.write(data)
            forth.close()

        async def down() -> None:
            seen = b""
            while data := await far.read(65536):
                seen = (seen + data)[-100_000:]
                if not cut and word in seen:
                    cut.append("cut")
                    break
                back.write(data)
            back.close()
            forth.close()

        try:
            with contextlib.suppress(ConnectionError):
                await asyncio.gather(up(), down())
        finally:
            forth.close()

    async with listening(serve) as port_of_wire:
        yield port_of_wire, cut


@pytest.mark.parametrize(
    ("word", "inline_bytes"),
    [
        pytest.param(b"submitted", 100_000, id="the answer to the submission"),
        pytest.param(b"submitted", 10, id="that of one whose items went ahead"),
        pytest.param(b"changed", 10, id="the answer to its items"),
    ],
)
async def test_a_connection_that_is_cut_makes_no_second_job(
    local_pool: PoolState,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    word: bytes,
    inline_bytes: int,
) -> None:
    monkeypatch.setattr(upload, "INLINE_BYTES", inline_bytes)
    password = Path(local_pool.password_file).read_text().strip()
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\nthree\n")
    name = f"cut {request.node.callspec.id}"
    async with wire_that_is_cut(local_pool.port, word) as (port, cut):

        def open_pool() -> AbstractAsyncContextManager[UserConnection]:
            return connect_user(
                local_pool.user, password, local_pool.domain, "127.0.0.1", port, tls=False
            )

        words = ("submit", "--name", name, "--each-line", str(lines), "--wait", "--", "true", "{}")
        result = await command(open_pool, *words)
        assert cut
        assert result.exit_code == 0, result.stderr
        assert "it is sent again" in result.stderr
        [job] = await jobs_named(open_pool, name)
    assert (job.tasks, job.done) == (3, 3)


async def test_a_manager_that_dies_between_commit_and_answer_makes_no_second_job(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path
) -> None:
    domain = private_server.domain
    jid = f"ada@users.{domain}"
    password = private_server.add_account(jid)
    (tmp_path / "secret").write_text(private_server.secret)
    words = [
        "manager", "run", "--domain", domain, "--secret-file", str(tmp_path / "secret"),
        "--port", str(private_server.component_port), "--data-dir", str(tmp_path / "data"),
    ]  # fmt: skip

    def open_pool() -> AbstractAsyncContextManager[UserConnection]:
        return connect_user(
            jid, password, domain, "127.0.0.1", private_server.client_port, tls=False
        )

    async def is_up() -> bool:
        async with open_pool() as connection:
            with contextlib.suppress(Exception):
                return bool(await connection.ask(rq.PoolStatus(), 1.0))
        return False

    dying = await asyncio.create_subprocess_exec(
        sys.executable, "-c", DIES_BEFORE_ITS_ANSWER, *words, stderr=subprocess.DEVNULL
    )
    try:
        async with asyncio.timeout(20):
            while not await is_up():
                await asyncio.sleep(0.05)
        key = ("submit", "--key", "nightly", "--name", "nightly", "--", "true")
        submission = asyncio.create_task(command(open_pool, *key))
        await asyncio.wait_for(dying.wait(), 20)
        spawn(*words)
        result = await submission
    finally:
        with contextlib.suppress(ProcessLookupError):
            dying.kill()
        await dying.wait()
    assert result.exit_code == 0, result.stderr
    assert "job 1 is there already: a submission had come before" in result.stderr
    again = await command(open_pool, *key)
    assert again.stdout.startswith("job 1:")
    [job] = await jobs_named(open_pool, "nightly")
    assert job.job_id == 1
    other = await command(open_pool, *key[:-1], "false")
    assert other.exit_code == 2
    assert "the key 'nightly' belongs to job 1" in other.stderr
