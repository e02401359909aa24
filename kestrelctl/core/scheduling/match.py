"""Finds the terms on which tasks of a shape can run on workers of a class, or why they cannot."""

from __future__ import annotations

from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.refusal import Reason, Refusal, refuse
from kestrelctl.core.model.worker.assets import Amounts, describe, describe_all, whole_uses
from kestrelctl.core.model.worker.claim import Claim, limits_beyond
from kestrelctl.core.model.worker.unit_claim import claim_of
from kestrelctl.core.policies.spoiled import Spoiled
from kestrelctl.core.scheduling.judgement import expressions_refuse, rank_of


class Terms:
    """The terms on which tasks of a shape can run on workers of a class.

    Attributes:
        claim: what each attempt is charged.
        side_by_side: how many such a worker runs at once when it has nothing else.
        rank: how much the job would like that: the higher, the sooner.
        may_queue: whether they may wait there behind others: not for what the pool alone counts,
            because the worker would start them at once.
    """

    __slots__ = ("claim", "may_queue", "rank", "side_by_side")

    def __init__(
        self, claim: Claim, side_by_side: int, rank: float = 0.0, *, may_queue: bool = True
    ) -> None:
        self.claim = claim
        self.may_queue = may_queue
        self.side_by_side = side_by_side
        self.rank = rank


def match(shape: Shape, cls: WorkerClass) -> Terms | Refusal:
    """Compares a shape with a class. Tokens are the pool's affair: no worker is asked for any.

    The amounts that are charged are those that were asked for, unless a policy is in force there;
    a shared asset is charged in whole uses.

    Returns:
        The terms, or the first reason why not: staying at home before missing tags before missing
        assets before missing size, and expressions last.
    """
    if not cls.ad_known:
        return refuse(Reason.UNHEARD)
    if shape.stays and cls.distance_seconds:
        return refuse(Reason.STAYS_HOME, found="lent by a neighbour")
    if cls.lends_nothing:
        return refuse(Reason.UNWILLING, found="a neighbour that lends nothing now")
    missing = shape.requires - cls.tags
    if missing:
        return refuse(
            Reason.MISSING_TAGS,
            wanted=" ".join(sorted(missing)),
            found=" ".join(sorted(cls.tags)),
            share=1 - len(missing) / len(shape.requires),
        )
    charged, by_policy = shape.request, ""
    if cls.policy is not None:
        found = cls.policy.amounts(shape.request, cls.capacity)
        if isinstance(found, Spoiled):
            return _no_charge(shape, cls.policy.name, found)
        charged, by_policy = found, f" (by policy {cls.policy.name})"
    if cls.shared:
        charged = _whole_uses(charged, cls)
    capacity = cls.capacity
    for asset, amount in charged.items():
        if capacity.get(asset, 0) < amount:
            return _too_little(charged, cls, by_policy)
    if shape.requirements or cls.start:
        why = expressions_refuse(_as_requirements_see(shape, charged), cls)
        if why is not None:
            return why
    if cls.as_asked and not cls.indexed:
        claim = shape.claim
    else:
        claim = claim_of(charged, cls.indexed)
        claim.limits = limits_beyond(shape.request, charged)
    if cls.policy is not None:
        cost = cls.policy.cost(charged, cls.capacity)
        if isinstance(cost, Spoiled):
            return _no_charge(shape, cls.policy.name, cost)
        claim.cost = cost
    rank = rank_of(shape, cls)
    if isinstance(rank, Refusal):
        return rank
    side_by_side = claim.times_fitting(cls.idle)
    may_queue = cls.unknown.isdisjoint(charged)
    return Terms(claim, side_by_side, rank, may_queue=may_queue)


def _too_little(charged: Amounts, cls: WorkerClass, by_policy: str) -> Refusal:
    """Names the asset that such workers do not have, or of which they have too little."""
    for asset in sorted(charged):
        if asset not in cls.capacity:
            return refuse(
                Reason.MISSING_ASSET,
                wanted=asset + by_policy,
                found=" ".join(sorted(cls.capacity)),
            )
    asset = next(name for name, n in sorted(charged.items()) if cls.capacity[name] < n)
    amount, there = charged[asset], cls.capacity[asset]
    return refuse(
        Reason.TOO_SMALL,
        wanted=describe(asset, amount) + by_policy,
        found=describe(asset, there),
        share=there / amount,
    )


def _whole_uses(charged: Amounts, cls: WorkerClass) -> Amounts:
    """Rounds the amounts of shared assets up to whole uses."""
    if cls.shared.isdisjoint(charged):
        return charged
    return {
        asset: whole_uses(amount) if asset in cls.shared else amount
        for asset, amount in charged.items()
    }


def _as_requirements_see(shape: Shape, charged: Amounts) -> Shape:
    """A shape that asks for what it is charged, as far as it asks for that at all.

    Source: `cp_override_requested` of HTCondor's consumption_policy.cpp.
    """
    if charged is shape.request:
        return shape
    request = {name: charged.get(name, 0) for name in shape.request}
    return Shape(
        request,
        shape.requires,
        None,
        shape.requirements,
        shape.rank,
        shape.facts,
        tokens=shape.tokens,
        stays=shape.stays,
    )


def _no_charge(shape: Shape, policy: str, spoiled: Spoiled) -> Refusal:
    return refuse(
        Reason.POLICY, wanted=describe_all(shape.request), found=f"policy {policy}: {spoiled}"
    )
