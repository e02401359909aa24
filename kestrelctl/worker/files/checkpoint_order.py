"""The order that says what a worker is to do about the checkpoints of a command."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kestrelctl.core.model.job.checkpoint import MadeCheckpoint

#: Called with each checkpoint that is stored, or with why a command does not go on from its own.
Told = Callable[[MadeCheckpoint | None, str], None]


class CheckpointOrder(msgspec.Struct, frozen=True):
    """Says what is stored of a command for its next attempt, and what it goes on from.

    Attributes:
        globs: which files of its scratch directory.
        every_seconds: how often.
        exit_code: the code by which it says that it goes on later; None for none.
        given: what it goes on from; None to begin anew.
        told: called on the event loop.
    """

    globs: tuple[str, ...]
    every_seconds: float
    exit_code: int | None
    given: MadeCheckpoint | None
    told: Told
