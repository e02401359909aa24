"""The one ladder of reasons why a task of a shape does not go to a worker.

It asks whether the task ever fits (`match`), whether the worker may take anything
(`members.availability`), and whether the worker has room now.
"""

from __future__ import annotations

from collections import Counter

from kestrelctl.core.members.availability import closed, startable
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.refusal import CLOSENESS, Reason, Refusal, refuse
from kestrelctl.core.model.worker.assets import describe
from kestrelctl.core.scheduling.supply import ClassSupply, Supply


def refusal(worker: Worker, cls: ClassSupply, shape: Shape, now: float) -> Refusal | None:
    """Tells why this worker takes no task of the shape now; None if it could."""
    terms = cls.terms(shape)
    if isinstance(terms, Refusal):
        return terms
    if is_too_short(worker, shape, now):
        asked, left = shape.time_request_seconds, max(worker.remaining_seconds(now) or 0.0, 0.0)
        found = f"{left:.0f} s left"
        return refuse(Reason.LIFETIME, wanted=f"{asked:.0f} s", found=found, share=left / asked)
    why = closed(worker, now)
    if why is Reason.QUARANTINED:
        return refuse(why, found=_quarantine(worker, now))
    if why is not None:
        return refuse(why)
    if worker.wants == 0:
        return refuse(Reason.BUSY, found="it asks for nothing more", share=1.0)
    if startable(terms.claim, worker.free, worker.queued):
        return None
    if terms.claim.fits(worker.free):
        return refuse(Reason.BUSY, found="others wait there", share=1.0)
    wanted = terms.claim.amounts
    asset, amount = min(wanted.items(), key=lambda entry: worker.free.get(entry[0], 0) / entry[1])
    free = worker.free.get(asset, 0)
    if free >= amount:
        pieces = next(name for name in sorted(wanted) if name in cls.cls.indexed)
        return refuse(
            Reason.BUSY,
            wanted=describe(pieces, wanted[pieces]),
            found=f"{describe(pieces, worker.free[pieces])} free, in pieces of several units",
            share=1.0,
        )
    return refuse(
        Reason.BUSY,
        wanted=describe(asset, amount),
        found=worker.free_of(asset),
        share=max(0, free) / amount,
    )


def is_too_short(worker: Worker, shape: Shape, now: float) -> bool:
    """Whether a worker leaves before a task of the shape has had the time that it asks for."""
    if not (shape.time_request_seconds and worker.online):
        return False
    remaining = worker.remaining_seconds(now)
    return remaining is not None and remaining < shape.time_request_seconds


def _quarantine(worker: Worker, now: float) -> str:
    return f"{worker.quarantined_until - now:.0f} s more: {worker.quarantined_for}"


def shape_reason(
    shape: Shape, supply: Supply, states: dict[ClassSupply, Counter[str]], now: float
) -> str:
    """Tells why tasks of a shape wait for a worker: the most hopeful of all workers' reasons.

    While nobody is online, that is the reason.

    Args:
        states: how many workers of each class are in which of `availability.WORKER_STATES`.
    """
    nearest: str = Reason.NO_WORKERS
    closeness = -1.0
    if not any(cls.members for cls in supply.classes()):
        return nearest
    for cls in supply.classes():
        for reason, found in _reasons(cls, shape, states.get(cls, Counter()), now):
            if found > closeness:
                nearest, closeness = reason, found
    return nearest


def _reasons(
    cls: ClassSupply, shape: Shape, states: Counter[str], now: float
) -> list[tuple[str, float]]:
    """The reasons of the workers of a class, with their closeness."""
    terms = cls.terms(shape)
    if isinstance(terms, Refusal):
        return [(terms.reason, terms.closeness)] if cls.members else []
    closed_reasons = [Reason(word) for word, n in states.items() if n and word not in _OPEN]
    if any(states[word] for word in _OPEN):
        # These may take tasks; each is looked at only if the shape asks for time.
        open_workers = [*cls.hungry.values(), *cls.parked.values()]
        stays = not shape.time_request_seconds or not all(
            is_too_short(worker, shape, now) for worker in open_workers
        )
        closed_reasons.append(Reason.BUSY if stays else Reason.LIFETIME)
    return [(reason, CLOSENESS[reason][0]) for reason in closed_reasons]


_OPEN = ("idle", "busy")
