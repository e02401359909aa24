"""The durable list of who is there: it keeps a restart from telling things twice."""

from __future__ import annotations

from collections.abc import Iterable

#: These end a worker's presence.
GONE_KINDS = ("leave", "failed")


class Roll:
    """The workers that have joined and are not gone.

    Args:
        present: the workers of which the store says so.
    """

    def __init__(self, present: Iterable[str] = ()) -> None:
        self._present = dict.fromkeys(present)

    @property
    def present(self) -> list[str]:
        """The workers that are there, in the order in which they joined."""
        return list(self._present)

    def takes(self, kind: str, worker: str) -> bool:
        """Notes what became of a worker.

        Returns:
            Whether that is news: a worker that is there does not join, and one that is not there
            does not go or change.
        """
        there = worker in self._present
        if kind == "join":
            self._present[worker] = None
            return not there
        if kind in GONE_KINDS:
            self._present.pop(worker, None)
            return there
        return there if kind == "update" else True
