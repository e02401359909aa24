"""The process in which a worker's drivers run: `python -m kestrelctl.worker.environments.maker`.

A worker waits for all children of its process, whosever they are, and ends those that daemonise: a
driver's tools and containers would be among them. So drivers have a process of their own, below the
worker and in its session. One line of JSON is a call, and one line its answer; at the end of its
input it ends, and leaves the environments to whoever looks for them next.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.driver_choice import driver_of
from kestrelctl.worker.environments.environment_driver import EnvironmentDriver, sweep
from kestrelctl.worker.run.orphans import PR_SET_CHILD_SUBREAPER, prctl

#: A call has a recipe's place and not the recipe, so it is short.
MOST_LINE_BYTES = 1 << 20


class DriverCall(msgspec.Struct, omit_defaults=True):
    """A call of a driver's method.

    Attributes:
        number: the answer has it, too.
        method: `prepare`, `start`, `status`, `stop`, `sweep` or `collect`.
    """

    number: int
    kind: str
    method: str
    name: str = ""
    wanted: EnvironmentClass | None = None
    prepared: str = ""
    command: tuple[str, ...] = ()
    token: str = ""
    in_use: tuple[str, ...] = ()


class DriverAnswer(msgspec.Struct, omit_defaults=True):
    """The outcome of a call: a result, or an error.

    Attributes:
        error: in a line; empty if all went well.
    """

    number: int
    result: Any = None
    error: str = ""
    cause: str = ""


async def answer(call: DriverCall, driver: Callable[[str], EnvironmentDriver]) -> DriverAnswer:
    """Does what a call asks for, and answers it.

    Args:
        driver: returns the driver of a kind.
    """
    try:
        return DriverAnswer(call.number, await _done(call, driver(call.kind)))
    except KestrelError as error:
        return DriverAnswer(call.number, error=error.message, cause=error.cause or "")
    except OSError as error:
        return DriverAnswer(call.number, error="the driver failed", cause=str(error))
    except Exception as error:  # whatever it is, the worker waits for an answer
        return DriverAnswer(call.number, error="the driver failed", cause=repr(error))


async def _done(call: DriverCall, driver: EnvironmentDriver) -> Any:
    match call.method:
        case "status":
            return await driver.status()
        case "stop":
            return await driver.stop(call.name)
        case "sweep":
            return await sweep(driver)
        case "collect":
            return await driver.collect(call.in_use)
    assert call.wanted is not None
    if call.method == "prepare":
        return await driver.prepare(call.wanted)
    return await driver.start(call.name, call.wanted, call.prepared, call.command, call.token)


async def serve(root: Path, owner: EnvironmentOwner) -> None:
    """Answers calls from standard input until that ends."""
    driver = functools.cache(lambda kind: driver_of(kind, root, owner))
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    under_way: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def work(call: DriverCall) -> None:
        found = await answer(call, driver)
        os.write(1, msgspec.json.encode(found) + b"\n")

    while line := await reader.readline():
        call = msgspec.json.decode(line, type=DriverCall)
        earlier = under_way.pop((call.kind, call.name), None)
        if call.method == "stop" and earlier is not None:
            earlier.cancel()  # what is being prepared or started
        task = loop.create_task(work(call))
        if call.method in ("prepare", "start"):
            under_way[call.kind, call.name] = task


def main() -> None:
    """Serves the owner and the directory that the command line names."""
    # Containers leave their monitors behind: these are to come here, and not to the worker.
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    root, pool, worker = sys.argv[1:]
    asyncio.run(serve(Path(root), EnvironmentOwner(pool, worker)))


if __name__ == "__main__":
    main()
