"""The jobs that a job waits for, and how these must end."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import msgspec

#: The most ranges of parents that one job may name, and the most jobs in them together.
MOST_RANGES = 1_000
MOST_PARENTS = 10_000


#: The word of an edge, in place of how the parent must end, if tasks wait one for one.
EACH = "each"


class WantedEnd(enum.StrEnum):
    """The way in which a parent must end for its children to start."""

    OK = "ok"
    ENDED = "ended"
    FAILED = "failed"

    def is_met(self, outcome: str) -> bool:
        """Whether a job whose final state is `outcome` (done, failed or cancelled) has ended so."""
        return self is WantedEnd.ENDED or (outcome == "done") is (self is WantedEnd.OK)


class IfParentFails(enum.StrEnum):
    """The fate of a job when a parent has ended otherwise than it wants."""

    CANCEL = "cancel"
    WAIT = "wait"  #: it goes on waiting: the parent may be retried
    RUN = "run"


class After(msgspec.Struct, frozen=True, array_like=True):
    """Parents of a job, with consecutive ids, that must all end in one way."""

    first: int
    last: int
    ending: WantedEnd = WantedEnd.OK


class GraphHead(msgspec.Struct, frozen=True):
    """A mark on the first of several jobs submitted as one: how many, and a digest of all."""

    jobs: int
    digest: str


def shifted(after: Sequence[After], by: int) -> tuple[After, ...]:
    """The same parents with ids that are higher by so many."""
    return tuple(After(each.first + by, each.last + by, each.ending) for each in after)


def ids_of(after: Sequence[After]) -> Iterator[int]:
    """The ids of all parents, in rising order."""
    for each in after:
        yield from range(each.first, each.last + 1)


def count_parents(after: Sequence[After]) -> int:
    """The number of jobs in all these ranges."""
    return sum(each.last - each.first + 1 for each in after)


def problem_with_parents(after: Sequence[After], least: int = 1) -> str | None:
    """Says what is wrong with the parents of a job, in words for its user; None if all is well.

    Args:
        least: the lowest number that a parent may have.
    """
    if len(after) > MOST_RANGES:
        return f"a job waits for at most {MOST_RANGES:,} ranges of jobs, not {len(after):,}"
    reached = least - 1
    for each in after:
        if each.last < each.first:
            return f"the range of jobs {each.first}-{each.last} runs backwards"
        if each.first < least:
            return f"there is no job {each.first}"
        if each.first <= reached:
            return f"the jobs that one waits for rise, and each comes once: {each.first} does not"
        reached = each.last
    count = count_parents(after)
    if count > MOST_PARENTS:
        return f"a job waits for at most {MOST_PARENTS:,} others, not {count:,}"
    return None
