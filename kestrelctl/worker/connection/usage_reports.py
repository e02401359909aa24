"""Tells the pool what running tasks use."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from kestrelctl.clock_and_session import Clock
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.config import SHORTEST_USAGE_SECONDS
from kestrelctl.core.model.worker.use import Use
from kestrelctl.protocol import workers
from kestrelctl.timer import Timer
from kestrelctl.worker.run.executor import Executor

#: The most running tasks of which one message tells what they use: some 200 kB.
USES_TOGETHER = 4_000


class UsageHost(Protocol):
    """The part of what the sessions of one process share that matters here."""

    executor: Executor
    clock: Clock
    random: Random


class UsageReports:
    """Tells the pool what the tasks of one session use.

    Args:
        agent: of the session.
        send: sends a message to the pool.
    """

    def __init__(
        self, agent: Agent, host: UsageHost, send: Callable[[workers.Message], None]
    ) -> None:
        self._agent = agent
        self._host = host
        self._send = send
        self._seconds = 0.0
        self._timer = Timer(self._tell)

    def begin(self, seconds: float) -> None:
        """Tells the pool this often; workers that came together do so at different times.

        Args:
            seconds: 0 for never.
        """
        self.stop()
        if seconds > 0:
            self._seconds = max(SHORTEST_USAGE_SECONDS, seconds)
            self._plan(self._host.random.random())

    def stop(self) -> None:
        """Tells nothing more: there is nobody to tell."""
        self._timer.stop()

    def _plan(self, part: float) -> None:
        self._timer.set(part * self._seconds)

    def _tell(self) -> None:
        """Tells what tasks use that have run for an interval, in as few messages as possible."""
        self._plan(self._host.random.uniform(0.9, 1.0))
        moment = self._host.clock.now()
        started = self._agent.running_since(moment - self._seconds)
        if not (started and self._agent.welcomed):
            return
        uses = [
            Use(number, round(moment - started[number], 3), round(cpu_seconds, 3), memory_bytes)
            for number, (cpu_seconds, memory_bytes) in self._host.executor.used(
                list(started)
            ).items()
        ]
        for first in range(0, len(uses), USES_TOGETHER):
            self._send(workers.RunningUsage(uses=uses[first : first + USES_TOGETHER]))
