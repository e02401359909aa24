"""Acknowledgements of results: they travel with the next attempts for a worker, or alone."""

from __future__ import annotations

from collections.abc import Callable

from kestrelctl.timer import Timer

#: The time that an acknowledgement may wait for attempts to travel with. A worker that is leaving
#: waits for it; any other only keeps the result a little longer.
COMPANY_SECONDS = 2.0


class Acknowledgements:
    """Results that are durable, by worker, and that the worker has yet to be told of.

    Args:
        send: tells a worker that it may forget the results of these attempts.
    """

    def __init__(self, send: Callable[[str, list[int]], None]) -> None:
        self._send = send
        self._numbers: dict[str, list[int]] = {}
        self._timer = Timer(self.send_all)

    def add(self, worker: str, numbers: list[int]) -> None:
        """Notes that these results are durable."""
        self._numbers.setdefault(worker, []).extend(numbers)
        self._timer.set_once(COMPANY_SECONDS)

    def take(self, worker: str) -> list[int]:
        """Takes out what a worker has yet to be told, for a message that goes there anyway."""
        return self._numbers.pop(worker, [])

    def send_now(self, worker: str) -> None:
        """Tells a worker what waits for company."""
        numbers = self.take(worker)
        if numbers:
            self._send(worker, numbers)

    def send_all(self) -> None:
        """Tells every worker."""
        self._timer.stop()
        waiting, self._numbers = self._numbers, {}
        for worker, numbers in waiting.items():
            self._send(worker, numbers)
