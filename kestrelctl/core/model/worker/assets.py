"""Amounts of assets: what an aggregate has, what a task asks for, what is left.

People and messages use natural units (processors, bytes, devices). The core counts every asset in
thousandths of its unit, in whole numbers, so that what is taken and given back adds up exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

MILLI = 1000

#: More than anybody has or asks for (`validate.MOST_OF_AN_ASSET`): the capacity of an asset of
#: which nobody knows how much there is, wherever it is not the pool's estimate that counts.
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
    """A capacity without the assets of which nobody knows how much there is."""
    return {name: amount for name, amount in capacity.items() if amount != BOUNDLESS}


def natural(counted: Mapping[str, int]) -> Natural:
    """The inverse of `amounts`."""
    return {name: amount / MILLI for name, amount in counted.items()}


def whole_uses(amount: int) -> int:
    """An amount of what is only used as a whole, rounded up."""
    return -(-amount // MILLI) * MILLI


def unit_key(asset: str, unit: str) -> str:
    """Under which name a unit of an asset is booked. No asset has a `/` in its name."""
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
    """What is free, as it is shown: by asset, and 0 where more is charged than there is."""
    return {name: max(0, amount) for name, amount in free.items() if "/" not in name}


def resized(free: Amounts, before: Amounts, after: Amounts) -> Amounts:
    """What is free when a capacity becomes another. What is charged stays charged.

    It is below zero where more is charged than there is now. What is gone, and charged to nobody,
    is not in it.
    """
    found = {name: free.get(name, 0) + n - before.get(name, 0) for name, n in after.items()}
    for name, amount in free.items():
        if name not in after and amount != before.get(name, 0):
            found[name] = amount - before.get(name, 0)
    return found


def four_digits(number: float) -> str:
    """A number with four digits that count, and all of those before the point."""
    return f"{number:.4g}" if abs(number) < 9999.5 else f"{number:.0f}"


def describe(asset: str, amount: int) -> str:
    """An amount as people write it: `1 cpu`, `2 cpus`, `512 MiB memory`, `2 fpga`."""
    number = f"{amount / MILLI:,.15g}"  # every digit: who lacks one token wants to see it
    if asset in ("cpus", "gpus"):
        return f"{number} {asset[:-1] if amount == MILLI else asset}"
    if asset in ("memory", "disk"):
        return f"{four_digits(amount / MILLI / (1 << 20))} MiB {asset}"
    return f"{number} {asset}"


def describe_all(amounts: Mapping[str, int]) -> str:
    """Amounts as people write them."""
    return ", ".join(describe(name, n) for name, n in sorted(amounts.items())) or "nothing"
