"""The process that runs plugins: `python -m kestrelctl.worker.plugins.plugin_host`.

A worker waits for all children of its process, whosever they are: plugins have a process of their
own above them, below the worker and in its session. What a plugin leaves behind comes to the worker
and is ended there. Each line of its input and of its output is a message in JSON. At the end of its
input it ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeAlias

import msgspec

from kestrelctl import clock
from kestrelctl.child_program import adopt_orphans
from kestrelctl.core.properties.definition import PropertyDefinition
from kestrelctl.core.properties.reading import PropertyReading
from kestrelctl.worker.plugins import entry_point_plugin
from kestrelctl.worker.plugins.built_in import BUILT_IN
from kestrelctl.worker.plugins.plugin_run import BuiltInRun, run_program

#: Room for 200 definitions, or a reading.
MOST_LINE_BYTES = 1 << 22
#: The pause from one property's first reading to the next one's: not all at the same moment.
APART_SECONDS = 0.02


class ReadThese(msgspec.Struct, frozen=True, tag="read"):
    """An order to read these again and again; the first line."""

    definitions: list[PropertyDefinition]


class ReadNow(msgspec.Struct, frozen=True, tag="now"):
    """An order to read these once more, whenever they are due; all if none is named."""

    names: list[str]


class RunThis(msgspec.Struct, frozen=True, tag="run"):
    """An order to run a program once; `RanLine` of the same number answers."""

    number: int
    words: list[str]
    return_type: str
    timeout_seconds: float


class ReadLine(msgspec.Struct, frozen=True, tag="reading"):
    """A reading, and the property that was read."""

    name: str
    reading: PropertyReading


class RanLine(msgspec.Struct, frozen=True, tag="ran"):
    """The outcome of a program that was run once."""

    number: int
    reading: PropertyReading


ToPluginHost: TypeAlias = ReadThese | ReadNow | RunThis
FromPluginHost: TypeAlias = ReadLine | RanLine


def reader_of(definition: PropertyDefinition) -> Callable[[], Awaitable[PropertyReading]]:
    """Returns what reads a property: a built-in function, a plugin of a package, or a program."""
    command, *parameters = definition.words
    if command in BUILT_IN:
        run = BuiltInRun(BUILT_IN[command]).run
        words = parameters
    else:
        run = run_program
        words = list(definition.words)
        if entry_point_plugin.is_there(command):
            words = [sys.executable, "-P", "-m", entry_point_plugin.__name__, *words]

    async def read() -> PropertyReading:
        timeout = definition.timeout_seconds
        return await run(words, definition.return_type, timeout, round(clock.wall(), 3))

    return read


class RepeatedReading:
    """Reads a property at its ticks, and when it is asked to.

    Ticks that pass during a reading are left out.
    """

    def __init__(self, definition: PropertyDefinition, say: Callable[[ReadLine], None]) -> None:
        self._definition = definition
        self._say = say
        self._read = reader_of(definition)
        self._asked = asyncio.Event()

    def read_now(self) -> None:
        """Has it read as soon as a reading that is under way has ended."""
        self._asked.set()

    async def run(self, first_seconds: float) -> None:
        """Reads for ever.

        Args:
            first_seconds: until the first reading.
        """
        tick = self._definition.tick_seconds
        next_at = clock.now() + first_seconds
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, next_at - clock.now())):
                    await self._asked.wait()
            self._asked.clear()
            self._say(ReadLine(self._definition.name, await self._read()))
            if clock.now() >= next_at:
                next_at += tick * ((clock.now() - next_at) // tick + 1)


async def run_once(order: RunThis, say: Callable[[RanLine], None]) -> None:
    """Runs a program once, and says what came of it."""
    at = round(clock.wall(), 3)
    reading = await run_program(order.words, order.return_type, order.timeout_seconds, at)
    say(RanLine(order.number, reading))


async def serve() -> None:
    """Does what standard input says, until that ends."""
    adopt_orphans()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    readings: dict[str, RepeatedReading] = {}
    tasks: set[asyncio.Task[None]] = set()

    def say(line: FromPluginHost) -> None:
        os.write(1, msgspec.json.encode(line) + b"\n")

    while line := await reader.readline():
        order = msgspec.json.decode(line, type=ToPluginHost)
        if isinstance(order, ReadThese):
            for place, definition in enumerate(order.definitions):
                found = readings[definition.name] = RepeatedReading(definition, say)
                tasks.add(loop.create_task(found.run(APART_SECONDS * place)))
        elif isinstance(order, ReadNow):
            for name in order.names or list(readings):
                if name in readings:
                    readings[name].read_now()
        else:
            task = loop.create_task(run_once(order, say))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def main() -> None:
    """Serves until its input ends."""
    with suppress(BrokenPipeError, KeyboardInterrupt):  # The worker has gone.
        asyncio.run(serve())
    # A thread that hangs in the kernel must not hold up the end.
    os._exit(0)


if __name__ == "__main__":
    main()
