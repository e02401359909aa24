"""Whether everybody gets his share, and nobody waits for long, by what machines really run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import ceil

from kestrelctl.core.attempts.reserve import LOOKS
from kestrelctl.core.jobs.fair_share import MOST_AHEAD_SECONDS, MOST_TILT
from kestrelctl.core.model.records import GroupRecord
from kestrelctl.core.model.worker.assets import MILLI
from kestrelctl.core.state import State

#: How long the same owners must all want more before what they had is compared with their shares.
CONTEST_SECONDS = 3600.0
#: The part of a share by which it may be off within such a time.
TOLERANCE = 0.05
#: A job of no more tasks than this is not delayed by others, however large these are.
FEW = 10
#: How long after its moment a message may change something.
GRACE_SECONDS = 1.0


class ShareAudit:
    """Counts the processor time that owners have while the same of them all want more.

    - In an hour each had the part of all that his weight and his group's give, but for `TOLERANCE`.
    - An owner who waits is served after `most_waiting_seconds`, at the latest.
    - All tasks of a job of `FEW` begin within `most_delay_seconds`, if it is its owner's first.

    It is only for worlds in which nothing else holds tasks back: no quota, no other priority, no
    machine that some tasks cannot use.

    Args:
        slots: how many tasks of one processor run at once.
        longest_seconds: the longest time that a task takes.
        starving_seconds: as in `Config`.
    """

    def __init__(self, slots: int, longest_seconds: float, starving_seconds: float) -> None:
        self._slots = slots
        self._longest_seconds = longest_seconds
        self._kept_seconds = starving_seconds * (1 + 2 / LOOKS)
        #: owner -> the part of all that is his during the contest that began at `_since`
        self._parts: dict[str, float] = {}
        self._since = 0.0
        self._now = 0.0
        self._running: defaultdict[str, int] = defaultdict(int)
        self._had: defaultdict[str, float] = defaultdict(float)
        self._served_at: dict[str, float] = {}
        self._waits: set[str] = set()

    def began(self, owner: str, cpus: int, now: float) -> None:
        """Notes that a task of an owner begins, with this many thousandths of a processor."""
        self._count(now)
        self._running[owner] += cpus
        self._served_at[owner] = now

    def ended(self, owner: str, cpus: int, now: float) -> None:
        """Notes that such a task ends."""
        self._count(now)
        self._running[owner] -= cpus

    def _count(self, now: float) -> None:
        for owner, cpus in self._running.items():
            self._had[owner] += cpus * (now - self._now)
        self._now = now

    def most_waiting_seconds(self, part: float, *, large: bool) -> float:
        """Computes how long an owner to whom this part of all belongs may wait for anything.

        A task ends somewhere at least once in the time of the longest. He comes first unless he is
        ahead of his share. A task that takes a slot for `T` seconds puts him ahead by `T` divided
        by the slots that are his, of which there are fewer by the square of the tilt at the most;
        or by as much as anybody may be ahead. After that it is again the time of one task at most.
        An owner who asks for more than a slot also waits for a worker that is kept.
        """
        ahead = self._longest_seconds * MOST_TILT**2 / (part * self._slots)
        seconds = 2 * self._longest_seconds + min(ahead, MOST_AHEAD_SECONDS) + GRACE_SECONDS
        return seconds + (self._kept_seconds if large else 0.0)

    def most_delay_seconds(self, part: float, tasks: int, *, large: bool) -> float:
        """Computes the longest time until all of this many tasks have begun.

        After the time of one task all slots that belong to their owner are his, and after each
        further such time they are so again. For a task that asks for more than a slot, a worker is
        kept at the second look after the task has starved; it is empty when its longest task has
        ended.
        """
        rounds = ceil(tasks / (part * self._slots))
        seconds = rounds * self._longest_seconds + GRACE_SECONDS
        return seconds + (self._kept_seconds if large else 0.0)

    def few(self, owner: str, tasks: int, cpus: int, delay_seconds: float) -> Iterator[str]:
        """Checks the delay with which one of `tasks` tasks of an owner's first job begins."""
        part = self._parts.get(owner, 1.0 / (len(self._parts) + 1))
        most_seconds = self.most_delay_seconds(part, tasks, large=cpus > MILLI)
        if tasks <= FEW and delay_seconds > most_seconds:
            yield f"{owner} waits for his few tasks for {delay_seconds} s, at most {most_seconds}"

    def look(self, state: State, now: float) -> Iterator[str]:
        """Tells what is wrong now, in words."""
        self._count(now)
        parts = _parts(state)
        if parts != self._parts:
            self._parts, self._since = parts, now
            self._had.clear()
            self._waits.clear()
        large = {
            turn.sharer.name
            for turn in state.demand.turns()
            if all(shape.request["cpus"] > MILLI for shape in state.demand.shapes_of(turn))
        }
        for owner, part in parts.items():
            waits_since = max(self._since, self._served_at.get(owner, 0.0))
            most_seconds = self.most_waiting_seconds(part, large=owner in large)
            starves = now - waits_since > most_seconds
            if starves and owner not in self._waits:
                self._waits.add(owner)
                yield f"{owner} starves since {waits_since}"
        if now - self._since >= CONTEST_SECONDS:
            together = sum(self._had[owner] for owner in parts)
            for owner, part in parts.items():
                had = self._had[owner] / together if together else 0.0
                if abs(had - part) > TOLERANCE * part:
                    yield f"{owner} had {had:.4f} of all, and not {part:.4f}"
            self._since = now
            self._had.clear()


def _parts(state: State) -> dict[str, float]:
    """Computes the part of all that belongs to each owner who waits."""
    records = {turn.sharer.name: turn.sharer.record for turn in state.demand.turns()}
    weights: defaultdict[str, float] = defaultdict(float)
    for record in records.values():
        weights[record.group or record.name] += record.weight
    groups = state.settings.of(GroupRecord)
    of_group = {
        name: groups[name].weight if name in groups else weight for name, weight in weights.items()
    }
    together = sum(of_group.values())
    return {
        name: record.weight
        / weights[record.group or name]
        * of_group[record.group or name]
        / together
        for name, record in records.items()
    }
