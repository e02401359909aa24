"""The views of a pool that expressions of triggers have: nothing in them can be changed."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.core.properties.summary import PropertySummary

#: Names in expressions.
NAMES = ("environments", "groups", "manager", "properties", "queue", "unmet", "workers")


class WatchedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is online.

    Attributes:
        name: its address.
        state: as `worker list` shows it.
        properties: values that were read of its machine.
        groups: the groups of workers that it is in.
    """

    name: str
    host: str
    state: str
    tags: tuple[str, ...]
    groups: tuple[str, ...]
    cpus: float
    memory: float
    running: int
    queued: int
    properties: Mapping[str, PropertyValue]


class WatchedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of workers that are online, and what their properties add up to."""

    workers: list[WatchedWorker]
    properties: Mapping[str, PropertySummary]


class WatchedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that has not ended; `waiting` and `running` are numbers of its tasks."""

    id: int
    name: str
    owner: str
    priority: int
    held: bool
    waiting: int
    running: int


class WatchedQueue(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of all users that have not ended, and how many of their tasks wait and run."""

    jobs: list[WatchedJob]
    waiting: int
    running: int


class WatchedUnmet(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that could not run now however tasks were placed; by what they ask for."""

    tasks: int
    shapes: Mapping[str, int]


class WatchedEnvironments(msgspec.Struct, frozen=True, kw_only=True):
    """Environments of a class, by their phase; `waiting` are tasks that one could run."""

    starting: int
    ready: int
    stopping: int
    waiting: int


class WatchedManager(msgspec.Struct, frozen=True, kw_only=True):
    """The manager; its clients are the workers that are online."""

    clients: list[WatchedWorker]


class PoolSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A pool at one moment.

    Attributes:
        at: seconds since the epoch.
    """

    at: float
    workers: list[WatchedWorker]
    groups: Mapping[str, WatchedGroup]
    properties: Mapping[str, PropertySummary]
    queue: WatchedQueue
    unmet: WatchedUnmet
    environments: Mapping[str, WatchedEnvironments]

    def views(self) -> dict[str, object]:
        """The values that the names in expressions stand for."""
        found: dict[str, object] = {
            name: getattr(self, name) for name in NAMES if name != "manager"
        }
        return found | {"manager": WatchedManager(clients=self.workers)}
