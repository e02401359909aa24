"""Starts `kestrelctl …` as an operator would."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil

from kestrelctl.errors import Unreachable
from kestrelctl.protocol.requests import PoolStatus
from kestrelctl.xmpp.user import UserConnection

Spawn = Callable[..., "subprocess.Popen[str]"]
KESTRELCTL = [sys.executable, "-m", "kestrelctl"]


@contextmanager
def spawning() -> Iterator[Spawn]:
    """Starts `kestrelctl …`, and in the end ends what is left of it."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object, before: Sequence[str] = (), **how: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(  # type: ignore[call-overload]
            [*before, *KESTRELCTL, *map(str, words)],
            stdout=subprocess.PIPE,
            text=True,
            **{"stderr": subprocess.PIPE, **how},
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def sleeping_below(process: psutil.Process) -> list[psutil.Process]:
    """The tasks below a process that sleep; one that ends while this looks is none."""
    found = []
    for child in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if child.name() == "sleep":
                found.append(child)
    return found


async def answering(user: UserConnection, seconds: float = 60.0) -> None:
    """Waits until a manager that was just started answers.

    On a busy machine that takes longer than a user has patience with the manager of a pool.
    """
    async with asyncio.timeout(seconds):
        while True:
            with suppress(Unreachable):
                await user.ask(PoolStatus())
                return


async def until(what: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)
