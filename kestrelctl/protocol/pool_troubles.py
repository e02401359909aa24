"""What is told of a pool that cannot do all that it should: who is set aside, and what it lacks."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.pool_moment import PoolMomentToCome


class QuarantineView(msgspec.Struct, frozen=True, array_like=True):
    """A worker that is in quarantine: until when, in seconds since the epoch, and why."""

    worker: str
    until: PoolMomentToCome
    why: str


class UnmetShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks that ask alike and wait, and would even if all were placed anew.

    Attributes:
        shape: what they ask for, in words. A tag that no worker has is not told.
        request: the same in natural units.
    """

    shape: str
    tasks: int
    request: dict[str, float] = {}


class SaturatedClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workers of which another one would let more of the unmet tasks run.

    Attributes:
        workers: how many there are that may take tasks.
        worker_class: what each of them offers, in words.
        assets: what they are out of.
    """

    worker_class: str
    workers: int
    assets: list[str] = []
