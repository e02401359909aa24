"""What a worker advertises about itself."""

from __future__ import annotations

import msgspec


class WorkerAd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a worker says of itself: assets, tags, and facts for people.

    Attributes:
        assets: how much it has of each, in natural units.
    """

    assets: dict[str, float] = msgspec.field(default_factory=lambda: {"cpus": 1.0})
    tags: tuple[str, ...] = ()
    host: str = ""
    os: str = ""
    arch: str = ""
    version: str = ""


def with_cpus(ad: WorkerAd, most: float) -> WorkerAd:
    """An ad that offers no more processors than that; at least a thousandth of one."""
    if ad.assets.get("cpus", 0.0) <= most:
        return ad
    return msgspec.structs.replace(ad, assets={**ad.assets, "cpus": max(most, 0.001)})
