"""Spools for results of loans, on the disk of a manager's machine."""

from __future__ import annotations

from collections.abc import Callable

from kestrel_worlds.simulated_spool import SimulatedSpool
from kestrelctl.flock.rules.lending import LentKey


class MemorySpools:
    """The `Spools` of one pool; what was written stays, whichever process dies.

    Args:
        dropped: called with (borrower, class, numbers) when results that were not acknowledged go.

    Attributes:
        open_spools: the spools that were not removed.
        written: (borrower, class) -> the numbers of all attempts that were ever appended.
    """

    def __init__(self, dropped: Callable[[str, str, list[int]], None]) -> None:
        self._dropped = dropped
        self.open_spools: dict[LentKey, SimulatedSpool] = {}
        self.written: dict[LentKey, set[int]] = {}

    def open(self, borrower: str, loan: str) -> SimulatedSpool:
        key = (borrower, loan)
        spool = self.open_spools.setdefault(key, SimulatedSpool())
        spool.written = self.written.setdefault(key, set())
        return spool

    def kept(self) -> list[LentKey]:
        return sorted(self.open_spools)

    def remove(self, borrower: str, loan: str) -> None:
        spool = self.open_spools.pop((borrower, loan), None)
        if spool is not None and spool.records:
            self._dropped(borrower, loan, list(spool.records))
