"""Runs the programs that drivers need: with a time limit, and with what they say when they fail."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from subprocess import DEVNULL, PIPE
from typing import IO

from kestrelctl.errors import KestrelError, MissingTool, TimedOut
from kestrelctl.worker.run.orphans import kill_group

_KEPT_BYTES = 1 << 20
_LAST_LINES = 5
_LAST_CHARACTERS = 800
#: The mark of what podman and docker say of each try that they will repeat. They say at the end
#: what is the matter.
_WARNING = "level=warning"
_CHUNK_BYTES = 1 << 16
_LOOK_SECONDS = 0.02


async def run_tool(
    argv: Sequence[str],
    *,
    limit_seconds: float,
    env: Mapping[str, str] = os.environ,
) -> str:
    """Runs a program to its end; it and its process group do not outlive this call.

    Returns:
        What it has printed; only the end if it is too much.

    Raises:
        MissingTool: it is not installed.
        TimedOut: it took too long.
        KestrelError: it failed; the cause is the end of what it said.
    """
    called = " ".join(argv[:3])
    # `asyncio.create_subprocess_exec` would not do: a loop that ends also cancels the task by which
    # asyncio connects the pipes of a process that has just been started, and then nothing says that
    # the process has ended, and the loop waits for ever (CPython 3.11.7).
    try:
        process = subprocess.Popen(  # noqa: ASYNC220  (it does not wait)
            argv, env=env, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, process_group=0
        )
    except (FileNotFoundError, PermissionError) as error:
        raise MissingTool(f"{argv[0]} is not installed", cause=error.strerror) from None
    printed, said = bytearray(), bytearray()
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        reading = asyncio.gather(_keep(process.stdout, printed), _keep(process.stderr, said))
        try:
            async with asyncio.timeout(limit_seconds):
                await _end_of(process)
                await reading
        except TimeoutError:
            raise TimedOut(
                f"`{called} …` took more than {limit_seconds:g} s", cause=_end(said or printed)
            ) from None
        finally:
            kill_group(process.pid)
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            await _end_of(process)
    if process.returncode:
        raise KestrelError(
            f"`{called} …` failed with status {process.returncode}", cause=_end(said or printed)
        )
    return printed.decode(errors="replace")


async def _end_of(process: subprocess.Popen[bytes]) -> None:
    """Waits for its end. It is not reaped: until then its number is that of no other group."""
    how = os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, process.pid, how) is None:  # noqa: ASYNC222  (it does not wait)
        await asyncio.sleep(_LOOK_SECONDS)


async def _keep(pipe: IO[bytes], kept: bytearray) -> None:
    stream = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    try:
        while chunk := await stream.read(_CHUNK_BYTES):
            kept += chunk
            del kept[:-_KEPT_BYTES]
    finally:
        transport.close()


def _end(said: bytearray) -> str | None:
    lines = said.decode(errors="replace").strip().splitlines()
    lines = [line for line in lines if _WARNING not in line] or lines
    return "\n".join(lines[-_LAST_LINES:])[-_LAST_CHARACTERS:] or None
