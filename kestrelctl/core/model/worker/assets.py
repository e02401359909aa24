"""Amounts of assets: what an aggregate has, what a task asks for, what is left.

People and messages use natural units (processors, bytes, devices). The core counts every asset in
thousandths of its unit, in whole numbers, so that what is taken and given back adds up exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

MILLI = 1000
#: The detected asset whose units the vendors' programs are told of by variables of their own.
GPUS = "gpus"

#: More than anybody has or asks for (`validate.MOST_OF_AN_ASSET`): the capacity of an asset of
#: unknown capacity, wherever the pool's estimate does not count.
BOUNDLESS = (1 << 60) * MILLI

Natural: TypeAlias = dict[str, float]
"""Asset name -> amount in its natural unit; `cpus` in processors, `memory` in bytes."""

Amounts: TypeAlias = dict[str, int]
"""Asset name -> thousandths of the natural unit. A missing name means none.

Where an asset has units, each unit is booked beside the asset as well, as `gpus/GPU-5f2e`: one unit
is `MILLI`.
"""


def amounts(natural: Mapping[str, float]) -> Amounts:
    """Natural amounts as the core counts them; zero amounts are left out."""
    found = {name: round(amount * MILLI) for name, amount in natural.items()}
    return {name: amount for name, amount in found.items() if amount}


def known(capacity: Amounts) -> Amounts:
    """A capacity without the assets whose own capacity is unknown."""
    return {name: amount for name, amount in capacity.items() if amount != BOUNDLESS}


def natural(counted: Mapping[str, int]) -> Natural:
    """The inverse of `amounts`."""
    return {name: amount / MILLI for name, amount in counted.items()}


def whole_uses(amount: int) -> int:
    """An amount of something that is only used as a whole, rounded up."""
    return -(-amount // MILLI) * MILLI


def unit_key(asset: str, unit: str) -> str:
    """The name under which a unit of an asset is booked. No asset has a `/` in its name."""
    return f"{asset}/{unit}"


def with_units(capacity: Mapping[str, int], units: Mapping[str, Iterable[str]]) -> Amounts:
    """The books of a worker that has nothing to do.

    Args:
        units: the ids of the units of each asset that has some.
    """
    found = dict(capacity)
    for asset, ids in units.items():
        found.update((unit_key(asset, unit), MILLI) for unit in ids)
    return found


def without_units(free: Mapping[str, int]) -> Amounts:
    """The free amounts as they are shown: by asset, and 0 where more is charged than there is."""
    return {name: max(0, amount) for name, amount in free.items() if "/" not in name}


def resized(free: Amounts, before: Amounts, after: Amounts) -> Amounts:
    """The free amounts after a change of capacity. What is charged stays charged.

    An amount is below zero where more is charged than there is now. An asset that is gone, and
    charged to nobody, is left out.
    """
    found = {name: free.get(name, 0) + n - before.get(name, 0) for name, n in after.items()}
    for name, amount in free.items():
        if name not in after and amount != before.get(name, 0):
            found[name] = amount - before.get(name, 0)
    return found


def four_digits(number: float) -> str:
    """Writes a number with four significant digits, and all of those before the point."""
    return f"{number:.4g}" if abs(number) < 9999.5 else f"{number:.0f}"


def describe(asset: str, amount: int) -> str:
    """An amount as people write it: `1 cpu`, `2 cpus`, `512 MiB memory`, `2 fpga`."""
    number = f"{amount / MILLI:,.15g}"  # every digit: whoever lacks one token wants to see it
    if asset in ("cpus", "gpus"):
        return f"{number} {asset[:-1] if amount == MILLI else asset}"
    if asset in ("memory", "disk"):
        return f"{four_digits(amount / MILLI / (1 << 20))} MiB {asset}"
    return f"{number} {asset}"


def describe_all(amounts: Mapping[str, int]) -> str:
    """Amounts as people write them."""
    return ", ".join(describe(name, n) for name, n in sorted(amounts.items())) or "nothing"


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
