"""What a worker is to do about the checkpoints of a command."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kestrelctl.core.model.job.checkpoint import MadeCheckpoint

#: Told of each checkpoint that is stored, or why the command does not go on from the one it had.
Told = Callable[[MadeCheckpoint | None, str], None]


class CheckpointOrder(msgspec.Struct, frozen=True):
    """What is stored of a command for its next attempt, and what it goes on from.

    Attributes:
        globs: which files of its scratch directory.
        every_seconds: how often.
        exit_code: by which it says that it goes on later; None for none.
        given: what it goes on from; None to begin anew.
        told: called on the event loop.
    """

    globs: tuple[str, ...]
    every_seconds: float
    exit_code: int | None
    given: MadeCheckpoint | None
    told: Told
