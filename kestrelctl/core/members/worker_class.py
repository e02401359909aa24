"""Workers that match alike."""

from __future__ import annotations

from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.assets import Amounts, amounts

#: What two workers must agree in to be of one class.
ClassKey = tuple[frozenset[str], tuple[tuple[str, int], ...]]


class WorkerClass:
    """What such workers have in common: tags (upper case, as in the original) and capacity.

    Attributes:
        ad_known: False for workers of which nothing but the address is known.
    """

    __slots__ = ("ad_known", "capacity", "tags")

    def __init__(self, tags: frozenset[str], capacity: Amounts, *, ad_known: bool = True) -> None:
        self.tags = tags
        self.capacity = capacity
        self.ad_known = ad_known


def class_key(ad: WorkerAd) -> ClassKey:
    """The key of a worker's class."""
    tags = frozenset(tag.upper() for tag in ad.tags)
    return tags, tuple(sorted(amounts(ad.assets).items()))
