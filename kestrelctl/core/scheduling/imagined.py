"""Tells whether tasks could run on a worker that is not there: one that a neighbour speaks of.

The question changes nothing in the pool. In particular it makes no class, and the expression of
such a worker does not tell jobs apart.
"""

from __future__ import annotations

from kestrelctl.core.members.worker_class import WorkerClass, class_key
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.neighbour import distance_seconds_of
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.matching_ads import own_attributes, worker_facts
from kestrelctl.core.model.worker.significance import Significance, all_facts, interests_of
from kestrelctl.core.policies.in_force import PoliciesInForce
from kestrelctl.core.policies.named_policy import NamedPolicy
from kestrelctl.core.scheduling.match import match

#: The most such workers that are remembered.
MOST_KEPT = 1_000


class ImaginedWorkers:
    """Compares shapes with workers that are not there."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, str, str, NamedPolicy | None], _Imagined] = {}

    def refusal(
        self,
        shape: Shape,
        ad: WorkerAd,
        jid: str,
        of_jobs: Significance,
        policies: PoliciesInForce,
    ) -> Refusal | None:
        """Tells why tasks of a shape could never run on such a worker; None if they could.

        Args:
            ad, jid: what it would say of itself, and where it would be.
            of_jobs: the attributes of jobs that shapes tell of. If the worker's `start` asks for
                others, nobody can evaluate it before the worker is there: then it refuses nothing.
            policies: those of the pool; one may be in force there.
        """
        start = ad.start
        if start and not of_jobs.covers(interests_of(start).others):
            start = ""
        policy = policies.of(ad, jid)
        key = (id(ad), jid, start, policy)
        known = self._kept.get(key)
        if known is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            known = self._kept[key] = _Imagined(ad, _class(ad, jid, start, policy))
        return known.refusal(shape)


class _Imagined:
    """One such worker.

    Args:
        ad: kept, so that its id stays its own.
    """

    __slots__ = ("_ad", "_cls", "_latest")

    def __init__(self, ad: WorkerAd, cls: WorkerClass) -> None:
        self._ad = ad
        self._cls = cls
        self._latest: tuple[Shape, Refusal | None] | None = None

    def refusal(self, shape: Shape) -> Refusal | None:
        """Tells why tasks of a shape could never run there; the latest answer is kept."""
        if self._latest is None or self._latest[0] is not shape:
            found = match(shape, self._cls)
            self._latest = shape, found if isinstance(found, Refusal) else None
        return self._latest[1]


def _class(ad: WorkerAd, jid: str, start: str, policy: NamedPolicy | None) -> WorkerClass:
    tags, capacity, kinds = class_key(ad)
    return WorkerClass(
        tags,
        dict(capacity),
        kinds,
        start=start,
        facts=all_facts(own_attributes(ad) | worker_facts(ad, jid)),
        policy=policy,
        distance_seconds=distance_seconds_of(ad, jid),
    )
