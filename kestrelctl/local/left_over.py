"""Ends what a pool without a supervisor has left, by number and identity, never by name alone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import signal
import time
from pathlib import Path

from kestrelctl.errors import KestrelError, TimedOut
from kestrelctl.local.pool_state import (
    PoolState,
    is_alive,
    is_of_pool,
    last_state,
    processes_of,
    remove_state,
)
from kestrelctl.worker.run.orphans import SCRATCH_VARIABLE
from kestrelctl.worker.trash import remove_tree

#: How long what is left gets to end by itself.
GRACE_SECONDS = 10.0
#: How long what was killed may take to go.
STOP_SECONDS = 60.0


async def end_left_over(directory: Path) -> None:
    """Ends the processes and tasks of a pool that has no supervisor any more; its data stay.

    The kernel told its server, manager and keepers to end when the supervisor died, but one that
    is stopped (SIGSTOP) does not hear it, and a task whose keeper was killed goes on.

    Raises:
        TimedOut: something does not end.
    """
    state = last_state(directory)
    if state is not None:
        for pid in _left(state, directory):
            keeper = pid in state.worker_pids
            for number in (signal.SIGHUP if keeper else signal.SIGTERM, signal.SIGCONT):
                _send(pid, number)
        await _until_gone(state, directory, GRACE_SECONDS)
        for pid in _left(state, directory):
            _send(pid, signal.SIGKILL)
        if left := await _until_gone(state, directory, STOP_SECONDS):
            raise TimedOut("what an earlier pool left did not stop", cause=f"processes {left}")
    for pid in tasks_of(directory):
        _send(pid, signal.SIGKILL)
    remove_state(directory)


def delete_pool(directory: Path) -> None:
    """Deletes all that a pool has stored, also directories that a task has closed to its user.

    Raises:
        KestrelError: something cannot be removed.
    """
    start = secrets.token_hex(4)
    numbers = itertools.count(1)
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for name in os.listdir(opened):
            remove_tree(name, opened, lambda: f"{start}-{next(numbers)}")
        os.rmdir(directory)
    except OSError as error:
        raise KestrelError(
            f"{directory} could not be deleted",
            cause=f"{error.strerror}: {', '.join(os.listdir(opened)[:3])}",
        ) from error
    finally:
        os.close(opened)


async def _until_gone(state: PoolState, directory: Path, seconds: float) -> list[int]:
    deadline = time.monotonic() + seconds
    while (left := _left(state, directory)) and time.monotonic() < deadline:
        await asyncio.sleep(0.02)
    return left


def _left(state: PoolState, directory: Path) -> list[int]:
    return [pid for pid in processes_of(state) if _is_left(state, pid, directory)]


def _is_left(state: PoolState, pid: int, directory: Path) -> bool:
    if state.marks.get(pid):
        return is_of_pool(state, pid)
    with contextlib.suppress(OSError):  # an older version wrote it, or the system tells no mark
        return is_alive(pid) and os.fsencode(directory) in _words(pid, "cmdline")
    return False


def tasks_of(directory: Path) -> list[int]:
    """Processes of tasks of a pool: each has a variable that names its scratch directory there."""
    mark = os.fsencode(f"{SCRATCH_VARIABLE}={directory.absolute()}/")
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            if any(
                word.startswith(mark) for word in _words(int(entry.name), "environ").split(b"\0")
            ):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _words(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
