"""Finds workers for the members of a job that spans workers, all or none. Pure, like the plan.

Nothing is held for some of them until the others find room, so two such jobs cannot block each
other. A job that waits for so much room at once gets it in the end because workers are kept for it
(`reservation`), for one such job at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.offer import Offer
from kestrelctl.core.scheduling.supply import ClassSupply


class Members(NamedTuple):
    """The places where the members of a job could start.

    Attributes:
        places: one worker for each, and the terms there; None if there are too few.
        taken_by_others: whether somebody who comes before could start something at one of them.
    """

    places: list[tuple[Offer, Terms]] | None
    taken_by_others: bool = False


class Together:
    """All workers that may take something, for one plan: also those that are set aside.

    A worker that has room for one member alone has been set aside.

    Args:
        usable: the shapes that each class could run.
        offers: what the workers that are not set aside have left in this plan. They are made now.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        usable: Mapping[ClassSupply, int],
        offers: dict[ClassSupply, Iterable[Offer]],
        config: Config,
        now: float,
    ) -> None:
        self._offers: list[tuple[ClassSupply, int, list[Offer]]] = []
        for cls, shapes in usable.items():
            hungry: list[Offer] = []
            if cls in offers:
                hungry = offers[cls] = list(offers[cls])
            parked = [Offer(worker, config, now) for worker in cls.parked.values()]
            self._offers.append((cls, shapes.bit_count(), hungry + parked))

    def members(
        self, job: Job, left: int, before: int, affordable: Callable[[Claim], bool]
    ) -> Members:
        """Finds a worker for each member: if possible one that is kept for the job, that the job
        prefers, and that is of little use to others.

        Args:
            left: how many of its tasks may be handed out.
            before: the shapes of all that come before it.
            affordable: whether its user may have all members, if each is charged so.
        """
        shape, span = job.shape, job.shape.span
        free: list[tuple[bool, float, int, int, Offer, Terms]] = []
        contested: list[tuple[bool, float, int, int, Offer, Terms]] = []
        for cls, flexibility, offers in self._offers:
            terms = cls.terms(shape)
            if not isinstance(terms, Terms) or not affordable(terms.claim):
                continue
            for offer in offers:
                kept = offer.worker.kept_for
                if offer.wants == 0 or (kept is not None and kept.shape is not shape):
                    continue
                if not offer.room_for(job, span, 1, terms, ahead=False):
                    continue
                entry = (kept is None, -terms.rank, flexibility, len(free), offer, terms)
                others = kept is None and before & cls.fitting(offer.free)
                (contested if others else free).append(entry)
        if left < span or len(free) + len(contested) < span:
            return Members(None)
        found = sorted(free, key=_order)[:span]
        more = sorted(contested, key=_order)[: span - len(found)]
        return Members([entry[4:] for entry in (*found, *more)], bool(more))


def _order(entry: tuple[bool, float, int, int, Offer, Terms]) -> tuple[bool, float, int, int]:
    return entry[:4]
