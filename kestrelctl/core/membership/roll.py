"""Who is there, as far as that is durable: what keeps a restart from telling things twice."""

from __future__ import annotations

from collections.abc import Iterable

#: These end a worker's presence.
GONE_KINDS = ("leave", "failed")


class Roll:
    """The workers that have joined and are not gone.

    Args:
        present: those of whom the store says so.
    """

    def __init__(self, present: Iterable[str] = ()) -> None:
        self._present = dict.fromkeys(present)

    @property
    def present(self) -> list[str]:
        """Those that are there, those first that joined first."""
        return list(self._present)

    def takes(self, kind: str, worker: str) -> bool:
        """Notes what became of a worker.

        Returns:
            Whether that is news: no worker joins that is there, nor goes or changes that is not.
        """
        there = worker in self._present
        if kind == "join":
            self._present[worker] = None
            return not there
        if kind in GONE_KINDS:
            self._present.pop(worker, None)
            return there
        return there if kind == "update" else True
