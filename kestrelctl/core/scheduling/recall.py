"""Chooses attempts that wait at workers to be recalled. Pure, like the plan.

They are stuck while other workers idle or users wait, or they are of guests while tasks of the
pool's own wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.scheduling.demand import Demand, Turn
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.supply import ClassSupply, Supply


def guests_to_recall(
    workers: Iterable[Worker], demand: Demand, supply: Supply
) -> list[tuple[Worker, list[int]]]:
    """Finds attempts of guests that have not begun, at workers that could run a waiting task of the
    pool's own: such tasks go first.

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
        if not worker.queued or not worker.synced or worker.recalls:
            continue
        if supply.of(worker).usable(demand.shapes, own):
            held = worker.held
            guests = [n for n in worker.queued_numbers() if held[n].job.spec.guest is not None]
            if guests:
                found.append((worker, guests))
    return found


def newcomers(demand: Demand, supply: Supply) -> list[Turn]:
    """Finds new turns that long queues at workers would keep waiting.

    They have come since this was asked last and go first. Their users have nothing at any worker,
    or turns of a lower priority are behind them.
    """
    fresh = [turn for turn in demand.turns() if not turn.let_in]
    if not fresh:
        return fresh
    for turn in fresh:
        turn.let_in = True
    priorities = [turn.priority for turn in demand.turns()]
    lowest, highest = min(priorities), max(priorities)
    present = supply.present()
    return [
        turn
        for turn in fresh
        if turn.priority == highest
        and (not turn.sharer.running or highest > lowest)
        and any(cls.usable(demand.shapes, turn.shapes) for cls in present)
    ]


def recalls_for(
    turns: Iterable[Turn],
    workers: Iterable[Worker],
    demand: Demand,
    supply: Supply,
    config: Config,
) -> list[tuple[Worker, list[int]]]:
    """Chooses attempts to be given back so that newcomers soon have their turn.

    A worker gives back what waits there beyond half of a short queue, and as many workers do so as
    the newcomers have tasks for.

    Returns:
        Workers, and the numbers of attempts to recall from each.
    """
    shapes = wanted = 0
    for turn in turns:
        shapes |= turn.shapes
        wanted += sum(job.takeable for line in turn.lines.values() for _, job in line)
    found: list[tuple[Worker, list[int]]] = []
    for worker in workers:
        if wanted <= 0:
            break
        kept = config.shared_ahead_per_slot // 2 * worker.running
        if worker.queued <= 2 * kept or not worker.synced or worker.recalls:
            continue
        if supply.of(worker).usable(demand.shapes, shapes):
            found.append((worker, worker.queued_numbers()[kept:]))
            wanted -= worker.running
    return found


def recalls(
    workers: Iterable[Worker], demand: Demand, supply: Supply, config: Config, now: float
) -> list[tuple[Worker, list[int]]]:
    """Chooses attempts to be given back by workers that are stuck.

    An attempt may go back if idle workers can run it, or if another user waits, who would come
    after it though it may be his turn. Only workers that are silent for longer than is their habit,
    and than `stuck_seconds`, are asked: what waits is worth `ahead_seconds` of work, so at any
    other worker it is about to run. The later half of what waits at a worker is recalled: the
    earlier half runs there soonest.

    Returns:
        Workers, those with most waiting first, and the numbers of attempts to recall from each.
    """
    stuck = [
        worker
        for worker in workers
        if worker.queued
        and worker.synced
        and not worker.recalls
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
    """Counts the workers that may take tasks and have none, and lists their classes."""
    idle = 0
    classes: list[ClassSupply] = []
    for cls in supply.present():
        here = sum(not w.held for crowd in (cls.hungry, cls.parked) for w in crowd.values())
        if here:
            idle += here
            classes.append(cls)
    return idle, classes
