"""The queue and machines of a pool in a simulated flock, and the neighbourhood that hears of them.

These are classes, not protocols: in compiled code, members of a class are found many times faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from kestrelctl.protocol.pools import LentClass


class Neighbourhood:
    """A pool's dealings with the flock; this class, for a pool that is alone, does nothing."""

    __slots__ = ()

    def waits(self) -> None:
        """Is told that an own task has come, or come back, and found no place here or at a lender.

        It is called once when some begin to wait, whenever one comes back, and when more wait than
        `tell_beyond` says.
        """

    def changed(self) -> None:
        """Is told that the number of idle machines has changed, or that own tasks wait for them.

        While none wait, the call may be left out for as many idle machines as `quiet_for` says.
        """

    def uses(self, lender: int, running: int) -> None:
        """Is told how many own tasks are now at a lender."""

    def used(self, borrower: int, running: int) -> None:
        """Is told how many tasks of another pool run here now."""


class SimulatedPool(ABC):
    """One pool: a model, or a core.

    Args:
        number: its place in the flock.
        at: the times when its tasks are submitted, in order; `lengths`: how long each runs.

    Attributes:
        states: the state of each task.
        waits_since: since when own tasks have waited without a break; None if none waits.
        guests_of: how many tasks of each other pool run here.
        done: own tasks that have ended.
        killed: guests that were ended before they were done, because own tasks waited.
        sum_wait, most_wait: waits of the tasks that have ended, from submission to their last
            start.
        last_end: the time when the last of them ended.
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
        """The number of own tasks that wait for a place."""

    @property
    @abstractmethod
    def oldest(self) -> float | None:
        """The time of submission of the task that has waited longest; None if none waits."""

    @property
    @abstractmethod
    def ran_at(self) -> Mapping[int, int]:
        """The number of own tasks that have run in each pool, this one included."""

    @abstractmethod
    def waiting_since(self, moment: float) -> int:
        """Counts the waiting own tasks that were submitted by a moment."""

    @abstractmethod
    def quiet_for(self, fewest: int, most: int) -> None:
        """Spares `around` the changes between these numbers of idle machines."""

    @abstractmethod
    def tell_beyond(self, waiting: float) -> None:
        """Takes note that `around` wants to be told when more own tasks wait than that."""

    @abstractmethod
    def fits(self, pool: str, cls: LentClass) -> bool:
        """Whether all that waits could run on machines of a class of another pool."""

    @abstractmethod
    def meet(self, pools: Sequence[Any], far: Sequence[float], around: Neighbourhood) -> None:
        """Becomes part of a flock.

        Args:
            pools: all pools of the flock, by number.
            far: how many seconds a message takes to each.
        """

    @abstractmethod
    def offered(self, lender: int, machines: int) -> None:
        """Hears from a lender how many machines are lent now, including those in use."""

    @abstractmethod
    def reclaim(self, machines: int) -> None:
        """Ends this many guests at once, the latest first, because own tasks wait."""
