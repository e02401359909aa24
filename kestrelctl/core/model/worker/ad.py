"""The ad of a worker: what it advertises about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kestrelctl.core.model.numbers import Seconds
from kestrelctl.core.model.worker.assets import BOUNDLESS, MILLI


class AssetUnit(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """One unit of an indexed asset; on the wire `["GPU-5f2e…","nvidia","NVIDIA A100",85899345920]`.

    Attributes:
        id: what a program calls it; tells it from the worker's other units of the asset.
        vendor: such as nvidia or amd; empty if it is not known.
        memory_bytes: its own; 0 if it is not known.
    """

    id: str
    vendor: str = ""
    model: str = ""
    memory_bytes: int = 0


class WorkerAd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The ad of a worker: its assets, its tags, and facts for people.

    Attributes:
        assets: how much it has of each, in natural units. Each is an amount (a `sum`) unless one of
            the next two says otherwise.
        units: of its `indexed` assets, as many as `assets` says.
        shared: assets that tasks use together, each for a whole number of its uses.
        unknown: assets of which it does not know how much there is, none of them in `assets`; each
            with the exit status by which a task says that there was no more of it.
        attributes: what its operator wants expressions to know, beside what the pool finds out.
        start: an expression that must be true of a job, or nothing of it runs here; empty for none.
        ends_at: when it stops what it still runs and leaves, in seconds since the epoch by its own
            steady clock, by which it dates its hello; None if it stays.
        properties: the latest values of what is read of its host, by name; the pool adds them to
            what the worker says itself.
        distance_seconds: how long a message to it and back takes, if it is lent by a neighbour: the
            pool that borrows it says so. 0 for a worker of the pool's own.
    """

    assets: dict[str, float] = msgspec.field(default_factory=lambda: {"cpus": 1.0})
    units: dict[str, tuple[AssetUnit, ...]] = msgspec.field(default_factory=dict)
    shared: tuple[str, ...] = ()
    unknown: dict[str, int] = {}
    tags: tuple[str, ...] = ()
    host: str = ""
    os: str = ""
    arch: str = ""
    version: str = ""
    attributes: dict[str, bool | int | float | str] = {}
    start: str = ""
    ends_at: Seconds | None = None
    properties: dict[str, bool | int | float | str] = {}
    distance_seconds: float = 0.0


def with_cpus(ad: WorkerAd, most: float) -> WorkerAd:
    """An ad that offers no more processors than that; at least a thousandth of one."""
    if ad.assets.get("cpus", 0.0) <= most:
        return ad
    return msgspec.structs.replace(ad, assets={**ad.assets, "cpus": max(most, 0.001)})


def bookable(ad: WorkerAd) -> dict[str, float]:
    """The amount of each asset in a worker's own books, in natural units.

    For an asset of unknown capacity that is more than anybody can ask for: the pool alone decides
    how many may use it at once.
    """
    return ad.assets | dict.fromkeys(ad.unknown, BOUNDLESS / MILLI)


def unit_ids(ad: WorkerAd) -> dict[str, tuple[str, ...]]:
    """The ids of the units of each indexed asset."""
    return {asset: tuple(unit.id for unit in units) for asset, units in ad.units.items()}


class AssetChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change of a worker's assets: assets that are not named stay as they are.

    Attributes:
        amounts: in natural units; of an indexed asset, how many of the units that it has had.
        units: the ids of all units of an indexed asset.
        shared: how many uses each shared asset is for.
        unknown: assets of unknown capacity, with the exit status that says there is no more.
    """

    amounts: dict[str, float] = {}
    units: dict[str, tuple[str, ...]] = {}
    shared: dict[str, float] = {}
    unknown: dict[str, int] = {}


def changed(
    ad: WorkerAd, change: AssetChange, known: Mapping[str, Sequence[AssetUnit]]
) -> WorkerAd:
    """Returns an ad with other assets. `validate.problem_with_ad` says whether it can be meant.

    Args:
        known: the units that the worker has had, with what is known of them.
    """
    assets, units = dict(ad.assets), dict(ad.units)
    shared = dict.fromkeys(ad.shared)
    unknown = dict(ad.unknown)
    for asset in change.units.keys() | change.amounts.keys() | change.shared.keys():
        unknown.pop(asset, None)
    for asset in change.unknown:
        assets.pop(asset, None)
        units.pop(asset, None)
        shared.pop(asset, None)
    for asset, ids in change.units.items():
        by_id = {unit.id: unit for unit in known.get(asset, ())}
        units[asset] = tuple(by_id.get(unit, AssetUnit(unit)) for unit in ids)
        assets[asset] = float(len(ids))
        shared.pop(asset, None)
    for asset, amount in (change.amounts | change.shared).items():
        assets[asset] = amount
        if asset in change.shared:
            shared[asset] = None
        if asset in known and asset not in change.shared:
            # As many as there are; if more are wanted, the ad contradicts itself and is refused.
            units[asset] = tuple(known[asset][: int(amount) if 0 <= amount < 1e9 else 0])
        else:
            units.pop(asset, None)
    return msgspec.structs.replace(
        ad, assets=assets, units=units, shared=tuple(shared), unknown=unknown | change.unknown
    )
