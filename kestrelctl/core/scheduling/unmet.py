"""The pool's own tasks that find no worker at home: neighbours may be asked to run them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.scheduling.own_waiting import OwnWaiting


class Unmet(msgspec.Struct, frozen=True):
    """Tasks of one user that ask alike and wait for nothing but a worker.

    Attributes:
        owner, group: whose they are: his account, and his group, if any.
    """

    shape: Shape
    owner: str
    group: str
    tasks: int


def unmet(waiting: Iterable[OwnWaiting]) -> list[Unmet]:
    """Selects the waiting tasks that may go to a neighbour: each shape of each user once, in the
    order of the queue.
    """
    found: dict[tuple[Shape, Sharer], int] = {}
    for each in waiting:
        if not each.shape.stays:
            alike = (each.shape, each.sharer)
            found[alike] = found.get(alike, 0) + each.tasks
    return [
        Unmet(shape, sharer.name, sharer.record.group, tasks)
        for (shape, sharer), tasks in found.items()
    ]
