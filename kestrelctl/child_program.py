"""Programs that others have written: each in a group of its own, which ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

#: They have these variables of ours, and what else they are given.
PASSED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER", "LOGNAME")
#: How long one may take to die; in the kernel some never do.
KILLED_SECONDS = 5.0


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
    program = await asyncio.create_subprocess_exec(
        *words,
        stdin=stdin,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        env=passed | dict(variables),
        start_new_session=True,
    )
    try:
        yield program
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(program.pid, signal.SIGKILL)
        # A pipe that nobody reads to its end would stay open: another process may have it.
        program._transport.close()  # type: ignore[attr-defined]
        with suppress(TimeoutError):
            await asyncio.wait_for(program.wait(), KILLED_SECONDS)
