"""Workers that match alike."""

from __future__ import annotations

from functools import lru_cache

from kestrelctl.core.model.neighbour import LEAST_CPUS
from kestrelctl.core.model.worker.ad import WorkerAd, bookable
from kestrelctl.core.model.worker.assets import MILLI, Amounts, amounts, known, natural, with_units
from kestrelctl.core.model.worker.matching_ads import Attributes, amounts_ad, in_lower_case, tags_ad
from kestrelctl.core.model.worker.significance import Facts, attributes_of
from kestrelctl.core.policies.named_policy import NamedPolicy

#: The properties in which two workers must agree to be of one class.
ClassKey = tuple[frozenset[str], tuple[tuple[str, int], ...], tuple[frozenset[str], frozenset[str]]]

_ALL_SUMS: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())


class WorkerClass:
    """The common properties of such workers: tags (upper case, as in the original) and capacity.

    Attributes:
        policy: says what tasks are charged there; None for what they ask for.
        start: an expression that must be true of a job; empty for none.
        facts: what else expressions in force ask of such workers.
        prepared: what `scheduling.judgement` keeps of it.
        capacity: boundless where it is unknown: workers of one class have estimates of their own.
        indexed, shared, unknown: assets of that kind; the others are amounts.
        idle: the books of such a worker with nothing to do; its units have numbers for ids.
        distance_seconds: how far away such workers are; above 0 if a neighbour lends them.
        lends_nothing: whether they are a loan of no more than `LEAST_CPUS`.
        ad_known: False for workers of which nothing but the address is known.
        as_asked: whether tasks are charged there what they ask for: no policy is in force, and
            there is nothing of which they take whole uses.
    """

    __slots__ = (
        "ad_known",
        "as_asked",
        "capacity",
        "distance_seconds",
        "facts",
        "idle",
        "indexed",
        "lends_nothing",
        "policy",
        "prepared",
        "shared",
        "start",
        "tags",
        "unknown",
    )

    def __init__(
        self,
        tags: frozenset[str],
        capacity: Amounts,
        kinds: tuple[frozenset[str], frozenset[str]] = _ALL_SUMS,
        *,
        ad_known: bool = True,
        start: str = "",
        facts: Facts = (),
        policy: NamedPolicy | None = None,
        distance_seconds: float = 0.0,
    ) -> None:
        self.distance_seconds = distance_seconds
        self.start = start
        self.facts = facts
        self.prepared: object = None
        self.tags = tags
        self.capacity = capacity
        self.indexed, self.shared = kinds
        units = {name: map(str, range(capacity.get(name, 0) // MILLI)) for name in self.indexed}
        self.idle = with_units(capacity, units)
        self.unknown = capacity.keys() - known(capacity).keys()
        no_more = capacity.get("cpus", 0) <= LEAST_CPUS * MILLI
        self.lends_nothing = distance_seconds > 0 and no_more
        self.ad_known = ad_known
        self.policy = policy
        self.as_asked = ad_known and policy is None and not self.shared

    def attributes(self) -> Attributes:
        """The ad of such workers, as far as expressions in force ask, as `in_lower_case` has it."""
        assets = tuple(known(self.capacity).items())
        return attributes_of(self.facts) | _base_ad(assets, self.tags)


@lru_cache(maxsize=1024)
def _base_ad(capacity: tuple[tuple[str, int], ...], tags: frozenset[str]) -> Attributes:
    """The part that the ads of many classes have in common. Nobody changes it."""
    return in_lower_case(amounts_ad(natural(dict(capacity))) | tags_ad(tags))


def class_key(ad: WorkerAd) -> ClassKey:
    """The key of a worker's class."""
    tags = frozenset(tag.upper() for tag in ad.tags)
    kinds = (frozenset(ad.units), frozenset(ad.shared)) if ad.units or ad.shared else _ALL_SUMS
    return tags, tuple(sorted(amounts(bookable(ad)).items())), kinds
