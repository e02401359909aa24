"""One execution of a task on a worker: the object that alone says where it is and what it costs."""

from __future__ import annotations

import enum
from typing import NamedTuple

import msgspec

from kestrelctl.core.model.result import Result
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.claim import Claim


class Phase(enum.Enum):
    """The progress of an attempt, as far as the manager can tell."""

    QUEUED = "queued"  #: sent; it waits at the worker behind others and is charged nothing
    RUNNING = "running"  #: it is charged its claim


class LifeStep(NamedTuple):
    """A step in the life of an attempt.

    Attributes:
        before, after: its phases; None while nobody has it.
        what: the event.
        does: the function of `core.attempts.table` that does it.
    """

    before: Phase | None
    after: Phase | None
    what: str
    does: str


#: The life of an attempt. What becomes of its task at the end is decided apart from it
#: (`core.handlers.verdict`, and `core.attempts.endings.lose` if its worker is lost).
LIFE = (
    LifeStep(None, Phase.RUNNING, "is handed out, and the worker has room", "begin"),
    LifeStep(None, Phase.QUEUED, "is handed out ahead", "begin"),
    LifeStep(None, Phase.RUNNING, "is found at a worker that has room", "adopt"),
    LifeStep(None, Phase.QUEUED, "is found at a worker, where it waits", "adopt"),
    LifeStep(Phase.QUEUED, Phase.RUNNING, "has room now", "promote"),
    LifeStep(Phase.QUEUED, None, "ends, is given back, or its worker is lost", "end"),
    LifeStep(Phase.RUNNING, None, "ends, is given back, or its worker is lost", "end"),
)


class Attempt(msgspec.Struct, eq=False, gc=False):
    """An attempt under way. Only `kestrelctl.core.attempts` changes one.

    It is a struct because a busy pool makes tens of thousands of them each second.

    Attributes:
        number: names it in the whole pool, over restarts of the manager.
        worker: the address of the worker that has it.
        claim: what it is charged while it runs.
        sent_at: when it was handed out; 0 if that was before this start of the manager.
        tokens: what it holds of the pool's own until it ends.
        moved_for: why it is stopped there, to be started elsewhere; empty if it is not.
        stage: the stage of its task, as its worker last said; empty if nothing was said.
        early: its result, if it has ended well and the other members of its job have not yet: it
            keeps its place until they have.
        promoted_at: when it was charged, having waited at its worker; 0 if it was charged when it
            was handed out, or that is not known.
    """

    number: int
    worker: str
    claim: Claim
    sent_at: float
    phase: Phase = Phase.QUEUED
    tokens: Amounts = {}
    moved_for: str = ""
    stage: str = ""
    early: Result | None = None
    promoted_at: float = 0.0
