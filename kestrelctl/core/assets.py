"""Amounts of assets: what an aggregate has, what a task asks for, what is left.

Amounts are whole numbers, so that what is taken and given back adds up exactly: processors are
counted in thousandths, memory in bytes. The consumption policy of this version takes what was asked
for.
"""

from __future__ import annotations

from typing import TypeAlias

MILLI = 1000

Amounts: TypeAlias = dict[str, int]
"""Asset name -> amount; `cpus` in thousandths, `memory` in bytes. A missing name means none."""

UNBOUNDED = 1 << 30


def amounts(cpus: float, memory_bytes: int) -> Amounts:
    """The amounts for so many processors and bytes of memory; zero amounts are left out."""
    found = {"cpus": round(cpus * MILLI), "memory": memory_bytes}
    return {name: amount for name, amount in found.items() if amount}


def times_fitting(request: Amounts, free: Amounts) -> int:
    """How many copies of `request` fit into `free` side by side."""
    times = UNBOUNDED
    for name, amount in request.items():
        fitting = free.get(name, 0) // amount
        if fitting < times:
            times = fitting
    return times


def take(free: Amounts, request: Amounts) -> None:
    """Takes `request` out of `free`, in place. The caller has checked that it fits."""
    for name, amount in request.items():
        free[name] -= amount


def give_back(free: Amounts, request: Amounts) -> None:
    """Puts `request` back into `free`, in place."""
    for name, amount in request.items():
        free[name] += amount
