"""What a storm does to a pool: which blow, against whom, when, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

#: Each kind of blow, and how often it comes in one round of all of them.
KINDS = {
    "kill worker": 4,
    "kill keeper": 2,
    "kill launcher": 3,
    "kill manager": 1,
    "kill server": 1,
    "freeze worker": 3,
    "freeze keeper": 1,
    "freeze launcher": 2,
    "freeze manager": 1,
    "freeze server": 1,
    "drop line": 3,
    "cut line": 3,
    "cut line to server": 2,
    "cut line from server": 2,
    "drain worker": 2,
    "stop worker": 2,
    "stop manager": 1,
    "stop server": 1,
}
#: Not in the last third: what a manager had forgotten, its next start would find in the store.
FORGETS = ("kill manager", "stop manager")
LASTING = ("freeze", "drop", "cut")
LONGEST_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Blow:
    """One fault.

    Attributes:
        at: seconds since the storm began.
        target: index of the worker process or of the line; without meaning for the others.
        seconds: how long it lasts; 0 for what happens in one moment.
    """

    at: float
    kind: str
    target: int
    seconds: float


def schedule(
    seed: int, seconds: float, lines: int, others: int, every_seconds: float
) -> list[Blow]:
    """The blows of a storm, in order; the same for the same arguments.

    All kinds come in turn, shuffled anew in each round. Short lasting blows are as likely as long
    ones on a logarithmic scale, up to a minute or a third of the storm.

    Args:
        lines: worker processes behind a line of their own; they come first.
        others: worker processes without one.
        every_seconds: time between two blows, on average.
    """
    dice = Random(seed)
    # Each kind once before any comes again, so that a short storm has them all.
    deck = [
        *dice.sample([kind for kind in KINDS if kind not in FORGETS], len(KINDS) - len(FORGETS))
    ]
    for kind in FORGETS:
        deck.insert(dice.randrange(len(deck) // 2, len(deck)), kind)
    longest = math.log(max(1.0, min(LONGEST_SECONDS, seconds / 3)))
    found = []
    at = 0.0
    while (at := at + dice.expovariate(1 / every_seconds)) < seconds:
        if not deck:
            deck = [kind for kind, times in KINDS.items() for _ in range(times)]
            dice.shuffle(deck)
        kind = deck.pop()
        if kind in FORGETS and at > seconds * 2 / 3:
            continue
        lasts = kind.split()[0] in LASTING
        found.append(
            Blow(
                at=at,
                kind=kind,
                target=dice.randrange(lines if "line" in kind else lines + others),
                seconds=min(math.exp(dice.uniform(0.0, longest)), seconds - at) if lasts else 0.0,
            )
        )
    return found
