"""Decides which environments to start and to stop: as many as work needs, where there is room.

The waiting work comes as needs: tasks of a shape for which the pool has no worker now, and how many
of them an environment of each class would run side by side. A class and a host are chosen by
aggregate resources: the class that takes the smallest part of its host for each task, and the host
of which most is left then.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.start_failures import StartFailures
from kestrelctl.core.environments.started import Environment, EnvironmentPhase
from kestrelctl.core.model.worker.assets import Amounts, amounts

#: An environment counts as one that will take work for so long after its worker has joined.
SETTLE_SECONDS = 1.0


def amounts_of(cls: EnvironmentClass) -> Amounts:
    """The amounts that an environment of a class takes of its host: a processor if none is said."""
    wanted = {"cpus": cls.resources.cpus or 1.0, "memory": float(cls.resources.memory_bytes)}
    return amounts(wanted)


class EnvironmentNeed(NamedTuple):
    """Tasks that ask alike, and wait for nothing but a worker.

    Attributes:
        tasks: how many.
        places: for each class that could run them, how many tasks one environment of it has room
            for at a time, at least 1.
    """

    tasks: int
    places: Mapping[str, int]


class HostRoom(NamedTuple):
    """A worker on whose machine environments may be started.

    Attributes:
        name: its address.
        free: what neither its own tasks nor environments have.
        whole: what it has, with what its environments have of that.
        classes: names of those that it may and can start.
    """

    name: str
    free: Mapping[str, int]
    whole: Mapping[str, int]
    classes: frozenset[str]


class StartObstacle(enum.StrEnum):
    """The reason why no further environment of a class is started."""

    NOT_NEEDED = "not-needed"
    MAXIMUM = "maximum"
    NO_HOST = "no-host"
    NO_ROOM = "no-room"
    FAILED = "failed"


class StartDecision(NamedTuple):
    """An environment of a class shall be started on a host."""

    of: str
    host: str


class StopDecision(NamedTuple):
    """An environment shall be stopped.

    Attributes:
        failed: whether that counts as a start that failed.
        why: in words.
    """

    number: int
    failed: bool
    why: str


class Decision(NamedTuple):
    """The environments to start and to stop now.

    Attributes:
        obstacles: for each class, why there are not more.
    """

    start: list[StartDecision]
    stop: list[StopDecision]
    obstacles: dict[str, StartObstacle]


def decide(
    classes: Iterable[EnvironmentClass],
    needs: Sequence[EnvironmentNeed],
    hosts: Iterable[HostRoom],
    environments: Iterable[Environment],
    failures: StartFailures,
    now: float,
    first: Sequence[str] = (),
) -> Decision:
    """Finds what to start and what to stop.

    Args:
        needs: in the order of the queue.
        hosts: those that can be reached.
        now: seconds since the epoch.
        first: classes that have starved for long: one environment of each is started before all
            that is needed.
    """
    there = list(environments)
    planning = _Planning({cls.name: cls for cls in classes}, needs, hosts, there, failures, now)
    stop = _outlived(planning.classes, there, needs, now)
    planning.start_all(first)
    return Decision(planning.start, stop, planning.obstacles)


_NO_CLASS = "there is no such class any more"


def _outlived(
    classes: Mapping[str, EnvironmentClass],
    environments: Iterable[Environment],
    needs: Iterable[EnvironmentNeed],
    now: float,
) -> list[StopDecision]:
    """Finds environments that have not come up in time, or have had nothing to do for long."""
    found: list[StopDecision] = []
    needed = {name for need in needs for name in need.places}
    kept = Counter(each.of for each in environments if each.phase is not EnvironmentPhase.STOPPING)
    for each in environments:
        cls = classes.get(each.of)
        if each.phase is EnvironmentPhase.STOPPING or each.asked_for:
            continue
        if each.node and cls is None:
            found.append(StopDecision(each.number, False, _NO_CLASS))
            continue
        if each.phase is EnvironmentPhase.STARTING:
            limit_seconds = (cls or EnvironmentClass).start_seconds
            if now - each.since >= limit_seconds:
                what = "it was not started" if each.node else "its worker did not join"
                why = f"{what} within {limit_seconds:g} s"
                found.append(StopDecision(each.number, True, why))
                kept[each.of] -= 1
        elif each.idle_since is not None:
            if cls is None:
                found.append(StopDecision(each.number, False, _NO_CLASS))
            elif each.draining:
                found.append(
                    StopDecision(each.number, False, "it is drained, and has no work left")
                )
                kept[each.of] -= 1
            elif now - each.idle_since >= cls.idle_seconds and kept[each.of] > cls.minimum:
                # Else it would be started again at once, to no more use.
                useless = each.of in needed
                why = f"it had nothing to do for {cls.idle_seconds:g} s"
                why += ", though work seemed to need it" if useless else ""
                found.append(StopDecision(each.number, useless, why))
                kept[each.of] -= 1
    return found


class _Planning:
    """Plans starts one after the other, each with less room and less need than the one before."""

    def __init__(
        self,
        classes: dict[str, EnvironmentClass],
        needs: Sequence[EnvironmentNeed],
        hosts: Iterable[HostRoom],
        environments: Sequence[Environment],
        failures: StartFailures,
        now: float,
    ) -> None:
        self.classes = classes
        self.start: list[StartDecision] = []
        self.obstacles = dict.fromkeys(classes, StartObstacle.NOT_NEEDED)
        self._taken = {name: amounts_of(cls) for name, cls in classes.items()}
        self._needs = needs
        self._left = [need.tasks for need in needs]
        self._hosts = [(host, dict(host.free)) for host in hosts]
        self._failures = failures
        self._now = now
        # An environment that stops still has its resources, and its place.
        self._count = Counter(each.of for each in environments)
        for each in environments:
            if each.draining:
                continue
            if each.phase is EnvironmentPhase.STARTING or _has_just_joined(each, now):
                self._serve(each.of)

    def start_all(self, first: Sequence[str]) -> None:
        """Starts what the classes' minima and the needs ask for, while there is room."""
        for cls in self.classes.values():
            while self._count[cls.name] < cls.minimum and self._start_one([cls.name], 1, {}):
                pass
        for name in first:
            pairs = zip(self._left, self._needs, strict=True)
            waits = any(left and name in need.places for left, need in pairs)
            if waits and not self._count[name]:
                self._start_one([name], 1, {})
        for index, need in enumerate(self._needs):
            names = [name for name in need.places if name in self.classes]
            while self._left[index] and self._start_one(names, self._left[index], need.places):
                pass

    def _start_one(self, names: list[str], tasks: int, places: Mapping[str, int]) -> bool:
        """Starts one of these classes for so many tasks; False if none can be started."""
        best: tuple[float, str, int] = (inf, "", -1)
        for name in names:
            found = self._host_for(self.classes[name])
            if isinstance(found, StartObstacle):
                self.obstacles[name] = found
                continue
            part = _part(self._taken[name], self._hosts[found][1])
            best = min(best, (part / min(tasks, places.get(name, 1)), name, found))
        _, name, index = best
        if index < 0:
            return False
        host, free = self._hosts[index]
        for asset, amount in self._taken[name].items():
            free[asset] = free.get(asset, 0) - amount
        self.start.append(StartDecision(name, host.name))
        self._count[name] += 1
        self._serve(name)
        return True

    def _host_for(self, cls: EnvironmentClass) -> int | StartObstacle:
        """Finds the host on which the most is left when one more of a class is there."""
        if self._count[cls.name] >= cls.maximum:
            return StartObstacle.MAXIMUM
        obstacle = StartObstacle.NO_HOST
        best = (inf, -1)
        for index, (host, free) in enumerate(self._hosts):
            if cls.name not in host.classes:
                continue
            if not self._failures.may_start(cls.name, host.name, self._now):
                obstacle = StartObstacle.FAILED
                continue
            part = _part(self._taken[cls.name], free)
            if part > 1.0:
                if obstacle is StartObstacle.NO_HOST:
                    obstacle = StartObstacle.NO_ROOM
                continue
            best = min(best, (part, index))
        return best[1] if best[1] >= 0 else obstacle

    def _serve(self, of: str) -> None:
        """Subtracts from the needs what one environment of a class will run at a time."""
        room = 1.0
        for index, need in enumerate(self._needs):
            places = need.places.get(of, 0)
            if not places or not self._left[index]:
                continue
            tasks = min(self._left[index], int(room * places + 1e-9))
            self._left[index] -= tasks
            room -= tasks / places
            if room <= 1e-9:
                return


def _has_just_joined(environment: Environment, now: float) -> bool:
    """Whether it has not had the time to be given anything."""
    return environment.phase is EnvironmentPhase.READY and now - environment.since < SETTLE_SECONDS


def _part(resources: Mapping[str, int], free: Mapping[str, int]) -> float:
    """The part of what is free that they take: the largest over all assets; above 1 if there is too
    little.
    """
    parts = [
        amount / free[asset] if free.get(asset, 0) > 0 else inf
        for asset, amount in resources.items()
        if amount
    ]
    return max(parts, default=0.0)
