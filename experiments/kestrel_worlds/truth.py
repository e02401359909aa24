"""The real run times and ends of tasks: the part of the world that nobody decides."""

from __future__ import annotations

from random import Random

import msgspec

from kestrelctl.core.model.job.stage import OUT, Stage
from kestrelctl.core.model.result import Outcome


class Fate(msgspec.Struct, frozen=True):
    """The fate of one execution if nobody interferes."""

    seconds: float
    outcome: int
    kills_worker: bool = False


class StageFate(msgspec.Struct, frozen=True):
    """The fate of a stage of one execution: its tries, and how long they take together."""

    seconds: float
    tries: int
    is_good: bool


#: Bounds of the time of a try of a stage, in seconds.
TRY_SECONDS = (0.001, 0.4)
#: How often a try fails.
TRY_FAILS = 0.15
LAST_TRY_FAILS = 0.3

#: Kind of task (a job's name) -> bounds of its run time in seconds.
SECONDS: dict[str, tuple[float, float]] = {
    "tiny": (0.0001, 0.001),
    "short": (0.002, 0.05),
    "medium": (0.1, 0.9),
    "long": (1.5, 25.0),
    "mixed": (0.002, 0.02),  #: one in ten takes seconds
    "flaky": (0.01, 0.3),  #: three in ten fail
    "poison": (0.01, 0.1),  #: each fifth task always fails
    "killer": (0.05, 0.5),  #: each seventh task ends its worker
}
#: The kinds that users have in worlds by chance.
KINDS = tuple(SECONDS)

#: Further kinds, for worlds about one thing.
SECONDS |= {
    "ends": (0.02, 0.021),  #: from task 300 on all fail
    "second": (1.0, 1.1),
    "minute": (20.0, 60.0),
    "steps": (6.0, 6.1),  #: go on from checkpoints
    "trivial": (0.002, 0.02),  #: one in three takes seconds
    "three killers": (5.0, 6.0),  #: the first three end their worker
}


def fate(random: Random, kind: str, index: int) -> Fate:
    """Draws the fate of an execution of task `index` of a job of that kind."""
    seconds = random.uniform(*SECONDS[kind])
    outcome = Outcome.DONE
    if kind == "mixed" and random.random() < 0.1:
        seconds = random.uniform(1.0, 5.0)
    elif (
        (kind == "flaky" and random.random() < 0.3)
        or (kind == "poison" and index % 5 == 3)
        or (kind == "ends" and index >= 300)
    ):
        outcome = Outcome.FAILED
    elif kind == "trivial" and random.random() < 0.3:
        seconds = random.uniform(1.0, 5.0)
    elif kind == "three killers" and index < 3:
        seconds = 0.05
    kills = (kind == "killer" and index % 7 == 5) or (kind == "three killers" and index < 3)
    return Fate(seconds, outcome, kills_worker=kills)


def stage_fate(random: Random, stage: Stage) -> StageFate:
    """Draws the fate of a stage of an execution."""
    fails = LAST_TRY_FAILS if stage.name == OUT else TRY_FAILS
    seconds = 0.0
    for tried in range(1, stage.tries + 1):
        seconds += random.uniform(*TRY_SECONDS)
        if random.random() >= fails:
            return StageFate(seconds, tried, True)
    return StageFate(seconds, stage.tries, False)
