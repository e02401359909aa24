"""Runs blocking work in a thread of its own, where it holds up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable


async def in_a_thread(name: str, work: Callable[[], None]) -> None:
    """Does work in a thread of its own, which keeps nobody from ending the process.

    A thread of the loop's own pool would be one that others wait for.

    Args:
        name: the thread's.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        found: Exception | None = None
        try:
            work()
        except Exception as error:  # whatever it is, the loop hears it
            found = error
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, found)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done
