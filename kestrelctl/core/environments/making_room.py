"""Chooses the environment that makes room for a class that starves.

A class starves while it has work and no environment, and none can be started. If other classes
always have work, their environments never idle, and it would starve for ever. After a while one of
these is drained: what it runs ends as it would have, it gets nothing new, and it is stopped.

The only environment of a class is never drained while it works. So a class that has made room does
not starve by that, and the two never take the same place from each other in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.on_demand import EnvironmentNeed, HostRoom, amounts_of
from kestrelctl.core.environments.start_failures import StartFailures
from kestrelctl.core.environments.started import Environment, EnvironmentPhase
from kestrelctl.core.pacing.backoff import doubled_seconds

#: The time that a class starves before it comes first, and something is drained for it.
PATIENCE_SECONDS = 10.0
#: The longest time that nothing more is drained for a class that had no use of what was drained.
LONGEST_PAUSE_SECONDS = 600.0


class MadeRoom(NamedTuple):
    """An environment shall be drained, for a class that starves.

    Attributes:
        why: in words.
    """

    number: int
    starving: str
    why: str


class RoomMaking:
    """Knows the classes that starve, since when they do, and what is drained for them."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        #: For each class the environment that makes room for it, until that has gone.
        self._made: dict[str, int] = {}
        #: How often in a row that was of no use, and when it may be done again.
        self._times: Counter[str] = Counter()
        self._next_at: dict[str, float] = {}

    def has_worked(self, of: str) -> None:
        """Notes that an environment of a class was given work: what was drained was of use."""
        self._times.pop(of, None)
        self._next_at.pop(of, None)

    def starving(self, now: float) -> list[str]:
        """The classes that have starved for long, the longest first: what gets free is theirs."""
        found = [of for of, since in self._since.items() if now - since >= PATIENCE_SECONDS]
        return sorted(found, key=lambda of: (self._since[of], of))

    def look(
        self,
        classes: Mapping[str, EnvironmentClass],
        needs: Iterable[EnvironmentNeed],
        hosts: Iterable[HostRoom],
        environments: Sequence[Environment],
        starting: Collection[str],
        failures: StartFailures,
        now: float,
    ) -> list[MadeRoom]:
        """Finds what to drain now: for each class that starves, one environment of another class.

        Args:
            starting: classes of which environments are being started besides those that are there.
        """
        there = {each.of for each in environments} | set(starting)
        hungry = [set(need.places) for need in needs if not there & need.places.keys()]
        self._since = {
            of: self._since.get(of, now) for of in classes if any(of in each for each in hungry)
        }
        leaving = {each.number for each in environments if _leaves(each)}
        for of, number in list(self._made.items()):
            pause = doubled_seconds(PATIENCE_SECONDS, self._times[of], LONGEST_PAUSE_SECONDS)
            self._next_at[of] = now + pause
            if number not in leaving:  # It has gone, or somebody has resumed its worker.
                del self._made[of]
        rooms = {host.name: host for host in hosts}
        found: list[MadeRoom] = []
        for of in self.starving(now):
            if now < self._next_at.get(of, now):
                continue
            if any(of in each and each & self._made.keys() for each in hungry):
                continue  # There will be an environment that can do the work.
            able = {
                name
                for name, host in rooms.items()
                if of in host.classes and failures.may_start(of, name, now)
            }
            fitting = [
                each
                for each in environments
                if each.host in able and _is_enough(each, rooms[each.host], classes, classes[of])
            ]
            promised = set(self._made.values())
            if any(_leaves(each) and each.number not in promised for each in fitting):
                continue  # There is room in a moment.
            chosen = _most_dispensable(fitting, environments, classes, promised)
            if chosen is None:
                continue
            self._made[of] = chosen.number
            self._times[of] += 1
            waited = now - self._since[of]
            why = f"work for class {of} has waited for {waited:.0f} s, and no host has room for it"
            found.append(MadeRoom(chosen.number, of, why))
        return found


def _most_dispensable(
    fitting: Iterable[Environment],
    environments: Iterable[Environment],
    classes: Mapping[str, EnvironmentClass],
    promised: Collection[int],
) -> Environment | None:
    """Chooses one that idles, else one of the class that has the most beyond what it must keep."""
    stays = Counter(
        each.of for each in environments if not _leaves(each) and each.number not in promised
    )
    best: tuple[bool, int, int] | None = None
    chosen: Environment | None = None
    for each in fitting:
        if _leaves(each) or each.number in promised or each.asked_for or each.node:
            continue
        if each.phase is not EnvironmentPhase.READY:
            continue
        idles = each.idle_since is not None and each.has_worked
        over = stays[each.of] - max(classes[each.of].minimum, 0 if idles else 1)
        place = (idles, over, each.number)
        if over > 0 and (best is None or place > best):
            best, chosen = place, each
    return chosen


def _leaves(environment: Environment) -> bool:
    """Whether an environment is about to go."""
    return environment.draining or environment.phase is EnvironmentPhase.STOPPING


def _is_enough(
    environment: Environment,
    host: HostRoom,
    classes: Mapping[str, EnvironmentClass],
    wanted: EnvironmentClass,
) -> bool:
    """Whether the host has room for one of another class when this environment has gone."""
    cls = classes.get(environment.of)
    if cls is None:
        return False
    gives = amounts_of(cls)
    return all(
        host.free.get(asset, 0) + gives.get(asset, 0) >= amount
        for asset, amount in amounts_of(wanted).items()
    )
