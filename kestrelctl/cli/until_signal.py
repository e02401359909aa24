"""Does long work that a signal ends in good order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

#: The exit status for each signal that ends a bench before its last run.
SIGNAL_STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


async def until_a_signal(work: Coroutine[Any, Any, None]) -> signal.Signals | None:
    """Does some work; a signal cancels it, so that it can put away what it has made.

    Later signals change nothing: the work is about to end. A signal that was ignored at the start
    stays ignored: nohup(1) asks for that, and shells do for commands in the background.

    Returns:
        The signal that ended it; None if it came to its end.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work)
    first: signal.Signals | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal first
        if first is None:
            first = number
            task.cancel()

    heard = [number for number in SIGNAL_STATUS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if first is None:
            raise
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
    return first
