"""The parents of a job: the other jobs that it waits for, counted down as these end."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kestrelctl.core.model.job.after import After, IfParentFails, WantedEnd
from kestrelctl.core.model.wording import plural

#: The most parents that are named to people.
_MOST_TOLD = 3


class Parents:
    """The parents that some jobs of one owner wait for.

    Attributes:
        after: as in their specs.
        left: parents whose end is not durable.
        failed: parents that have ended otherwise than they should; in the order of a dict.
    """

    __slots__ = ("after", "failed", "left", "owner")

    def __init__(self, owner: str, after: tuple[After, ...]) -> None:
        self.owner = owner
        self.after = after
        self.left: set[int] = set()
        self.failed: dict[int, None] = {}

    def settle(self, parent: int, outcome: str) -> bool:
        """Notes how a parent has ended; returns whether children are to be looked at for that."""
        if parent not in self.left:
            return False
        self.left.discard(parent)
        if _ending_of(self.after, parent).is_met(outcome):
            return not self.left
        self.failed[parent] = None
        return len(self.failed) == 1 or not self.left

    def give_up(self, parent: int) -> bool:
        """Notes that a parent will end as cancelled; returns whether it has failed by that."""
        if _ending_of(self.after, parent).is_met("cancelled"):
            return False
        self.failed[parent] = None
        return True

    def revive(self, parent: int) -> None:
        """Notes that a parent that had ended was brought back."""
        self.failed.pop(parent, None)
        self.left.add(parent)

    def let_go(self, otherwise: IfParentFails) -> bool:
        """Whether a child may start, as far as its parents are concerned.

        Args:
            otherwise: what becomes of it if one of them has failed.
        """
        return not self.left and (otherwise is IfParentFails.RUN or not self.failed)

    def doom(self, otherwise: IfParentFails) -> bool:
        """Whether a child is to be cancelled for what became of its parents."""
        return bool(self.failed) and otherwise is IfParentFails.CANCEL

    def outcome(self, parent: int) -> str:
        """A final state that a parent which has ended may have had, as far as it matters here."""
        wanted_ok = _ending_of(self.after, parent) is not WantedEnd.FAILED
        return "done" if wanted_ok is (parent not in self.failed) else "failed"

    def told(self) -> str:
        """Tells which parents are still waited for, or why the wait is in vain."""
        if self.failed:
            return f"in vain: {_named(self.failed)} did not end as wanted"
        return f"for {_named(sorted(self.left))}"


def first_in_vain(after: Iterable[After], outcome_of: Callable[[int], str | None]) -> int | None:
    """The first parent that has ended otherwise than it should; None if none has."""
    for each in after:
        for parent in range(each.first, each.last + 1):
            outcome = outcome_of(parent)
            if outcome is not None and not each.ending.is_met(outcome):
                return parent
    return None


def _ending_of(after: tuple[After, ...], parent: int) -> WantedEnd:
    low, high = 0, len(after) - 1
    while low < high:
        middle = (low + high) // 2
        if after[middle].last < parent:
            low = middle + 1
        else:
            high = middle
    return after[low].ending


def _named(ids: Iterable[int]) -> str:
    known = list(ids)
    some = ", ".join(map(str, known[:_MOST_TOLD]))
    more = len(known) - _MOST_TOLD
    text = f"{'job' if len(known) == 1 else 'jobs'} {some}"
    return f"{text} and {plural(more, 'other')}" if more > 0 else text
