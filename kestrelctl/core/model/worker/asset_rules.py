"""Names of assets, and how much there may be of one: at a worker, for a task, in the pool."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kestrelctl.core.model.worker.ad import GPUS
from kestrelctl.core.model.worker.assets import MILLI

MAX_ASSETS = 16
MOST_CPUS = 1_000_000
#: Bounds for any other asset, in its natural unit; there may also be none of it.
MOST_OF_AN_ASSET = 1 << 60
LEAST_OF_AN_ASSET = 1 / MILLI
#: The most tokens of one sort that a pool has.
MOST_TOKENS = 1_000_000_000
#: Assets that are always amounts.
SUMS = ("cpus", "memory", "disk")
_ASSET = re.compile(r"[a-z][a-z0-9_]{0,31}")


def is_asset_name(name: str) -> bool:
    """Whether an asset may have this name."""
    return _ASSET.fullmatch(name) is not None


def is_of_workers(name: str) -> bool:
    """Whether an asset is always the workers', never the pool's."""
    return name in (*SUMS, GPUS)


def no_asset(name: str) -> str:
    """Says that no asset may have this name, and what names are like."""
    return (
        f"{name[:40]!r} is no name of an asset: that begins with a small letter and has up to 32 "
        "small letters, digits and _"
    )


def problem_with_assets(assets: Mapping[str, float], who: str) -> str | None:
    """The first thing wrong with what somebody needs or has; None if all is well."""
    if len(assets) > MAX_ASSETS:
        return f"{who} at most {MAX_ASSETS} assets, not {len(assets)}"
    cpus = assets.get("cpus", 0.0)
    if not LEAST_OF_AN_ASSET <= cpus <= MOST_CPUS:
        return f"{who} 0.001 to {MOST_CPUS:,} cpus, not {cpus:,.10g}"
    for name, amount in assets.items():
        if not is_asset_name(name):
            return no_asset(name)
        if amount and not LEAST_OF_AN_ASSET <= amount < MOST_OF_AN_ASSET:
            return f"{who} 0 of {name}, or 0.001 to less than 2^60, not {amount:,.10g}"
    return None


def problem_with_tokens(name: str, total: int) -> str | None:
    """The first thing wrong with the tokens that a pool is to have; None if all is well."""
    if not is_asset_name(name):
        return no_asset(name)
    if is_of_workers(name):
        return f"{name} is an asset of workers: the pool has none itself"
    if not 1 <= total <= MOST_TOKENS:
        return f"a pool has 1 to {MOST_TOKENS:,} {name}, not {total:,}"
    return None
