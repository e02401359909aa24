"""Hears that children have exited.

signalfd(2) on Linux: exits that come together wake the event loop once, no Python signal
handler runs, and asyncio's wake-up pipe (one byte a signal, which overflows at 1,000 exits a
second) is not involved.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable

from kestrelctl.errors import KestrelError

_SIGINFO_BYTES = 128


class ChildSignal:
    """Calls back on the event loop after children exited; any number of exits may share one call.

    Create it in the main thread, before other threads: they inherit the blocked SIGCHLD, and a
    thread that does not block it may swallow it.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._descriptor: int | None = None
        if sys.platform != "linux":
            loop.add_signal_handler(signal.SIGCHLD, callback)
            return
        self._old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        self._descriptor = _signalfd(signal.SIGCHLD)
        loop.add_reader(self._descriptor, self._heard)

    def _heard(self) -> None:
        assert self._descriptor is not None
        try:
            os.read(self._descriptor, _SIGINFO_BYTES)
        except BlockingIOError:
            return
        self._callback()

    def close(self) -> None:
        """Stops listening."""
        if self._descriptor is None:
            self._loop.remove_signal_handler(signal.SIGCHLD)
            return
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._old_mask)


def _signalfd(number: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    mask = ctypes.create_string_buffer(128)  # sigset_t: 128 bytes in glibc and musl
    libc.sigemptyset(mask)
    libc.sigaddset(mask, number)
    descriptor = int(libc.signalfd(-1, mask, os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        cause = os.strerror(ctypes.get_errno())
        raise KestrelError("cannot watch for the end of tasks", cause=f"signalfd: {cause}")
    return descriptor
