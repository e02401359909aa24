"""Tells the pool what running tasks use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from kestrelctl.clock_and_session import Clock
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.config import SHORTEST_USAGE_SECONDS
from kestrelctl.core.model.worker.use import Use
from kestrelctl.protocol import workers
from kestrelctl.worker.run.executor import Executor

#: What running tasks use is said of at most so many in one message: some 200 kB.
USES_TOGETHER = 4_000


class UsageHost(Protocol):
    """What the sessions of one process share, as far as it matters here."""

    executor: Executor
    clock: Clock
    random: Random


class UsageReports:
    """What the tasks of one session use.

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
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        """Has the pool told so often; workers that came together do so at other times.

        Args:
            seconds: 0 for never.
        """
        self.stop()
        if seconds > 0:
            self._seconds = max(SHORTEST_USAGE_SECONDS, seconds)
            self._plan(self._host.random.random())

    def stop(self) -> None:
        """There is nobody to tell."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self, part: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(part * self._seconds, self._tell)

    def _tell(self) -> None:
        """Says what tasks use that have run for an interval, in as few messages as can be."""
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
