"""Whether tasks of a shape can ever run on workers of a class: on what terms, or why not."""

from __future__ import annotations

from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.assets import describe
from kestrelctl.core.model.claim import Claim
from kestrelctl.core.model.refusal import Reason, Refusal, refuse
from kestrelctl.core.model.shape import Shape


class Terms:
    """On what terms tasks of a shape can run on workers of a class.

    Attributes:
        claim: what each attempt is charged.
        side_by_side: how many such a worker runs at once when it has nothing else.
    """

    __slots__ = ("claim", "side_by_side")

    def __init__(self, claim: Claim, side_by_side: int) -> None:
        self.claim = claim
        self.side_by_side = side_by_side


def match(shape: Shape, cls: WorkerClass) -> Terms | Refusal:
    """Holds a shape against a class.

    The amounts that are charged are those that were asked for.

    Returns:
        The terms, or the first reason why not: missing tags before missing size.
    """
    if not cls.ad_known:
        return refuse(Reason.UNHEARD)
    missing = shape.requires - cls.tags
    if missing:
        return refuse(
            Reason.MISSING_TAGS,
            wanted=" ".join(sorted(missing)),
            found=" ".join(sorted(cls.tags)),
            share=1 - len(missing) / len(shape.requires),
        )
    for asset, amount in sorted(shape.request.items()):
        there = cls.capacity.get(asset, 0)
        if there < amount:
            return refuse(
                Reason.TOO_SMALL,
                wanted=describe(asset, amount),
                found=describe(asset, there),
                share=there / amount,
            )
    claim = Claim(shape.request)
    return Terms(claim, claim.times_fitting(cls.capacity))
