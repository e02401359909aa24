"""Finds what the pool could lend: its own workers, by what they have in common, and what is free
of them.

This is asked for many times a second. What workers have in common is found anew only when one
comes, goes, or says something else of itself; what each lends, only when something has changed at
it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import msgspec

from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import ClassKey, WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd
from kestrelctl.core.model.worker.assets import Amounts, known, natural
from kestrelctl.core.scheduling.own_waiting import OwnWaiting
from kestrelctl.core.scheduling.supply import ClassSupply, Supply

#: Hexadecimal digits of a class's id.
ID_DIGITS = 12
#: Workers that leave sooner have nothing to lend: nobody could do much with it.
LEAST_STAY_SECONDS = 60.0
_NOTHING: Mapping[str, int] = MappingProxyType({})


class LendableClass(msgspec.Struct, frozen=True):
    """Workers of the pool's own that offer the same, as a neighbour may hear of them.

    Attributes:
        id: the same as long as there are such workers, also after a restart.
        ad: of one of them, as far as all agree. It names no machine.
        machines: how many may take tasks and are kept for nobody.
        free: what is free of these together now, in natural units. A machine on which something
            waits for room, or that has no processor free, has nothing to lend.
        whole: what these have together.
        wanted: how many tasks of the pool's own wait that could run on such a worker.
        overdue: how many of these are of jobs that have waited for long.
    """

    id: str
    ad: WorkerAd
    machines: int
    free: dict[str, float]
    whole: dict[str, float]
    wanted: int
    overdue: int = 0


class LendableClasses:
    """Finds what the pool could lend; keeps what costs time to find.

    Args:
        supply: all workers by class.
    """

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._version = -1
        self._groups: list[_Group] = []
        self._of: dict[WorkerClass, tuple[ClassSupply, _Group]] = {}

    def find(
        self,
        workers: Collection[Worker],
        shapes: Sequence[Shape],
        waiting: Iterable[OwnWaiting],
        now: float,
        *,
        starts: bool,
    ) -> list[LendableClass]:
        """Finds what the pool could lend now, by class.

        Args:
            workers: all that the pool knows.
            shapes: all shapes by their place in sets of shapes.
            waiting: what waits of the pool's own.
            now: seconds since the epoch.
            starts: whether anything is handed out now; if not, nothing is free.
        """
        self._count(workers, now)
        tasks: dict[int, int] = {}
        old: dict[int, int] = {}
        for each in waiting:
            bit = each.shape.bit
            tasks[bit] = tasks.get(bit, 0) + each.tasks
            if each.old:
                old[bit] = old.get(bit, 0) + each.old
        wanted = sum(tasks)
        found: list[LendableClass] = []
        for group in self._groups:
            if not group.lends:
                continue
            usable = 0
            if wanted:
                for cls in group.classes:
                    usable |= cls.usable(shapes, wanted)
            found.append(
                LendableClass(
                    id=group.id,
                    ad=group.ad,
                    machines=len(group.lends),
                    free=natural(group.free) if starts else {},
                    whole=natural({n: a * len(group.lends) for n, a in group.capacity.items()}),
                    wanted=sum([n for bit, n in tasks.items() if bit & usable]),
                    overdue=sum([n for bit, n in old.items() if bit & usable]),
                )
            )
        return found

    def _count(self, workers: Collection[Worker], now: float) -> None:
        """Looks at workers that have changed since the last time; at all if one came or went."""
        supply = self._supply
        if self._version != supply.version:
            self._version = supply.version
            self._groups = _grouped(supply, workers)
            of_class = [(cls, group) for group in self._groups for cls in group.classes]
            self._of = {cls.cls: (cls, group) for cls, group in of_class}
            for cls, group in of_class:
                for worker in (*cls.hungry.values(), *cls.parked.values()):
                    group.look_at(cls, worker, now)
        else:
            leaving = [worker for group in self._groups for worker in group.leaving.values()]
            for worker in (*supply.stirred.values(), *leaving):
                found = self._of.get(worker.cls)
                if found is not None:
                    found[1].look_at(found[0], worker, now)
        supply.stirred.clear()


class _Group:
    """Classes of workers that differ only in a policy, or in what expressions ask for just now.

    Attributes:
        ad: what all workers of these say.
        capacity: what each of them has, as far as that is known.
        lends: what is free at each of them that may take tasks and is kept for nobody.
        free: the sum of that.
        leaving: those that leave at some time, and have nothing to lend from some moment on.
    """

    __slots__ = ("ad", "capacity", "classes", "free", "id", "leaving", "lends")

    def __init__(self, id: str, ad: WorkerAd, capacity: Amounts) -> None:
        self.id = id
        self.ad = ad
        self.capacity = capacity
        self.classes: list[ClassSupply] = []
        self.lends: dict[str, Mapping[str, int]] = {}
        self.free: Amounts = dict.fromkeys(capacity, 0)
        self.leaving: dict[str, Worker] = {}

    def look_at(self, cls: ClassSupply, worker: Worker, now: float) -> None:
        """Counts anew what one of the workers of a class has to lend."""
        free = self.free
        for name, amount in self.lends.pop(worker.jid, _NOTHING).items():
            free[name] -= amount
        is_open = worker.jid in cls.hungry or worker.jid in cls.parked
        if not is_open or worker.kept_for is not None:
            return
        if worker.ad.ends_at is not None:
            self.leaving[worker.jid] = worker
        lends = self.lends[worker.jid] = self._lends(worker, now)
        for name, amount in lends.items():
            free[name] += amount

    def _lends(self, worker: Worker, now: float) -> Mapping[str, int]:
        if worker.wants == 0 or _leaves_soon(worker, now):
            return _NOTHING
        if not worker.held:
            return self.capacity
        left = worker.free
        # Tasks that wait there come first; and no task goes without a processor.
        if left.get("cpus", 0) > 0 and len(worker.held) == worker.running:
            # After a shrink, what is free may be below zero.
            return {name: left[name] for name in self.capacity if left[name] > 0}
        return _NOTHING


def _leaves_soon(worker: Worker, now: float) -> bool:
    if worker.ad.ends_at is None:
        return False
    remaining = worker.remaining_seconds(now)
    return remaining is not None and remaining < LEAST_STAY_SECONDS


def _grouped(supply: Supply, workers: Iterable[Worker]) -> list[_Group]:
    """The pool's own classes that have workers online, with what all of these say."""
    ads: dict[ClassSupply, list[WorkerAd]] = {}
    for worker in workers:
        if worker.online and worker.cls.ad_known and not worker.cls.distance_seconds:
            ads.setdefault(supply.of(worker), []).append(worker.ad)
    alike: dict[str, tuple[list[ClassSupply], list[WorkerAd]]] = {}
    for cls, said in ads.items():
        classes, all_said = alike.setdefault(_id(cls.base, cls.cls.start), ([], []))
        classes.append(cls)
        all_said.extend(said)
    found: list[_Group] = []
    for id, (classes, all_said) in alike.items():
        common = classes[0].cls
        capacity = known(common.capacity)
        group = _Group(id, _common_ad(all_said, capacity, common.tags, common.start), capacity)
        group.classes = classes
        found.append(group)
    return found


@lru_cache(maxsize=4096)
def _id(base: ClassKey, start: str) -> str:
    tags, capacity, (indexed, shared) = base
    common = (sorted(tags), capacity, sorted(indexed), sorted(shared), start)
    return hashlib.sha256(msgspec.json.encode(common)).hexdigest()[:ID_DIGITS]


def _common_ad(
    ads: list[WorkerAd], capacity: Amounts, tags: Collection[str], start: str
) -> WorkerAd:
    """The ad that says what all of these say; they agree in assets, tags and `start`."""
    first, others = ads[0], ads[1:]
    attributes = {
        name: value
        for name, value in first.attributes.items()
        if all(_is_same(other.attributes.get(name), value) for other in others)
    }
    return WorkerAd(
        assets=natural(capacity),
        units={asset: _common_units(asset, ads) for asset in first.units},
        shared=tuple(sorted(first.shared)),
        tags=tuple(sorted(tags)),
        os=_if_same([ad.os for ad in ads]),
        arch=_if_same([ad.arch for ad in ads]),
        version=_if_same([ad.version for ad in ads]),
        attributes=attributes,
        start=start,
    )


def _is_same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other  # 1 is not true


def _if_same(texts: list[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else ""


def _common_units(asset: str, ads: list[WorkerAd]) -> tuple[AssetUnit, ...]:
    """Units with numbers for ids, and what is known of each if all workers have such units."""
    kinds = {tuple(msgspec.structs.replace(u, id="") for u in ad.units[asset]) for ad in ads}
    units = ads[0].units[asset]
    if len(kinds) > 1:
        return tuple(AssetUnit(str(place)) for place in range(len(units)))
    return tuple(msgspec.structs.replace(u, id=str(place)) for place, u in enumerate(units))
