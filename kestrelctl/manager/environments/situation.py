"""All that a decision about environments depends on: while it is the same, the last one stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from kestrelctl.core.environments.on_demand import SETTLE_SECONDS, HostRoom
from kestrelctl.core.environments.started import Environment
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.scheduling.unmet import Unmet


class Situation(NamedTuple):
    """All that counts but for the time, and what operators set: these count a little later.

    Attributes:
        waiting: the shapes of what waits, in the order of the queue, each with the number of its
            tasks.
        hosts: each with what it has free.
        ads: what each of them offers.
        environments: what counts of each in a decision.
        moments: facts that have become so by the mere passing of time.
    """

    waiting: Sequence[tuple[Shape, int]] | Set[Shape]
    hosts: Sequence[HostRoom]
    ads: Sequence[WorkerAd]
    environments: Sequence[tuple[object, ...]]
    moments: tuple[object, ...]


def situation(
    unmet: Iterable[Unmet],
    hosts: Sequence[HostRoom],
    ads: Sequence[WorkerAd],
    environments: Iterable[Environment],
    moments: tuple[object, ...],
    now: float,
    *,
    nothing_to_do: bool,
) -> Situation:
    """Describes how things are now.

    Args:
        nothing_to_do: there are no environments, and none could run anything of what waited. Then
            numbers of tasks, their order, and what is free are left out: these change all the time
            in a pool that works.
    """
    return Situation(
        {each.shape for each in unmet}
        if nothing_to_do
        else [(each.shape, each.tasks) for each in unmet],
        [host._replace(free={}) for host in hosts] if nothing_to_do else hosts,
        ads,
        [
            (
                each.number,
                each.phase,
                each.held,
                each.idle_since,
                each.has_worked,
                each.draining,
                each.asked_for,
                now - each.since < SETTLE_SECONDS,
            )
            for each in environments
        ],
        moments,
    )
