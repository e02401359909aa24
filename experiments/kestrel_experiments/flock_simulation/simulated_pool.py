"""What stands for a pool's queue and machines in a simulated flock, and whom it tells of them.

These are classes, not protocols: compiled, what belongs to a class is found many times faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from kestrelctl.protocol.pools import LentClass


class Neighbourhood:
    """Who deals with the flock for a pool; this one, of a pool that is alone, does nothing."""

    __slots__ = ()

    def waits(self) -> None:
        """An own task has come, or come back, and found no place here nor at a lender.

        Said once when some begin to wait, whenever one comes back, and when more wait than
        `tell_beyond` says.
        """

    def changed(self) -> None:
        """There are more or fewer idle machines than before, or own tasks wait for them.

        While none wait, it may be left out for as many as `quiet_for` says.
        """

    def uses(self, lender: int, running: int) -> None:
        """So many own tasks are now at a lender."""

    def used(self, borrower: int, running: int) -> None:
        """So many tasks of another pool run here now."""


class SimulatedPool(ABC):
    """One pool: a model, or a core.

    Args:
        number: its place in the flock.
        at: when its tasks are submitted, in order; `lengths`: how long each runs.

    Attributes:
        states: what has become of each task.
        waits_since: since when some own task has waited at any moment; None if none waits.
        guests_of: how many tasks of each other pool run here.
        done: own tasks that have ended.
        killed: guests that were ended before they had done, because own tasks waited.
        sum_wait, most_wait: of the tasks that have ended, from submission to their last start.
        last_end: when the last of them ended.
    """

    __slots__ = (
        "_at",
        "_far",
        "_lengths",
        "around",
        "done",
        "guests_of",
        "killed",
        "last_end",
        "machines",
        "most_wait",
        "number",
        "states",
        "sum_wait",
        "waits_since",
    )

    def __init__(
        self, number: int, machines: int, at: Sequence[float], lengths: Sequence[float]
    ) -> None:
        self.number = number
        self.machines = machines
        self.around = Neighbourhood()
        self.states = bytearray(len(at))
        self.waits_since: float | None = None
        self.guests_of: dict[int, int] = {}
        self.done = self.killed = 0
        self.sum_wait = self.most_wait = self.last_end = 0.0
        self._at, self._lengths = at, lengths
        self._far: Sequence[float] = ()

    @property
    @abstractmethod
    def free(self) -> int:
        """Idle machines that could be lent."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """How many own tasks wait for a place."""

    @property
    @abstractmethod
    def oldest(self) -> float | None:
        """When the task was submitted that has waited longest; None if none waits."""

    @property
    @abstractmethod
    def ran_at(self) -> Mapping[int, int]:
        """How many own tasks have run in each pool, this one among them."""

    @abstractmethod
    def waiting_since(self, moment: float) -> int:
        """How many own tasks that wait were submitted before a moment."""

    @abstractmethod
    def quiet_for(self, fewest: int, most: int) -> None:
        """`around` need not be told of changes between so many idle machines."""

    @abstractmethod
    def tell_beyond(self, waiting: float) -> None:
        """`around` wants to be told when more own tasks wait than that."""

    @abstractmethod
    def fits(self, pool: str, cls: LentClass) -> bool:
        """Whether all that waits could run on machines of a class of another pool."""

    @abstractmethod
    def meet(self, pools: Sequence[Any], far: Sequence[float], around: Neighbourhood) -> None:
        """Becomes part of a flock.

        Args:
            pools: all of it, by number.
            far: how many seconds a message takes to each.
        """

    @abstractmethod
    def offered(self, lender: int, machines: int) -> None:
        """A lender says how many machines are lent now, together with those in use."""

    @abstractmethod
    def reclaim(self, machines: int) -> None:
        """Ends so many guests at once, the latest first, because own tasks wait."""
