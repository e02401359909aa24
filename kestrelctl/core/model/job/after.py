"""Which jobs a job waits for, and how these must end."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import msgspec

#: Ranges of parents that one job may name, and jobs in them together.
MOST_RANGES = 1_000
MOST_PARENTS = 10_000


#: What an edge says, in place of how the parent must end, of a job whose tasks wait one for one.
EACH = "each"


class WantedEnd(enum.StrEnum):
    """How a parent must end for its children to start."""

    OK = "ok"
    ENDED = "ended"
    FAILED = "failed"

    def is_met(self, outcome: str) -> bool:
        """Whether a job has ended so whose final state is `outcome`: done, failed or cancelled."""
        return self is WantedEnd.ENDED or (outcome == "done") is (self is WantedEnd.OK)


class IfParentFails(enum.StrEnum):
    """What becomes of a job when a parent has ended otherwise than it wants."""

    CANCEL = "cancel"
    WAIT = "wait"  #: it goes on waiting: the parent may be retried
    RUN = "run"


class After(msgspec.Struct, frozen=True, array_like=True):
    """Parents of a job, with consecutive ids, that must all end in one way."""

    first: int
    last: int
    ending: WantedEnd = WantedEnd.OK


class GraphHead(msgspec.Struct, frozen=True):
    """Of the first of several jobs that were submitted as one: how many, and a digest of all."""

    jobs: int
    digest: str


def shifted(after: Sequence[After], by: int) -> tuple[After, ...]:
    """The same with ids that are higher by so many."""
    return tuple(After(each.first + by, each.last + by, each.ending) for each in after)


def ids_of(after: Sequence[After]) -> Iterator[int]:
    """The ids of all parents, in rising order."""
    for each in after:
        yield from range(each.first, each.last + 1)


def count_parents(after: Sequence[After]) -> int:
    """How many jobs these are together."""
    return sum(each.last - each.first + 1 for each in after)


def problem_with_parents(after: Sequence[After], least: int = 1) -> str | None:
    """What is wrong with what a job waits for, in words for its user; None if all is well.

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
