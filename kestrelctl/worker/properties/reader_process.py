"""The worker's side of the process that reads properties: see `host_reader`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from kestrelctl import clock
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.properties.property_definition import PropertyDefinition
from kestrelctl.properties.property_reading import PropertyReading, missing_reading
from kestrelctl.worker.helper_process import start_helper
from kestrelctl.worker.properties.host_reader import MOST_LINE_BYTES, ReadLine

log = logging.getLogger(__name__)

MODULE = "kestrelctl.worker.properties.host_reader"
#: Before it is started again; doubled each time that it ends without having told anything.
AGAIN_SECONDS = 1.0
LONGEST_AGAIN_SECONDS = 60.0


class ReaderProcess:
    """The process; it is started again when it ends.

    Args:
        definitions: what it reads.
        on_reading: takes what was read, and of what.
    """

    def __init__(
        self,
        definitions: Sequence[PropertyDefinition],
        on_reading: Callable[[str, PropertyReading], None],
    ) -> None:
        self._definitions = {each.name: each for each in definitions}
        self._on_reading = on_reading

    async def run(self) -> None:
        """Has properties read until it is cancelled."""
        failures = 0
        while True:
            told = await self._run_once()
            failures = 0 if told else failures + 1
            log.warning("the process that reads properties has ended; it is started again")
            for name in self._definitions:
                at = round(clock.wall(), 3)
                self._on_reading(name, missing_reading(at, "the process that reads it has ended"))
            await asyncio.sleep(doubled_seconds(AGAIN_SECONDS, failures, LONGEST_AGAIN_SECONDS))

    async def _run_once(self) -> bool:
        """Whether it has told anything before it ended."""
        try:
            its_input, output = start_helper((sys.executable, "-P", "-m", MODULE))
        except OSError as error:
            log.warning("properties cannot be read: %s", error)
            return False
        told = False
        reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", buffering=0)
        )
        try:
            definitions = msgspec.json.encode(list(self._definitions.values())) + b"\n"
            await asyncio.to_thread(_write, its_input, definitions)
            while line := await reader.readline():
                found = msgspec.json.decode(line, type=ReadLine)
                if found.name in self._definitions:
                    told = True
                    self._on_reading(found.name, found.reading)
        except (BrokenPipeError, ValueError, msgspec.DecodeError) as error:
            log.warning("the process that reads properties is ended: %s", error)
        finally:
            transport.close()
            os.close(its_input)
        return told


def _write(descriptor: int, data: bytes) -> None:
    """All of it: a pipe takes less at once than definitions may be."""
    while data:
        data = data[os.write(descriptor, data) :]
