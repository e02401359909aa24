"""The work that pools of a flock are given: sequences of arrivals as Butt, Zhang and Hu drew them.

"A Self-Organizing Flock of Condors", SC 2003: a sequence is 100 pairs of a moment and a length, and
both the gaps between moments and the lengths are drawn evenly from [1, 17]. A pool's trace is some
sequences merged: each has work for one machine, on average. The unit is the source's, a minute.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from random import Random

#: The number of tasks of a sequence, and the limits between which gaps and lengths are drawn.
TASKS_OF_SEQUENCE = 100
SHORTEST, LONGEST = 1.0, 17.0


class Arrival(NamedTuple):
    """A task: when it is submitted, and how long it runs. Both in the unit of the source."""

    at: float
    seconds: float


def sequence(random: Random, n: int = TASKS_OF_SEQUENCE) -> list[Arrival]:
    """Draws one sequence of `n` tasks, in the order of their moments."""
    draw, width = random.random, LONGEST - SHORTEST
    at, found = 0.0, []
    for _ in range(n):
        at += SHORTEST + width * draw()
        found.append(Arrival(at, SHORTEST + width * draw()))
    return found


def trace(random: Random, sequences: int) -> list[Arrival]:
    """Draws all tasks of this many sequences, in the order of their moments."""
    return sorted(task for _ in range(sequences) for task in sequence(random))


def trace_arrays(
    random: Random, sequences: int, unit_seconds: float
) -> tuple[array[float], array[float]]:
    """Draws the moments and the lengths of a `trace`, for millions of tasks.

    Args:
        unit_seconds: the unit of the source.

    Returns:
        Both in seconds.
    """
    draw, shortest = random.random, SHORTEST * unit_seconds
    width = LONGEST * unit_seconds - shortest
    n = sequences * TASKS_OF_SEQUENCE
    drawn = [shortest + width * draw() for _ in range(2 * n)]
    moments: list[float] = []
    for first in range(0, 2 * n, 2 * TASKS_OF_SEQUENCE):
        moments += accumulate(drawn[first : first + 2 * TASKS_OF_SEQUENCE : 2])
    order = sorted(range(n), key=moments.__getitem__)
    lengths = drawn[1::2]
    return (
        array("d", map(moments.__getitem__, order)),
        array("d", map(lengths.__getitem__, order)),
    )
