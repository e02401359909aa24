"""Enforces the limits of running processes: time and output. Notes their memory on the way."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable, Mapping

from kestrelctl.worker.orphans import kill_group
from kestrelctl.worker.running_process import RunningProcess
from kestrelctl.worker.usage import sample

WATCH_SECONDS = 0.25
"""How often running processes are looked at."""
YOUNG_SECONDS = 0.1
"""A process younger than this is not looked at, so that most short tasks cost nothing here."""
GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""


class LimitEnforcer:
    """Looks at the running processes from time to time, and only while there are any.

    Args:
        running: by process id.
        output_limit_bytes: a task that writes more to stdout or stderr is killed.
        reap: takes the processes that have ended out of `running`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        running: Mapping[int, RunningProcess],
        output_limit_bytes: int,
        reap: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._running = running
        self._output_limit_bytes = output_limit_bytes
        self._reap = reap
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, process: RunningProcess, time_limit_seconds: float | None) -> None:
        """Takes care of a process that has just started."""
        now = time.monotonic()
        process.sample_at = now + YOUNG_SECONDS
        process.terminated = False
        process.deadline = math.inf if time_limit_seconds is None else now + time_limit_seconds
        self._look_by(min(process.deadline, now + WATCH_SECONDS))

    def terminate(self, process: RunningProcess, reason: str) -> None:
        """Ends a process: SIGTERM to its group, SIGKILL after the grace or at the second call."""
        process.reason = process.reason or reason
        if process.terminated:
            kill_group(process.pid, signal.SIGKILL)
            process.deadline = math.inf
            return
        kill_group(process.pid, signal.SIGTERM)
        process.terminated = True
        process.deadline = time.monotonic() + GRACE_SECONDS
        self._look_by(process.deadline)

    def look_soon(self) -> None:
        """Has `reap` called again, though perhaps nothing runs."""
        self._look_by(time.monotonic() + WATCH_SECONDS)

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_by(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        self._reap()  # in case a thread without our signal mask swallowed the signal
        now = time.monotonic()
        again = now + WATCH_SECONDS
        for process in self._running.values():
            if process.deadline <= now:
                self.terminate(process, "time-limit")
            again = min(again, process.deadline)
            if now - process.since < YOUNG_SECONDS:
                continue
            if max(process.sandbox.sizes()) > self._output_limit_bytes:
                process.terminated = True  # no grace: it would go on writing
                self.terminate(process, "output-limit")
            if process.sample_at <= now and process.completion is None:
                # At ages that double: a high-water mark needs no more.
                process.sample_at = now + (now - process.since)
                process.peak_bytes = sample(process.pid) or process.peak_bytes
        if self._running:
            self._look_by(max(again, now + 0.01))
