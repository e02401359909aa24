"""Environments that are processes of this machine, each below a leader.

The leader notes its number in the environment's own directory before it executes the command: so
there is no moment in which it runs and cannot be found. Its number alone would not do, because
numbers are used again; its start time is noted with it (proc(5), /proc/pid/stat).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.run.process_tree import children

LEADER_FILE = "leader"
LOG_FILE = "log"
GRACE_SECONDS = 10.0
_START_SECONDS = 10.0
_LOOK_SECONDS = 0.02
_SAID_BYTES = 4096
_NOTE_ITSELF = (
    'cd "${0%/*}" && read -r line </proc/$$/stat && echo "$line" >"$0.new" && mv "$0.new" "$0" '
    '&& exec "$@"'
)


async def start_leader(own: Path, command: Sequence[str], env: Mapping[str, str]) -> None:
    """Starts a command that outlives this process, in a process group of its own.

    Raises:
        KestrelError: it has ended before it could begin.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    leader = str(own / LEADER_FILE)
    try:
        pid = os.posix_spawn(  # noqa: ASYNC221  (it does not wait)
            "/bin/sh",
            ("sh", "-c", _NOTE_ITSELF, leader, *command),
            dict(env),
            file_actions=(
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(own / LOG_FILE), append, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ),
            setpgroup=0,
        )
        async with asyncio.timeout(_START_SECONDS):
            while not os.path.exists(leader):
                if not _runs(pid):
                    raise KestrelError(
                        f"{command[0]} cannot be started", cause=said(own) or "it ended at once"
                    )
                await asyncio.sleep(_LOOK_SECONDS)
    except (OSError, TimeoutError) as error:
        raise KestrelError(f"{command[0]} cannot be started", cause=str(error)) from error


def status_of_leader(own: Path) -> EnvironmentStatus:
    """Whether the leader still runs, and what it has said if not."""
    # What all of many say at each look would be too much for a line to the worker.
    runs = _leader(own) is not None
    return EnvironmentStatus(runs, "" if runs else said(own))


def said(own: Path) -> str:
    """The end of what was printed there."""
    try:
        with open(own / LOG_FILE, "rb") as stream:
            stream.seek(0, os.SEEK_END)
            stream.seek(max(0, stream.tell() - _SAID_BYTES))
            return stream.read().decode(errors="replace").strip()
    except OSError:
        return ""


async def end_leader(own: Path, *, levels: int, grace_seconds: float = GRACE_SECONDS) -> None:
    """Asks what runs below the leader to end; when the time is over, ends all of it.

    Args:
        levels: how far below the leader the process is that is asked. Programs that make namespaces
            do not hand on what they are told.
    """
    pid = _leader(own)
    if pid is None:
        return
    with contextlib.suppress(psutil.NoSuchProcess):
        leader = psutil.Process(pid)
        below = leader.children(recursive=True)
        for asked in _so_far_below(pid, levels) or [pid]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(asked, signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while _leader(own) is not None:
                    await asyncio.sleep(_LOOK_SECONDS)
        if leader.is_running():
            below += leader.children(recursive=True)
        for process in (leader, *below):  # it is still the same, or psutil leaves it alone
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                process.kill()
        while any(map(_is_there, (leader, *below))):
            await asyncio.sleep(_LOOK_SECONDS)


def _is_there(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _so_far_below(pid: int, levels: int) -> list[int]:
    found = [pid]
    for _ in range(levels):
        found = [child for each in found for child in children(each)]
    return found


def _leader(own: Path) -> int | None:
    """The leader's process id; None if it has ended."""
    try:
        noted = (own / LEADER_FILE).read_text()
        pid = int(noted.split()[0])
        now = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, ValueError, IndexError):
        return None
    return pid if _runs(pid) and _began(now) == _began(noted) else None


def _runs(pid: int) -> bool:
    with contextlib.suppress(ChildProcessError):  # of an earlier process
        os.waitpid(pid, os.WNOHANG)
    try:
        return _after_name(Path(f"/proc/{pid}/stat").read_text())[0] not in ("Z", "X")
    except OSError:
        return False


def _began(stat: str) -> str:
    return _after_name(stat)[19]


def _after_name(stat: str) -> list[str]:
    """The fields from the state on; before it is the name, which may have anything in it."""
    return stat.rpartition(")")[2].split()
