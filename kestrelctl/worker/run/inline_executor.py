"""Commands without processes, to measure everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import CANCELLED, ReasonText
from kestrelctl.errors import NotFound
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion


class InlineExecutor:
    """An `Executor` in which every command succeeds in the next iteration of the event loop.

    Args:
        on_completion: called with each `Completion`.
    """

    def __init__(self, on_completion: Callable[[Completion], None]) -> None:
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = 0
        self._on_completion = on_completion
        self._loop = asyncio.get_running_loop()
        self._started: dict[int, float] = {}

    def start(self, command: CommandSpec) -> None:
        """Has it done in the next iteration, together with all others of this one."""
        if not self._started:
            self._loop.call_soon(self._finish)
        self._started[command.number] = time.time()

    def _finish(self) -> None:
        started, self._started = self._started, {}
        for number, started_at in started.items():
            self._on_completion(Completion(number, 0, started_at=started_at))

    def begin(self, number: int) -> None:
        """Does nothing: no command waits."""

    def withdraw(self, number: int) -> None:
        """Does nothing: no command waits."""

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """Ends a command that was started in this iteration."""
        if self._started.pop(number, None) is None:
            return False
        self._loop.call_soon(self._on_completion, Completion(number, reason=reason))
        return True

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Does nothing: commands end at once."""

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """Returns nothing: commands end at once."""
        return {}

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Raises NotFound: no output is kept."""
        raise NotFound(f"the {stream} of attempt {number} is not kept")

    def left(self) -> list[CommandSpec]:
        """Returns none: commands end at once."""
        return []

    async def close(self) -> None:
        """Forgets what is not done."""
        self._started.clear()
