"""Starts and stops local pools from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from kestrelctl.errors import KestrelError, NotFound, TimedOut, UsageError
from kestrelctl.local.pool_state import PoolState, is_alive, pool_directory, read_state
from kestrelctl.protocol.answers import PoolSummary
from kestrelctl.protocol.requests import PoolStatus
from kestrelctl.xmpp.prosody import find_prosody
from kestrelctl.xmpp.user import UserConnection, connect_user

START_SECONDS = 60.0
STOP_SECONDS = 60.0


async def up(
    name: str, workers: int, executor: str = "process", isolation: str = "plain"
) -> PoolState:
    """Starts a local pool that goes on when this process ends; returns when it can run tasks.

    Args:
        workers: so many workers of one processor each; 0 for one with all that the machine has.
        isolation: as of `kestrelctl worker run`.

    Raises:
        UsageError: a pool of that name runs.
        MissingTool: there is no XMPP server.
        KestrelError: it did not come up.
    """
    find_prosody()
    directory = pool_directory(name)
    if read_state(directory) is not None:
        raise UsageError(
            f"the pool {name} runs already", hint=f"`kestrelctl down --name {name}` stops it"
        )
    await _clear(directory)
    directory.mkdir(parents=True, mode=0o700)
    process = _start(directory, name, workers, executor, isolation, detached=True)
    return await _ready(process, directory, max(1, workers))


async def down(name: str) -> None:
    """Stops a local pool and removes what it left; running tasks are ended.

    Raises:
        NotFound: there is no such pool.
    """
    directory = pool_directory(name)
    state = read_state(directory)
    if state is None:
        if not directory.exists():
            raise NotFound(f"no pool {name} runs here")
        await _clear(directory)
        return
    # One that was stopped (SIGSTOP) does not hear the first before the second.
    for number in (signal.SIGTERM, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)
    deadline = time.monotonic() + STOP_SECONDS
    while is_alive(state.pid):
        if time.monotonic() > deadline:
            raise TimedOut(f"the pool {name} did not stop", cause=f"its supervisor is {state.pid}")
        await asyncio.sleep(0.02)
    shutil.rmtree(directory, ignore_errors=True)


async def _clear(directory: Path) -> None:
    """Removes what a pool without a supervisor has left: its directory, and keepers of workers.

    All its processes were told to end when the supervisor died, but a keeper that is stopped
    (SIGSTOP) does not hear it.
    """
    keepers = _keepers(directory)
    for pid in keepers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + STOP_SECONDS
    while left := [pid for pid in keepers if is_alive(pid)]:
        if time.monotonic() > deadline:
            raise TimedOut("workers of an earlier pool did not stop", cause=f"processes {left}")
        await asyncio.sleep(0.02)
    shutil.rmtree(directory, ignore_errors=True)


def _keepers(directory: Path) -> list[int]:
    """The keepers that still run; a number that now belongs to another process does not count."""
    found = []
    with contextlib.suppress(OSError, msgspec.DecodeError):
        state = msgspec.json.decode((directory / "pool.json").read_bytes(), type=PoolState)
        for pid in state.worker_pids:
            with contextlib.suppress(OSError):
                if os.fsencode(directory) in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
    return found


@contextlib.asynccontextmanager
async def throw_away_pool(
    workers: int,
    executor: str = "process",
    isolation: str = "plain",
    *,
    metrics: bool = True,
) -> AsyncIterator[PoolState]:
    """A pool for the length of a `with`, which ends with this process at the latest."""
    find_prosody()
    directory = Path(tempfile.mkdtemp(prefix="kestrel-"))
    process = _start(
        directory, directory.name, workers, executor, isolation, detached=False, metrics=metrics
    )
    try:
        yield await _ready(process, directory, max(1, workers))
    finally:
        if process.poll() is None:
            process.terminate()
            process.send_signal(signal.SIGCONT)  # one that was stopped hears nothing before it
            while process.poll() is None:
                await asyncio.sleep(0.02)
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def connect_local(state: PoolState, *, admin: bool = False) -> AsyncIterator[UserConnection]:
    """A connection to a local pool, as its user or its admin."""
    jid = state.admin if admin else state.user
    password = Path(state.admin_password_file if admin else state.password_file).read_text()
    async with connect_user(
        jid, password.strip(), state.domain, state.host, state.port, tls=False
    ) as connection:
        yield connection


def _start(
    directory: Path,
    name: str,
    workers: int,
    executor: str,
    isolation: str,
    *,
    detached: bool,
    metrics: bool = True,
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "kestrelctl.local.supervisor"]
    command += ["--directory", str(directory), "--name", name]
    command += ["--workers", str(workers), "--executor", executor]
    command += ["--isolation", isolation]
    if not detached:
        command.append("--with-parent")
    if not metrics:
        command.append("--no-metrics")
    with (directory / "supervisor.log").open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=detached,
            cwd="/",
        )


async def _ready(process: subprocess.Popen[bytes], directory: Path, workers: int) -> PoolState:
    """Waits until a starting pool has all its workers."""
    deadline = time.monotonic() + START_SECONDS
    try:
        while (state := read_state(directory)) is None:
            _check(process, directory, deadline)
            await asyncio.sleep(0.02)
        async with connect_local(state) as connection:
            while True:
                _check(process, directory, deadline)
                with contextlib.suppress(KestrelError):
                    status = await connection.ask(PoolStatus(), timeout_seconds=2.0)
                    if isinstance(status, PoolSummary) and status.workers.get("idle", 0) >= workers:
                        return read_state(directory) or state
                await asyncio.sleep(0.05)
    except BaseException:
        if process.poll() is None:
            process.terminate()
        raise


def _check(process: subprocess.Popen[bytes], directory: Path, deadline: float) -> None:
    if process.poll() is not None or time.monotonic() > deadline:
        raise KestrelError(
            "the pool did not come up", cause=_last_words(directory), hint="try again"
        )


def _last_words(directory: Path) -> str:
    """The last lines of the logs of a pool that failed."""
    found = []
    for log in sorted(directory.glob("*.log")):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            found.append(f"{log.stem}: {lines[-1]}")
    return "; ".join(found) or "its processes left no word"
