"""Finds what a pool lacks: tasks that no placement could run now, and the classes that are full.

The graph has a node for each shape, and one for each asset of each class. A shape flows in amounts
of the asset of which it takes the largest share of what the pool has for it (its *dominant* asset),
so that tasks that ask for different amounts share a class as they would. Every worker is in the
graph with all that it has, and what runs flows first: it may flow elsewhere, but does not vanish.

This is a bound, not a placement. It is exact if tasks compete for one asset of which all ask alike.
It takes an asset of unknown capacity as one of which there is as much as anybody wants.
Apart from that it is too hopeful where tasks of one class are short of different assets, where the
rest that several shapes leave on a worker is of no use, and by what a policy charges above the
least; so the unmet tasks are those that could not run for sure. No graph of this size can be exact:
how many tasks of different sizes fit is a knapsack problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.assets import Amounts, describe, known
from kestrelctl.core.model.worker.claim import UNBOUNDED
from kestrelctl.core.scheduling.flow import Flow
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.supply import ClassSupply

#: The most characters that describe a shape or a class.
LONGEST_WORDS = 100


class Saturated(msgspec.Struct, frozen=True):
    """A class that is full of what could run nowhere else.

    Attributes:
        workers: how many of them may take tasks.
        assets: what they are out of.
    """

    workers: int
    assets: tuple[str, ...]


class Shortage(msgspec.Struct, frozen=True):
    """The shortage of a pool at a moment.

    Attributes:
        unmet: tasks of each shape that wait, and would even if all were placed anew.
        saturated: classes of which another worker would let more run. Another worker of a class
            that is only full would not: what runs there could run elsewhere.
    """

    unmet: Mapping[Shape, int] = {}
    saturated: Mapping[WorkerClass, Saturated] = {}


def shortage(
    running: Mapping[Shape, int],
    waiting: Mapping[int, Mapping[Shape, int]],
    workers: Mapping[ClassSupply, int],
) -> Shortage:
    """Finds what is short.

    Args:
        running: tasks of each shape that run at these workers.
        waiting: by priority, tasks of each shape that may be handed out.
        workers: how many of each class may take tasks.
    """
    waits: Counter[Shape] = Counter()
    for tasks in waiting.values():
        waits.update(tasks)
    if not waits:
        return Shortage()
    there = [(cls, n) for cls, n in workers.items() if n]
    dominant: dict[Shape, tuple[str, int]] = {}
    arcs: dict[tuple[Shape, tuple[WorkerClass, str]], int] = {}
    capacities: dict[tuple[WorkerClass, str], int] = {}
    unmet: dict[Shape, int] = {}
    for shape in {**waits, **running}:
        fitting = [(cls, n, t) for cls, n in there if isinstance(t := cls.terms(shape), Terms)]
        if not fitting:
            unmet[shape] = waits[shape]
            continue
        found = dominant_asset((terms.claim.amounts, cls.cls, n) for cls, n, terms in fitting)
        if found is None:
            continue  # It takes nothing.
        asset, amount = dominant[shape] = found
        for cls, n, terms in fitting:
            pair = (cls.cls, asset)
            capacities[pair] = cls.cls.capacity.get(asset, 0) * n
            arcs[shape, pair] = min(terms.side_by_side, UNBOUNDED) * n * amount
    flow = Flow(capacities, arcs)
    left: Counter[Shape] = Counter()
    # Running tasks go first: those that the graph's idea of the pool has no room for are no demand.
    for tasks in (running, *(waiting[priority] for priority in sorted(waiting, reverse=True))):
        amounts = {s: n * dominant[s][1] for s, n in tasks.items() if s in dominant}
        level = flow.add(amounts)
        if tasks is not running:
            left.update(level)
    for shape, amount in left.items():
        unmet[shape] = -(-amount // dominant[shape][1])
    full: dict[WorkerClass, tuple[str, ...]] = {}
    for worker_class, asset in flow.saturated():
        full[worker_class] = (*full.get(worker_class, ()), asset)
    saturated = {cls.cls: Saturated(n, full[cls.cls]) for cls, n in there if cls.cls in full}
    return Shortage({shape: n for shape, n in unmet.items() if n}, saturated)


def dominant_asset(
    fitting: Iterable[tuple[Amounts, WorkerClass, int]],
) -> tuple[str, int] | None:
    """The asset of which tasks take the largest share, and the least that one is charged of it.

    Args:
        fitting: what a task is charged at each class that can run it, and how many workers that
            has.

    Returns:
        None if a task is charged nothing, at one of them at least.
    """
    charged: Amounts = {}
    there: Counter[str] = Counter()
    for place, (amounts, cls, n) in enumerate(fitting):
        if place == 0:
            charged = dict(amounts)
        else:
            charged = {a: min(m, amounts[a]) for a, m in charged.items() if a in amounts}
        for asset in amounts:
            there[asset] += cls.capacity.get(asset, 0) * n
    shares = ((amount / there[asset], asset) for asset, amount in charged.items())
    asset = max(shares, default=(0.0, ""))[1]
    return (asset, charged[asset]) if asset else None


def shape_words(shape: Shape, known_tags: frozenset[str]) -> str:
    """A shape in a few words: `2 cpus, 512 MiB memory, GPU`.

    Args:
        known_tags: those of the workers. Others are not told: they are their owner's own words.
    """
    tags = sorted(shape.requires & known_tags)
    if not shape.requires <= known_tags:
        tags.append("tags that no worker has")
    return _words(shape.request, tags)


def class_words(cls: WorkerClass) -> str:
    """A class in a few words: `8 cpus, 16384 MiB memory, GPU`."""
    unknown = (f"{asset} of unknown capacity" for asset in sorted(cls.unknown))
    return _words(known(cls.capacity), [*unknown, *sorted(cls.tags)])


def _words(amounts: Amounts, tags: Iterable[str]) -> str:
    assets = [describe(asset, amount) for asset, amount in sorted(amounts.items())]
    words = ", ".join([*assets, *tags]) or "nothing"
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1]}…"
