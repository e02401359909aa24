"""The live experiment of the source: four pools, its trace generator, and its table.

Source: Ali Raza Butt, Rongmei Zhang, Y. Charlie Hu, "A Self-Organizing Flock of Condors", SC 2003.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from kestrel_experiments.flock_simulation.trace import Arrival, trace

SOURCE = (
    "Ali Raza Butt, Rongmei Zhang, Y. Charlie Hu: “A Self-Organizing Flock of Condors”, SC 2003."
)
#: Machines of each pool.
MACHINES = 3
#: The factor by which flocking divides the longest wait of a task of a loaded pool, by the
#: abstract. The source's waits with flocking are not at hand, so nothing is compared with them.
FACTOR_OF_ABSTRACT = 10.0
#: The name of the `FlockWaits` of all pools together.
OVERALL = "all"


class SourcePool(NamedTuple):
    """One pool of the experiment.

    Attributes:
        name: its letter in the source.
        sequences: how many sequences make up its trace; each is work for one machine.
    """

    name: str
    sequences: int

    @property
    def is_loaded(self) -> bool:
        """Whether it has more work than its machines can do while the work comes."""
        return self.sequences > MACHINES

    @property
    def is_unloaded(self) -> bool:
        """Whether its machines have time to spare."""
        return self.sequences < MACHINES


POOLS = (SourcePool("A", 2), SourcePool("B", 2), SourcePool("C", 3), SourcePool("D", 5))


class SourceWaits(NamedTuple):
    """Queue times in the unit of the trace."""

    mean: float
    least: float
    most: float


#: Without flocking; the only table of the source that is at hand.
WITHOUT_FLOCKING = {
    "A": SourceWaits(1.76, 0.03, 14.32),
    "B": SourceWaits(3.30, 0.08, 19.85),
    "C": SourceWaits(46.58, 0.03, 97.17),
    "D": SourceWaits(284.91, 0.25, 557.55),
    OVERALL: SourceWaits(131.20, 0.03, 557.55),
}


def traces(seed: int, pools: tuple[SourcePool, ...] = POOLS) -> dict[str, list[Arrival]]:
    """Draws the tasks of each pool, by its name; the same for the same seed."""
    dice = Random(seed)
    return {pool.name: trace(dice, pool.sequences) for pool in pools}
