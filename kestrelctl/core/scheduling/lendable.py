"""What the pool could lend: its own workers, by what they have in common, and what is free of them.

It is asked for many times a second. What workers have in common is found anew only when one comes,
goes, or says something else of itself; what is free is a walk over those that may take tasks, only
when something has changed at one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache

import msgspec

from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import ClassKey
from kestrelctl.core.model.ad import AssetUnit, WorkerAd
from kestrelctl.core.model.assets import Amounts, known, natural
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.scheduling.own_waiting import OwnWaiting
from kestrelctl.core.scheduling.supply import ClassSupply, Supply

#: Hexadecimal digits of a class's id.
ID_DIGITS = 12
#: Workers that leave sooner have nothing to lend: nobody could do much with it.
LEAST_STAY_SECONDS = 60.0


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
        self._version = self._stirred = -1
        self._groups: list[_Group] = []
        self._counted: list[_Counted] = []

    def find(
        self,
        workers: Collection[Worker],
        shapes: Sequence[Shape],
        waiting: Iterable[OwnWaiting],
        now: float,
        *,
        starts: bool,
    ) -> list[LendableClass]:
        """What the pool could lend now, by class.

        Args:
            workers: all that the pool knows.
            shapes: all shapes by their place in sets of shapes.
            waiting: of the pool's own.
            now: seconds since the epoch.
            starts: whether anything is handed out now; if not, nothing is free.
        """
        if self._version != self._supply.version:
            self._version = self._supply.version
            self._groups = _grouped(self._supply, workers)
            self._stirred = -1
        if self._stirred != self._supply.stirred:
            self._stirred = self._supply.stirred
            self._counted = [_count(group, now) for group in self._groups]
            if any(counted.changes_by_itself for counted in self._counted):
                self._stirred = -1
        tasks: dict[int, int] = {}
        old: dict[int, int] = {}
        for each in waiting:
            bit = each.shape.bit
            tasks[bit] = tasks.get(bit, 0) + each.tasks
            if each.old:
                old[bit] = old.get(bit, 0) + each.old
        wanted = sum(tasks)
        found: list[LendableClass] = []
        for group, counted in zip(self._groups, self._counted, strict=True):
            if not counted.machines:
                continue
            usable = 0
            if wanted:
                for cls in group.classes:
                    usable |= cls.usable(shapes, wanted)
            found.append(
                LendableClass(
                    id=group.id,
                    ad=group.ad,
                    machines=counted.machines,
                    free=natural(counted.free) if starts else {},
                    whole=natural({n: a * counted.machines for n, a in group.capacity.items()}),
                    wanted=sum([n for bit, n in tasks.items() if bit & usable]),
                    overdue=sum([n for bit, n in old.items() if bit & usable]),
                )
            )
        return found


class _Group:
    """Classes of workers that only what expressions ask just now, or a policy, tells apart.

    Attributes:
        ad: what all workers of these say.
        capacity: what each of them has, as far as that is known.
    """

    __slots__ = ("ad", "capacity", "classes", "id")

    def __init__(self, id: str, ad: WorkerAd, capacity: Amounts) -> None:
        self.id = id
        self.ad = ad
        self.capacity = capacity
        self.classes: list[ClassSupply] = []


class _Counted:
    """What workers that may take tasks have free together.

    Attributes:
        machines: how many these are.
        changes_by_itself: whether one of them leaves at some time, and has nothing to lend then.
    """

    __slots__ = ("changes_by_itself", "free", "machines")

    def __init__(self, names: Iterable[str]) -> None:
        self.machines = 0
        self.free: Amounts = dict.fromkeys(names, 0)
        self.changes_by_itself = False


def _count(group: _Group, now: float) -> _Counted:
    found = _Counted(group.capacity)
    idle = 0
    free = found.free
    names = list(group.capacity)
    for cls in group.classes:
        for crowd in (cls.hungry, cls.parked):
            for worker in crowd.values():
                if worker.kept_for is not None:
                    continue
                found.machines += 1
                if worker.ad.ends_at is not None:
                    found.changes_by_itself = True
                    if _leaves_soon(worker, now):
                        continue
                if worker.wants == 0:
                    continue
                held = worker.held
                if not held:
                    idle += 1
                    continue
                left = worker.free
                # What waits there is first; and no task goes without a processor.
                if left.get("cpus", 0) > 0 and len(held) == worker.running:
                    for name in names:
                        amount = left[name]
                        if amount > 0:  # below zero is what is free after a shrink
                            free[name] += amount
    if idle:
        for name, amount in group.capacity.items():
            free[name] += amount * idle
    return found


def _leaves_soon(worker: Worker, now: float) -> bool:
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
    """What all of these ads say. Workers of one class agree in assets, tags and `start`."""
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
