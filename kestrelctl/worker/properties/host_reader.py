"""The process that reads properties: `python -m kestrelctl.worker.properties.host_reader`.

A worker waits for all children of its process, whosever they are: plugins have a process of their
own above them, below the worker and in its session. What a plugin leaves behind comes to the worker
and is ended there. A line of JSON has the definitions; each reading is a line, too. At the end of
its input it ends.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from kestrelctl import clock
from kestrelctl.properties.property_definition import PropertyDefinition
from kestrelctl.properties.property_reading import PropertyReading
from kestrelctl.worker.properties import entry_point_plugin
from kestrelctl.worker.properties.built_in import BUILT_IN
from kestrelctl.worker.properties.plugin_run import BuiltInRun, run_program

#: 200 definitions, or a reading.
MOST_LINE_BYTES = 1 << 22
#: From one property's first reading to the next one's: not all at the same moment.
APART_SECONDS = 0.02


class ReadLine(msgspec.Struct, frozen=True):
    """A reading, and of what."""

    name: str
    reading: PropertyReading


def reader_of(definition: PropertyDefinition) -> Callable[[], Awaitable[PropertyReading]]:
    """What reads a property: what is built in, a plugin of a package, or a program."""
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


async def read_again_and_again(
    definition: PropertyDefinition, first_seconds: float, say: Callable[[ReadLine], None]
) -> None:
    """Reads a property at its ticks; those that pass during a reading are left out."""
    read = reader_of(definition)
    next_at = clock.now() + first_seconds
    while True:
        await asyncio.sleep(next_at - clock.now())
        say(ReadLine(definition.name, await read()))
        passed = max(0.0, clock.now() - next_at)
        next_at += definition.tick_seconds * (passed // definition.tick_seconds + 1)


async def serve() -> None:
    """Reads what the first line of standard input says, until that ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    def say(line: ReadLine) -> None:
        os.write(1, msgspec.json.encode(line) + b"\n")

    definitions = msgspec.json.decode(await reader.readline(), type=list[PropertyDefinition])
    tasks = [
        loop.create_task(read_again_and_again(definition, APART_SECONDS * place, say))
        for place, definition in enumerate(definitions)
    ]
    await reader.read()
    for task in tasks:
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
