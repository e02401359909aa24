"""What of the pool's own finds no worker at home: what neighbours may be asked for."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kestrelctl.core.jobs.sharer import Sharer
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.scheduling.own_waiting import OwnWaiting


class Unmet(msgspec.Struct, frozen=True):
    """Tasks of one user that ask alike and wait for nothing but a worker.

    Attributes:
        owner, group: whose they are: his account, and his group, if any.
        mean_seconds: how long one is expected to run; None if nobody knows.
    """

    shape: Shape
    owner: str
    group: str
    tasks: int
    mean_seconds: float | None


def unmet(waiting: Iterable[OwnWaiting]) -> list[Unmet]:
    """What of all that waits may go to a neighbour, each shape of each user once, in the order of
    the queue.
    """
    found: dict[tuple[Shape, Sharer], list[OwnWaiting]] = {}
    for each in waiting:
        if not each.shape.stays:
            found.setdefault((each.shape, each.sharer), []).append(each)
    return [
        Unmet(shape, sharer.name, sharer.record.group, sum(e.tasks for e in alike), _mean(alike))
        for (shape, sharer), alike in found.items()
    ]


def _mean(alike: list[OwnWaiting]) -> float | None:
    timed = [(each.tasks, each.mean_seconds) for each in alike if each.mean_seconds is not None]
    tasks = sum(n for n, _ in timed)
    return sum(n * seconds for n, seconds in timed) / tasks if tasks else None
