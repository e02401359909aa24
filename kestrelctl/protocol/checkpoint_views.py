"""Checkpoints as users of the pool are shown them."""

from __future__ import annotations

import msgspec


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest checkpoint of a task.

    Attributes:
        n: which one of its task it is.
        age_seconds: since the pool has heard of it.
        size_bytes: what its files take together.
    """

    n: int
    age_seconds: float
    size_bytes: int = 0


class JobCheckpoints(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a job says of checkpoints, and how often one was of use.

    Attributes:
        globs: which files they have.
        every_seconds: how often they are stored.
        exit_code: by which a task says that it goes on; None for none.
        resumed: how many attempts were begun from one.
    """

    globs: list[str]
    every_seconds: float
    exit_code: int | None = None
    resumed: int = 0
