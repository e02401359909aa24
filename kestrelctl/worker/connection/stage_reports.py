"""Tells the pool which stages tasks have begun: at most once a second, and with each hello."""

from __future__ import annotations

from collections.abc import Callable

from kestrelctl.protocol import workers
from kestrelctl.timer import Timer

#: From the start of a stage to the message that names it; others that begin meanwhile go along.
PAUSE_SECONDS = 1.0
#: The most that are named in one message: some 100 kB.
TOGETHER = 4_000


class StageReports:
    """Keeps the stages of the attempts of one session, and what the pool has yet to hear of them.

    Nothing is said of stages that are over within a second: the result tells of them.

    Args:
        send: sends a message to the pool.
        is_heard: whether the pool takes messages of this session now.
    """

    def __init__(
        self, send: Callable[[workers.Message], None], is_heard: Callable[[], bool]
    ) -> None:
        self._send = send
        self._is_heard = is_heard
        self._stage_of: dict[int, str] = {}
        self._untold: dict[int, str] = {}
        self._timer = Timer(self._tell)

    def began(self, number: int, name: str) -> None:
        """Notes that an attempt has begun a stage."""
        self._stage_of[number] = self._untold[number] = name
        self.go_on()

    def ended(self, number: int) -> None:
        """Forgets an attempt that is over."""
        if self._stage_of.pop(number, None) is not None:
            self._untold.pop(number, None)

    def all(self) -> list[tuple[int, str]]:
        """(number, name) of all attempts that are in a stage, for a hello: it tells all."""
        self._untold.clear()
        return list(self._stage_of.items())

    def go_on(self) -> None:
        """Tells what is untold, soon, if the pool hears it."""
        if self._untold and self._is_heard():
            self._timer.set_once(PAUSE_SECONDS)

    def stop(self) -> None:
        """Tells nothing more: the connection is lost, and the next hello tells all."""
        self._timer.stop()

    def _tell(self) -> None:
        if not self._is_heard():
            return
        untold, self._untold = list(self._untold.items()), {}
        for first in range(0, len(untold), TOGETHER):
            self._send(workers.Staged(stages=untold[first : first + TOGETHER]))
