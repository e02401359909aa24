"""Programs that others have written: each in a process group of its own, which ends with it.

A process may leave its group: it forks, calls setsid, and no parent leads back to it. After
`adopt_orphans`, this process becomes the parent of such processes (prctl(2),
PR_SET_CHILD_SUBREAPER), finds them by a variable that each program is given, and ends them as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

#: Variables of our environment that programs get, beside those that they are given.
PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
#: How long a killed program may take to die; some never do, in the kernel.
KILLED_SECONDS = 5.0
#: Pause between two looks whether all processes that programs have left have died.
LOOK_SECONDS = 0.01
#: The variable that tells which program a process comes from.
RUN_VARIABLE = "KESTREL_RUN"
_SUBREAPER = 36
_MARK = f"{RUN_VARIABLE}=".encode()

_numbers = itertools.count(1)
#: The programs that run: the process of each, or None while it is started.
_running: dict[int, int | None] = {}
#: Children that belong to no program; None if this process adopts nobody.
_others: frozenset[int] | None = None


def adopt_orphans() -> None:
    """Makes this process the parent of every process below it that loses its own parent.

    From then on, its main thread must start no children but programs.
    """
    global _others
    if sys.platform == "linux" and ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0:
        _others = frozenset(_children())


@asynccontextmanager
async def child_program(
    words: Sequence[str],
    variables: Mapping[str, str],
    *,
    stdin: int = asyncio.subprocess.DEVNULL,
    stderr: int = asyncio.subprocess.PIPE,
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Runs a program whose output is a pipe; at the end it is killed, with all of its group.

    Args:
        variables: beside `PASSED_VARIABLES`.
        stdin, stderr: as of `asyncio.create_subprocess_exec`.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    passed = {name: os.environ[name] for name in PASSED_VARIABLES if name in os.environ}
    number = next(_numbers)
    _running[number] = None
    try:
        program = await asyncio.create_subprocess_exec(
            *words,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=passed | dict(variables) | {RUN_VARIABLE: str(number)},
            start_new_session=True,
        )
        _running[number] = program.pid
        async with _ended(program):
            yield program
    finally:
        del _running[number]
        await _end_orphans()


@asynccontextmanager
async def _ended(program: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """Kills the program and all of its group at the end of the `with`."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)
        # A pipe that nobody reads to its end would stay open: another process may have it.
        program._transport.close()  # type: ignore[attr-defined]
        with suppress(TimeoutError):
            async with asyncio.timeout(KILLED_SECONDS):
                await program.wait()


async def _end_orphans() -> None:
    """Ends the processes that ended programs have left outside of their groups."""
    give_up_at = asyncio.get_running_loop().time() + KILLED_SECONDS
    while _others is not None and asyncio.get_running_loop().time() < give_up_at:
        if None not in _running.values():  # what is being started cannot be told from what is left
            left = list(_orphans(_others))
            if not left:
                return
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(LOOK_SECONDS)


def _orphans(others: frozenset[int]) -> Iterator[int]:
    """Yields the orphans that live, and reaps the others.

    One that does not tell where it comes from is left alone as long as any program runs.
    """
    known = others | {pid for pid in _running.values() if pid is not None}
    for pid in _children():
        if pid in known:
            continue
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) != (0, 0):
                continue
        marks = [each for each in _environment(pid) if each.startswith(_MARK)]
        if not (marks[0].removeprefix(_MARK) in _numbers_that_run() if marks else _running):
            yield pid


def _numbers_that_run() -> set[bytes]:
    return {str(number).encode() for number in _running}


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _children() -> list[int]:
    """Children of the main thread, to which orphans are given (proc(5))."""
    try:
        return list(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
    except OSError:
        return []
