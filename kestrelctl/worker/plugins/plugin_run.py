"""One run of a plugin, bounded in time and in what it may print: it always gives a reading."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from kestrelctl.child_program import child_program
from kestrelctl.core.properties.reading import PropertyReading, missing_reading, read_printed
from kestrelctl.worker.plugins.built_in import BuiltIn, NoValue

#: A program that prints more is ended.
MOST_PRINTED_BYTES = 4_096
#: Variables that plugins in Python have, too.
PASSED_TO_PYTHON = ("PYTHONPATH",)


async def run_program(
    words: Sequence[str], return_type: str, timeout_seconds: float, at: float
) -> PropertyReading:
    """Returns what a program prints, or why there is no value.

    It has no input, and ends with its group.

    Args:
        return_type: empty if what it prints does not matter: then a success has no value.
    """
    own = {name: os.environ[name] for name in PASSED_TO_PYTHON if name in os.environ}
    try:
        async with asyncio.timeout(timeout_seconds), child_program(words, own) as program:
            printed, complaint = await asyncio.gather(
                _bounded(program.stdout), _bounded(program.stderr)
            )
            status = await program.wait()
    except TimeoutError:
        return missing_reading(at, f"it took longer than {timeout_seconds:g} s")
    except _TooMuch:
        return missing_reading(at, f"more than {MOST_PRINTED_BYTES:,} bytes were printed")
    except (OSError, ValueError, RuntimeError) as error:  # the last where no thread can be started
        return missing_reading(at, f"{words[0]} cannot be run: {error}")
    if status:
        how = f"exit status {status}" if status > 0 else f"signal {-status}"
        lines = complaint.decode(errors="replace").split("\n")
        said = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return missing_reading(at, f"{how}: {said}" if said else how)
    return read_printed(printed, return_type, at) if return_type else PropertyReading(at, None)


class _TooMuch(Exception):
    """A program prints without end."""


async def _bounded(stream: asyncio.StreamReader | None) -> bytes:
    """Reads all of it. _TooMuch if there is no end of it."""
    assert stream is not None
    found = b""
    while len(found) <= MOST_PRINTED_BYTES:
        more = await stream.read(MOST_PRINTED_BYTES + 1 - len(found))
        if not more:
            return found
        found += more
    raise _TooMuch


class BuiltInRun:
    """Runs what is built in, in a thread for each run: one that hangs holds up nothing else."""

    def __init__(self, built_in: BuiltIn) -> None:
        self._built_in = built_in
        self._thread: threading.Thread | None = None

    async def run(
        self, words: Sequence[str], return_type: str, timeout_seconds: float, at: float
    ) -> PropertyReading:
        """Returns what the function returns, or why there is no value."""
        if self._thread is not None and self._thread.is_alive():
            return missing_reading(at, "the reading before hangs")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[PropertyReading] = loop.create_future()

        def take(reading: PropertyReading) -> None:
            if not answer.done():
                answer.set_result(reading)

        def work() -> None:
            reading = self._reading(words, return_type, at)
            with suppress(RuntimeError):  # The loop has ended meanwhile.
                loop.call_soon_threadsafe(take, reading)

        self._thread = threading.Thread(target=work, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            return missing_reading(at, f"it cannot be read: {error}")
        try:
            async with asyncio.timeout(timeout_seconds):
                return await answer
        except TimeoutError:
            return missing_reading(at, f"it took longer than {timeout_seconds:g} s")

    def _reading(self, words: Sequence[str], return_type: str, at: float) -> PropertyReading:
        try:
            value = self._built_in(words)
        except NoValue as error:
            return missing_reading(at, str(error))
        except Exception as error:  # whatever it is, it costs this value and nothing else
            return missing_reading(at, f"{type(error).__name__}: {error}")
        return read_printed(str(value).encode(), return_type, at)
