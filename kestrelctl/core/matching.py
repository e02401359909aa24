"""Which workers can run which tasks, and why not.

Jobs that ask alike share a `Shape`, workers that offer alike a `WorkerClass`; a shape is held
against a class once and the answer kept. A refusal is a value: `job explain`, metrics and log all
show the same.
"""

from __future__ import annotations

import enum

import msgspec

from kestrelctl.core.assets import Amounts, times_fitting


class Reason(enum.StrEnum):
    """Why a task does not run on a worker, or does not run at all just now."""

    MISSING_TAGS = "missing-tags"
    TOO_SMALL = "too-small"
    BUSY = "busy"
    OFFLINE = "offline"
    DRAINING = "draining"
    QUARANTINED = "quarantined"
    NO_WORKERS = "no-workers"
    MAX_RUNNING = "max-running"
    BACKOFF = "backoff"
    ALL_STARTED = "all-started"
    CANCELLING = "cancelling"
    RECOVERING = "recovering"


class Refusal(msgspec.Struct, frozen=True):
    """One reason, with what was wanted and what there is (text for people; may be empty)."""

    reason: Reason
    wanted: str = ""
    found: str = ""
    #: Share of what was asked for that is there, 0 to 1: orders refusals by how close they are.
    closeness: float = 0.0


class Shape:
    """What jobs that match alike ask for: amounts of assets, and tags."""

    __slots__ = ("request", "requires")

    def __init__(self, request: Amounts, requires: frozenset[str]) -> None:
        self.request = request
        self.requires = requires


def describe(asset: str, amount: int) -> str:
    """An amount as people write it: `1 cpu`, `2 cpus`, `512 MiB memory`."""
    if asset == "cpus":
        return f"{amount / 1000:g} cpu{'s' if amount != 1000 else ''}"
    if asset == "memory":
        return f"{amount / (1 << 20):.4g} MiB memory"
    return f"{amount} {asset}"


def match(shape: Shape, capacity: Amounts, tags: frozenset[str]) -> Refusal | None:
    """Whether workers with these tags and this capacity can ever run tasks of this shape.

    Returns:
        None if they can, otherwise the reason; missing tags before missing size.
    """
    missing = shape.requires - tags
    if missing:
        return Refusal(
            Reason.MISSING_TAGS,
            wanted=" ".join(sorted(missing)),
            found=" ".join(sorted(tags)),
            closeness=0.5 * (1 - len(missing) / len(shape.requires)),
        )
    for asset, amount in sorted(shape.request.items()):
        there = capacity.get(asset, 0)
        if there < amount:
            return Refusal(
                Reason.TOO_SMALL,
                wanted=describe(asset, amount),
                found=describe(asset, there),
                closeness=0.5 + 0.5 * there / amount,
            )
    return None


def slots(shape: Shape, capacity: Amounts) -> int:
    """How many tasks of the shape such a worker runs side by side when it has nothing else."""
    return times_fitting(shape.request, capacity)
