"""A worker behind a network that fails without a word, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from brokenpool import BrokenPool
from line import Line

from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer

StartPool = Callable[[int], AbstractAsyncContextManager[BrokenPool]]


@contextlib.asynccontextmanager
async def far_worker(pool: BrokenPool, line: Line, directory: Path) -> AsyncIterator[str]:
    """A worker that reaches the pool over the line alone; yields its tag."""
    state = pool.state
    server = PrivateServer(
        Path(state.password_file).parent / "server", state.domain, state.port, 0, ""
    )
    jid = f"far@workers.{state.domain}"
    credentials = directory / "credentials"
    credentials.write_text(f"{jid} {server.add_account(jid)}\n")
    credentials.chmod(0o600)
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kestrelctl", "worker", "run",
        "--pool", state.domain, "--port", str(line.port), "--no-tls", "--cpus", "1",
        "--credentials", str(credentials), "--data-dir", str(directory / "data"),
        "--isolation", "plain",  # its tasks write down what they did
    )  # fmt: skip
    try:
        yield jid
    finally:
        worker.send_signal(signal.SIGHUP)
        await worker.wait()


async def workers(pool: BrokenPool) -> dict[str, str]:
    async with pool.user() as user:
        found = await user.ask(rq.ListWorkers())
    assert isinstance(found, an.Workers)
    return {worker.worker.partition("@")[0]: worker.state for worker in found.workers}


async def until_far_is(pool: BrokenPool, state: str) -> None:
    deadline = time.monotonic() + 60
    while (await workers(pool)).get("far") != state:
        assert time.monotonic() < deadline, await workers(pool)
        await asyncio.sleep(0.1)


async def test_a_cut_off_worker_is_noticed_and_its_task_counts_once_when_it_is_back(
    broken_pool: StartPool, tmp_path: Path
) -> None:
    async with (
        broken_pool(2) as pool,
        Line(pool.state.port).open() as line,
        far_worker(pool, line, tmp_path),
    ):
        await until_far_is(pool, "idle")
        job_id = await pool.submit(pool.job(3, 20.0))
        await until_far_is(pool, "busy")
        await asyncio.sleep(0.5)
        line.cut()
        await until_far_is(pool, "offline")  # how soon: tests/simulation/test_time_to_notice.py
        line.mend()
        await until_far_is(pool, "busy")
        job = await pool.ended(job_id, 60)
        ran = pool.ran()
        tasks = await pool.tasks(job_id)
    assert job.done == 3
    assert [task.state for task in tasks] == ["done"] * 3
    assert ran == {0: 1, 1: 1, 2: 1}, (
        "the earlier attempt was kept and no repetition ran to its end"
    )
