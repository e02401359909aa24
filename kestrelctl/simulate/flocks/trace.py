"""The work that pools of a flock are given: sequences of arrivals as Butt, Zhang and Hu drew them.

"A Self-Organizing Flock of Condors", SC 2003: a sequence is 100 pairs of a moment and a length, and
both the gaps between moments and the lengths are drawn evenly from [1, 17]. A pool's trace is some
sequences merged: each has work for one machine, on average. The unit is the source's, a minute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

#: How many tasks a sequence has, and between which values gaps and lengths are drawn.
TASKS_OF_SEQUENCE = 100
SHORTEST, LONGEST = 1.0, 17.0


class Arrival(NamedTuple):
    """A task: when it is submitted, and how long it runs. Both in the unit of the source."""

    at: float
    seconds: float


def sequence(random: Random, n: int = TASKS_OF_SEQUENCE) -> list[Arrival]:
    """One sequence of `n` tasks, in the order of their moments."""
    at, found = 0.0, []
    for _ in range(n):
        at += random.uniform(SHORTEST, LONGEST)
        found.append(Arrival(at, random.uniform(SHORTEST, LONGEST)))
    return found


def trace(random: Random, sequences: int) -> list[Arrival]:
    """All tasks of so many sequences, in the order of their moments."""
    return sorted(task for _ in range(sequences) for task in sequence(random))
