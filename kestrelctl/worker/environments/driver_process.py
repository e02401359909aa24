"""Drivers that run in a process of their own: see `maker`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.maker import MOST_LINE_BYTES, DriverAnswer, DriverCall
from kestrelctl.worker.helper_process import start_helper

MODULE = "kestrelctl.worker.environments.maker"


class DriverProcess:
    """The process of the drivers; it is started when it is first needed, and again if it has ended.

    Args:
        root: where environments are kept.
        pool, worker: whose they are.
    """

    def __init__(self, root: Path, pool: str, worker: str) -> None:
        self._words = (sys.executable, "-P", "-m", MODULE, str(root), pool, worker)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._last = 0
        self._input: int | None = None
        self._listening: asyncio.Task[None] | None = None

    async def ask(self, call: DriverCall) -> Any:
        """Returns what a driver answers.

        Raises:
            KestrelError: it failed, or its process has ended.
        """
        if self._input is None:
            self._input = self._start()
        self._last += 1
        call.number = self._last
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls[call.number] = future
        try:
            os.write(self._input, msgspec.json.encode(call) + b"\n")
            return await future
        except BrokenPipeError:
            raise KestrelError("the process that makes environments has ended") from None
        finally:
            self._calls.pop(call.number, None)

    def close(self) -> None:
        """Ends the process."""
        if self._input is not None:
            os.close(self._input)
            self._input = None
        if self._listening is not None:
            self._listening.cancel()

    def _start(self) -> int:
        try:
            ours, output = start_helper(self._words)
        except OSError as error:
            raise KestrelError("environments cannot be made", cause=str(error)) from error
        self._listening = asyncio.get_running_loop().create_task(self._listen(output))
        return ours

    async def _listen(self, output: int) -> None:
        reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", buffering=0)
        )
        try:
            while line := await reader.readline():
                found = msgspec.json.decode(line, type=DriverAnswer)
                future = self._calls.get(found.number)
                if future is None or future.done():
                    continue
                if found.error:
                    future.set_exception(KestrelError(found.error, cause=found.cause or None))
                else:
                    future.set_result(found.result)
        finally:
            transport.close()
            self._ended()

    def _ended(self) -> None:
        if self._input is not None:
            with suppress(OSError):
                os.close(self._input)
            self._input = None
        for future in self._calls.values():
            if not future.done():
                future.set_exception(KestrelError("the process that makes environments has ended"))


class DistantDriver:
    """An `EnvironmentDriver` whose work that process does."""

    def __init__(self, kind: str, process: DriverProcess) -> None:
        self._kind = kind
        self._process = process

    async def prepare(self, wanted: EnvironmentClass) -> str:
        """Implements `EnvironmentDriver.prepare`."""
        return str(await self._ask("prepare", wanted=wanted))

    async def start(
        self, name: str, wanted: EnvironmentClass, prepared: str, command: Sequence[str], token: str
    ) -> None:
        """Implements `EnvironmentDriver.start`."""
        await self._ask(
            "start",
            name=name,
            wanted=wanted,
            prepared=prepared,
            command=tuple(command),
            token=token,
        )

    async def status(self) -> dict[str, EnvironmentStatus]:
        """Implements `EnvironmentDriver.status`."""
        return msgspec.convert(await self._ask("status"), dict[str, EnvironmentStatus])

    async def stop(self, name: str) -> None:
        """Implements `EnvironmentDriver.stop`."""
        await self._ask("stop", name=name)

    async def sweep(self) -> list[str]:
        """Does `environment_driver.sweep` in the process."""
        return msgspec.convert(await self._ask("sweep"), list[str])

    async def collect(self, in_use: Collection[str]) -> list[str]:
        """Implements `EnvironmentDriver.collect`."""
        return msgspec.convert(await self._ask("collect", in_use=tuple(in_use)), list[str])

    async def _ask(self, method: str, **given: Any) -> Any:
        return await self._process.ask(DriverCall(0, self._kind, method, **given))
