"""What to recall that waits at workers: it is stuck while others idle or users wait, or it is
guests' and the pool's own wait. Pure, like the plan.
"""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.supply import ClassSupply, Supply


def guests_to_recall(
    workers: Iterable[Worker], demand: Demand, supply: Supply
) -> list[tuple[Worker, list[int]]]:
    """Attempts of guests that have not begun, at workers on which something of the pool's own could
    run that waits: that goes first.

    Returns:
        Workers, and the numbers of attempts to recall from each.
    """
    own = 0
    for turn in demand.turns():
        if turn.priority >= 0:
            own |= turn.shapes
    if not own:
        return []
    found: list[tuple[Worker, list[int]]] = []
    for worker in workers:
        if not worker.queued or not worker.synced or worker.recalling:
            continue
        if supply.of(worker).usable(demand.shapes, own):
            held = worker.held
            guests = [n for n in worker.queued_numbers() if held[n].job.spec.guest is not None]
            if guests:
                found.append((worker, guests))
    return found


def recalls(
    workers: Iterable[Worker], demand: Demand, supply: Supply, config: Config, now: float
) -> list[tuple[Worker, list[int]]]:
    """Chooses attempts to be given back, as far as others idle that can run them, or another user
    waits, who would come after them though it may be his turn.

    Only workers that are silent for longer than is their habit, and than `stuck_seconds`, are
    asked: what waits is worth `ahead_seconds` of work, so at any other worker it is about to run.
    Of what waits at one, the later half is recalled: the earlier half runs there soonest.

    Returns:
        Workers, those with most waiting first, and the numbers of attempts to recall from each.
    """
    stuck = [
        worker
        for worker in workers
        if worker.queued
        and worker.synced
        and not worker.recalling
        and worker.silence.is_stuck(now, config.stuck_seconds)
    ]
    if not stuck:
        return []
    idle, classes = _idle(supply)
    users = {turn.sharer for turn in demand.turns()}
    stuck.sort(key=lambda worker: worker.queued, reverse=True)
    found: list[tuple[Worker, list[int]]] = []
    for worker in stuck:
        if idle <= 0 and not users:
            break
        waiting = [
            number
            for number in worker.queued_numbers()
            if users - {(line := worker.held[number].line).sharer}
            or (idle > 0 and any(isinstance(cls.terms(line.shape), Terms) for cls in classes))
        ]
        if waiting:
            later_half = waiting[len(waiting) // 2 :]
            found.append((worker, later_half))
            idle -= len(later_half)
    return found


def _idle(supply: Supply) -> tuple[int, list[ClassSupply]]:
    """How many workers that may take tasks have none, and their classes."""
    idle = 0
    classes: list[ClassSupply] = []
    for cls in supply.present():
        here = sum(not w.held for crowd in (cls.hungry, cls.parked) for w in crowd.values())
        if here:
            idle += here
            classes.append(cls)
    return idle, classes
