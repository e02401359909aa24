"""The worker's side of the process that runs plugins: see `plugin_host`."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence

import msgspec

from kestrelctl import clock
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.core.properties.definition import PropertyDefinition
from kestrelctl.core.properties.reading import PropertyReading, missing_reading
from kestrelctl.worker.helper_process import start_helper
from kestrelctl.worker.plugins.plugin_host import (
    MOST_LINE_BYTES,
    FromPluginHost,
    ReadLine,
    ReadNow,
    ReadThese,
    RunThis,
    ToPluginHost,
)

log = logging.getLogger(__name__)

MODULE = "kestrelctl.worker.plugins.plugin_host"
#: Pause before it starts again; doubled each time that it ends without having told anything.
AGAIN_SECONDS = 1.0
LONGEST_AGAIN_SECONDS = 60.0
#: How much longer than a program may last its answer may take.
ANSWER_SECONDS = 10.0
ENDED = "the process that runs plugins has ended"


class PluginProcess:
    """The process that runs plugins; it is started again when it ends.

    Args:
        definitions: what it reads again and again.
        on_reading: takes what was read, and of what.
    """

    def __init__(
        self,
        definitions: Sequence[PropertyDefinition],
        on_reading: Callable[[str, PropertyReading], None],
    ) -> None:
        self._definitions = {each.name: each for each in definitions}
        self._on_reading = on_reading
        self._input: asyncio.WriteTransport | None = None
        self._last = 0
        self._running: dict[int, asyncio.Future[PropertyReading]] = {}

    async def run(self) -> None:
        """Has plugins run until it is cancelled."""
        failures = 0
        while True:
            told = await self._run_once()
            failures = 0 if told else failures + 1
            log.warning("%s; it is started again", ENDED)
            for name in self._definitions:
                self._on_reading(name, missing_reading(round(clock.wall(), 3), ENDED))
            await asyncio.sleep(doubled_seconds(AGAIN_SECONDS, failures, LONGEST_AGAIN_SECONDS))

    def read_now(self, names: Sequence[str]) -> None:
        """Has properties read once more, whenever they are due; all if none is named."""
        self._say(ReadNow(list(names)))

    @property
    def running(self) -> int:
        """The number of programs that run and were to be run once."""
        return len(self._running)

    async def run_program(
        self, words: Sequence[str], return_type: str, timeout_seconds: float
    ) -> PropertyReading:
        """Runs a program once; returns what it prints, or why there is no value."""
        self._last += 1
        number = self._last
        future: asyncio.Future[PropertyReading] = asyncio.get_running_loop().create_future()
        self._running[number] = future
        try:
            if not self._say(RunThis(number, list(words), return_type, timeout_seconds)):
                return missing_reading(round(clock.wall(), 3), ENDED)
            async with asyncio.timeout(timeout_seconds + ANSWER_SECONDS):
                return await future
        except TimeoutError:
            return missing_reading(round(clock.wall(), 3), "the process that runs plugins hangs")
        finally:
            del self._running[number]

    def _say(self, order: ToPluginHost) -> bool:
        if self._input is None:
            return False
        self._input.write(msgspec.json.encode(order) + b"\n")
        return True

    async def _run_once(self) -> bool:
        """Runs the process until it ends; returns whether it has told anything."""
        loop = asyncio.get_running_loop()
        try:
            its_input, its_output = start_helper((sys.executable, "-P", "-m", MODULE))
        except OSError as error:
            log.warning("no plugins can be run: %s", error)
            return False
        told = False
        reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
        output, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(its_output, "rb", buffering=0)
        )
        self._input, _ = await loop.connect_write_pipe(
            asyncio.Protocol, os.fdopen(its_input, "wb", buffering=0)
        )
        try:
            self._say(ReadThese(list(self._definitions.values())))
            while line := await reader.readline():
                told = True
                self._heard(msgspec.json.decode(line, type=FromPluginHost))
        except (ValueError, msgspec.DecodeError) as error:
            log.warning("the process that runs plugins is ended: %s", error)
        finally:
            output.close()
            if not self._input.is_closing():  # it is once its reader has gone
                self._input.abort()
            self._input = None
            for future in self._running.values():
                if not future.done():
                    future.set_result(missing_reading(round(clock.wall(), 3), ENDED))
        return told

    def _heard(self, line: FromPluginHost) -> None:
        if isinstance(line, ReadLine):
            if line.name in self._definitions:
                self._on_reading(line.name, line.reading)
            return
        future = self._running.get(line.number)
        if future is not None and not future.done():
            future.set_result(line.reading)
