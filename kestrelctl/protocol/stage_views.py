"""The stages of a job's tasks as its owner is shown them."""

from __future__ import annotations

import msgspec


class StageSum(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one stage went in ended tasks of a job: the first thousand of them.

    Attributes:
        tasks: how many of them have begun it.
        mean_seconds: of all its tries in one attempt, with the pauses between.
        repeated: how many tries followed one that had failed.
    """

    name: str
    tasks: int
    mean_seconds: float
    repeated: int = 0
