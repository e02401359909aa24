"""Amounts of assets: what an aggregate has, what a task asks for, what is left.

People and messages use natural units (processors, bytes, devices). The core counts every asset in
thousandths of its unit, in whole numbers, so that what is taken and given back adds up exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

MILLI = 1000

Natural: TypeAlias = dict[str, float]
"""Asset name -> amount in its natural unit; `cpus` in processors, `memory` in bytes."""

Amounts: TypeAlias = dict[str, int]
"""Asset name -> thousandths of the natural unit. A missing name means none."""


def amounts(natural: Mapping[str, float]) -> Amounts:
    """Natural amounts as the core counts them; zero amounts are left out."""
    found = {name: round(amount * MILLI) for name, amount in natural.items()}
    return {name: amount for name, amount in found.items() if amount}


def natural(counted: Mapping[str, int]) -> Natural:
    """The inverse of `amounts`."""
    return {name: amount / MILLI for name, amount in counted.items()}


def describe(asset: str, amount: int) -> str:
    """An amount as people write it: `1 cpu`, `2 cpus`, `512 MiB memory`, `2 fpga`."""
    if asset == "cpus":
        return f"{amount / MILLI:g} cpu{'s' if amount != MILLI else ''}"
    if asset == "memory":
        return f"{amount / MILLI / (1 << 20):.4g} MiB memory"
    return f"{amount / MILLI:g} {asset}"
