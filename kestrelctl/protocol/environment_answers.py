"""What the pool answers about environments. `docs/protocol.md` shows one of each."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.pool_moment import PoolMoment, PoolMomentToCome
from kestrelctl.protocol.reply import Reply


class EnvironmentView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One environment.

    Attributes:
        phase: `starting`, `ready` or `stopping`.
        since: when it came into that, in seconds since the epoch.
        idle_seconds: for how long it has had nothing to do; None while it has.
        worker: the name of its worker; of a node of something else its own.
        draining: whether its worker gets nothing new; it is stopped when that has nothing left.
        makes_room_for: the class for which that is so; empty if somebody has asked for it.
    """

    number: int
    of: str
    host: str
    phase: str
    since: PoolMoment
    idle_seconds: float | None = None
    worker: str
    asked_for: bool = False
    draining: bool = False
    makes_room_for: str = ""


class StartFailureView(msgspec.Struct, frozen=True, kw_only=True):
    """Starts that have failed on a host, the latest ones in a row.

    Attributes:
        at, next_try_at: seconds since the epoch.
    """

    host: str
    times: int
    at: PoolMoment
    next_try_at: PoolMomentToCome
    why: str


class EnvironmentHostView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A worker whose machine makes environments, and a class.

    Attributes:
        free: what it has free, in natural units.
        why_not: why none of the class is started there now; empty if one could be.
    """

    host: str
    free: dict[str, float]
    why_not: str = ""


class EnvironmentClassView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A class of environments.

    Attributes:
        assets: what each has, in natural units.
        waiting: tasks that wait for a worker and that it could run.
        obstacle: why no more are started: `not-needed`, `maximum`, `no-host`, `no-room`, `failed`.
        runs: what each starts instead of a worker, as a command line; empty for a worker.
    """

    name: str
    kind: str
    tags: tuple[str, ...] = ()
    assets: dict[str, float]
    minimum: int
    maximum: int
    start_seconds: float
    idle_seconds: float
    waiting: int
    obstacle: str
    hosts: list[EnvironmentHostView] = []
    failures: list[StartFailureView] = []
    runs: str = ""


class EnvironmentList(Reply, frozen=True, kw_only=True, tag="environments"):
    """All classes, and all environments."""

    classes: list[EnvironmentClassView]
    environments: list[EnvironmentView] = []
