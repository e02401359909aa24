"""Tells systemd the state of a daemon: sd_notify(3), sd_watchdog_enabled(3)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress

from kestrelctl.notify_socket import to_parent_or_systemd
from kestrelctl.timer import Timer

#: Pause between two looks at whether the status has changed.
STATUS_SECONDS = 5.0


class Notifier:
    """Says that a daemon is ready, what it does, that it stops, and that its event loop turns.

    A loop that is stuck says nothing, and systemd ends the service after `WatchdogSec=`. Without
    systemd all of this does nothing.

    Args:
        status: describes the daemon in one line.
        environment: as systemd gives it to services. `WATCHDOG_PID` may be this process or its
            parent: a worker runs below its keeper, and both are what the watchdog is about.
    """

    def __init__(
        self, status: Callable[[], str], environment: Mapping[str, str] = os.environ
    ) -> None:
        self._status = status
        self._said = ""
        self._socket = to_parent_or_systemd(environment)
        self._watchdog_seconds = _watchdog_seconds(environment) if self._socket else 0.0
        self._loop = asyncio.get_running_loop()
        self._timer = Timer(self._tick)

    def ready(self) -> None:
        """Says that the daemon is ready; from now on a timer sends its status and signs of life."""
        self._say("READY=1")
        if self._socket is not None:
            self._tick()

    def stopping(self) -> None:
        """Says that the daemon is stopping, which may take a while."""
        self._say("STOPPING=1")

    def close(self) -> None:
        """Says nothing more, and closes the socket."""
        self._timer.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _tick(self) -> None:
        words = ["WATCHDOG=1"] if self._watchdog_seconds else []
        status = " ".join(self._status().split())
        if status != self._said:
            self._said = status
            words.append(f"STATUS={status}")
        if words:
            self._say(*words)
        pause = min(STATUS_SECONDS, self._watchdog_seconds / 2 or STATUS_SECONDS)
        self._timer.set(pause)

    def _say(self, *words: str) -> None:
        if self._socket is not None:
            with suppress(OSError):  # systemd does not read it: the daemon goes on
                self._socket.send("\n".join(words).encode())


def _watchdog_seconds(environment: Mapping[str, str]) -> float:
    """The time that systemd waits for a sign of life; 0 if it wants none."""
    meant = environment.get("WATCHDOG_PID", "")
    microseconds = environment.get("WATCHDOG_USEC", "")
    if not microseconds.isdecimal() or meant not in ("", str(os.getpid()), str(os.getppid())):
        return 0.0
    return int(microseconds) / 1e6
