"""The workers that might take tasks: by class, and of each class those that are worth a look."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable, Sequence

from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import ClassKey, WorkerClass, class_key
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.neighbour import distance_seconds_of
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.matching_ads import (
    WORKER_ATTRIBUTES,
    own_attributes,
    worker_facts,
)
from kestrelctl.core.model.worker.significance import Facts, Significance
from kestrelctl.core.policies.in_force import PoliciesInForce
from kestrelctl.core.policies.named_policy import NamedPolicy
from kestrelctl.core.scheduling.fitting import AskedFitting, Fitting
from kestrelctl.core.scheduling.match import Terms, match

#: At least so many classes that nobody has any more may be known.
SPARE_CLASSES = 64
#: The most workers that are remembered by name because they changed since somebody looked.
MOST_STIRRED = 1000

_NO_AD: ClassKey = (frozenset(), (), (frozenset(), frozenset()))


class ClassSupply:
    """The workers of one class.

    Args:
        asked: the shapes of the pool, for all classes.
        on_failure: called with a shape whose expressions cannot be evaluated here, and why.
        number: the higher, the later it was first seen.

    Attributes:
        hungry: those that may be able to take tasks, longest waiting first.
        parked: those that could take nothing of what waited; they are looked at again when
            something else waits.
        members: how many are online.
        base: the class's key without what expressions ask.
    """

    __slots__ = (
        "_asked",
        "_judged",
        "_on_failure",
        "_table",
        "_terms",
        "_usable",
        "base",
        "cls",
        "hungry",
        "members",
        "number",
        "parked",
    )

    def __init__(
        self,
        cls: WorkerClass,
        base: ClassKey,
        asked: AskedFitting,
        on_failure: Callable[[Shape, Refusal], None],
        number: int = 0,
    ) -> None:
        self.cls = cls
        self.number = number
        self._asked = asked
        self._on_failure = on_failure
        self.base = base
        self.hungry: dict[str, Worker] = {}
        self.parked: dict[str, Worker] = {}
        self.members = 0
        self._terms: dict[Shape, Terms | Refusal] = {}
        self._judged = self._usable = 0
        self._table: Fitting | None = None

    def terms(self, shape: Shape) -> Terms | Refusal:
        """The terms on which tasks of the shape can run here, or why they never can; kept."""
        known = self._terms.get(shape)
        if known is None:
            known = self._terms[shape] = match(shape, self.cls)
            if isinstance(known, Refusal) and known.puts_on_hold:
                self._on_failure(shape, known)
        return known

    def usable(self, shapes: Sequence[Shape], wanted: int) -> int:
        """Returns those of a set of shapes whose tasks can run here.

        Args:
            shapes: all shapes by their place in such sets.
        """
        unknown = wanted & ~self._judged
        if unknown:
            self._judge(shapes, unknown)
        return self._usable & wanted

    def _judge(self, shapes: Sequence[Shape], unknown: int) -> None:
        self._judged |= unknown
        if self.cls.as_asked:
            self._asked.learn(shapes)
            if not self.cls.start:
                self._usable |= unknown & self._asked.runs_on(self.cls)
                unknown &= ~self._asked.by_size
        while unknown:
            bit = unknown & -unknown
            unknown ^= bit
            if isinstance(self.terms(shapes[bit.bit_length() - 1]), Terms):
                self._usable |= bit
                self._table = None

    def fitting(self, free: Amounts) -> int:
        """The shapes, among those that `usable` was asked about, of which one task fits.

        Args:
            free: what a worker of this class has free.
        """
        return self.table().into(free) & self._usable

    def table(self) -> Fitting:
        """The shapes that `usable` was asked about, by what they are charged here; others may be
        among them.
        """
        return self._asked.table if self.cls.as_asked else self._own_table()

    def _own_table(self) -> Fitting:
        if self._table is None:
            known = ((shape.bit, terms) for shape, terms in self._terms.items())
            self._table = Fitting(
                (bit, terms.claim)
                for bit, terms in known
                if isinstance(terms, Terms) and bit & self._usable
            )
        return self._table

    def shapes(self) -> list[Shape]:
        """Every shape that was asked about."""
        return list(self._terms)

    def forget_shapes(self, used: set[Shape]) -> None:
        """Drops what is kept about all shapes but these."""
        self._judged = self._usable = 0
        self._table = None
        self._terms = {shape: known for shape, known in self._terms.items() if shape in used}


class Supply:
    """All classes of workers.

    Attributes:
        significance: of the attributes of workers.
        policies: what tasks are charged on which of them.
        version: changes each time that a worker of the pool's own comes or goes, or its ad or class
            changes.
        stirred: the workers of the pool's own, by address, that may have more or less free, or may
            or may not take tasks, other than when somebody last looked and cleared this. When they
            are too many, `version` changes instead.
        failed: shapes whose expressions cannot be evaluated beside workers that are or were there;
            and how they fail.
        newly_failed: those of them that somebody has still to look at, who clears it.
    """

    def __init__(self) -> None:
        self.significance = Significance(WORKER_ATTRIBUTES)
        self.policies = PoliciesInForce()
        self.version = 0
        self.stirred: dict[str, Worker] = {}
        self.failed: dict[Shape, Refusal] = {}
        self.newly_failed: set[Shape] = set()
        self._by_key: dict[tuple[ClassKey, str, Facts, NamedPolicy | None, float], ClassSupply] = {}
        self._by_class: dict[WorkerClass, ClassSupply] = {}
        self._classes_seen = 0
        self._present: list[ClassSupply] = []
        self._guessed: list[ClassSupply] = []
        self._asked = AskedFitting()
        self._classes_at_most = 2 * SPARE_CLASSES
        self._alike: dict[int, int] = {}
        self._alike_in = 0
        self._able: dict[int, int] = {}

    def classes(self) -> Collection[ClassSupply]:
        """Every class that has, or lately had, a worker; the view changes with the pool."""
        return self._by_class.values()

    def present(self) -> Sequence[ClassSupply]:
        """Every class that has workers online, in the order in which they were first seen."""
        return self._present

    def guessed(self) -> Sequence[ClassSupply]:
        """Every class with workers online that has assets of unknown capacity."""
        return self._guessed

    def of(self, worker: Worker) -> ClassSupply:
        """The class of a worker."""
        return self._by_class[worker.cls]

    def of_class(self, cls: WorkerClass) -> ClassSupply:
        """The workers of a class."""
        return self._by_class[cls]

    def class_of(self, ad: WorkerAd | None, jid: str) -> WorkerClass:
        """The one class object for workers that offer what this ad says.

        Args:
            ad: None for a worker of which only the address is known.
        """
        return self._class(_NO_AD if ad is None else class_key(ad), ad, jid)

    def _class(self, base: ClassKey, ad: WorkerAd | None, jid: str) -> WorkerClass:
        start = ""
        facts: Facts = ()
        policy: NamedPolicy | None = None
        if ad is not None:
            start = ad.start
            facts = self.facts_of(ad, jid)
            policy = self.policies.of(ad, jid)
        distance_seconds = distance_seconds_of(ad, jid)
        key = (base, start, facts, policy, distance_seconds)
        found = self._by_key.get(key)
        if found is None:
            cls = WorkerClass(
                base[0],
                dict(base[1]),
                base[2],
                ad_known=ad is not None,
                start=start,
                facts=facts,
                policy=policy,
                distance_seconds=distance_seconds,
            )
            self._classes_seen += 1
            found = ClassSupply(cls, base, self._asked, self._fail, self._classes_seen)
            self._by_key[key] = self._by_class[cls] = found
        return found.cls

    def _fail(self, shape: Shape, refusal: Refusal) -> None:
        self.failed[shape] = refusal
        self.newly_failed.add(shape)

    def facts_of(self, ad: WorkerAd, jid: str) -> Facts:
        """The facts of a worker's ad that expressions ask for, beside its assets and tags."""
        if ad.attributes or ad.properties:
            self.significance.known.update(name.lower() for name in own_attributes(ad))
        if not self.significance:
            return ()
        return self.significance.of(own_attributes(ad) | worker_facts(ad, jid))

    def reclass(self, workers: Iterable[Worker]) -> None:
        """Gives workers their new classes after other attributes or policies came to matter."""
        for worker in workers:
            old = self.of(worker)
            if not old.cls.ad_known:
                continue
            cls = self._class(old.base, worker.counted_ad, worker.jid)
            if cls is old.cls:
                continue
            new = self._by_class[cls]
            for crowd, other in ((old.hungry, new.hungry), (old.parked, new.parked)):
                if crowd.pop(worker.jid, None) is not None:
                    other[worker.jid] = worker
            self.count(old.cls, -worker.online)
            self.count(cls, worker.online)
            worker.cls = cls

    # -- workers -----------------------------------------------------------------------------------

    def count(self, cls: WorkerClass, online: int) -> None:
        """Counts so many more workers of a class as online; fewer if the number is below zero."""
        supply = self._by_class[cls]
        before = supply.members
        supply.members = before + online
        if not before and online > 0:
            insort(self._present, supply, key=_number)
            if cls.unknown:
                insort(self._guessed, supply, key=_number)
        elif before and not supply.members:
            self._present.remove(supply)
            if cls.unknown:
                self._guessed.remove(supply)
        self._alike_in = 0
        self.note_change(cls)

    def note_change(self, cls: WorkerClass) -> None:
        """Notes that a worker of a class says something else of itself."""
        if not cls.distance_seconds:
            self.version += 1

    def note_use(self, worker: Worker) -> None:
        """Notes that a worker may have more or less free than before."""
        if worker.cls.distance_seconds:
            return
        self.stirred[worker.jid] = worker
        if len(self.stirred) > MOST_STIRRED:
            self.stirred.clear()
            self.version += 1

    def able(self, shapes: Sequence[Shape], wanted: int, bit: int) -> int:
        """Counts the workers online that could run tasks of a shape.

        Args:
            shapes: all shapes by their place in sets.
            wanted: a set of shapes that may be asked about next, this one among them.
        """
        if wanted & ~self._alike_in:
            # Workers are counted by what they can run of these: of many classes most are alike.
            self._alike_in = wanted
            self._able.clear()
            self._alike.clear()
            for supply in self._present:
                usable = supply.usable(shapes, wanted)
                self._alike[usable] = self._alike.get(usable, 0) + supply.members
        found = self._able.get(bit)
        if found is None:
            found = sum(members for usable, members in self._alike.items() if usable & bit)
            self._able[bit] = found
        return found

    def wake(self, worker: Worker) -> None:
        """Puts a worker among those that may be able to take tasks."""
        supply = self._by_class[worker.cls]
        supply.parked.pop(worker.jid, None)
        supply.hungry[worker.jid] = worker
        self.note_use(worker)

    def park(self, workers: Iterable[Worker]) -> None:
        """Sets workers aside, because they can take nothing of what waits now."""
        by_class = self._by_class
        for worker in workers:
            supply = by_class[worker.cls]
            if supply.hungry.pop(worker.jid, None) is not None:
                supply.parked[worker.jid] = worker

    def hide(self, worker: Worker) -> None:
        """Takes a worker out of the supply: it may take nothing at all."""
        supply = self.of(worker)
        supply.hungry.pop(worker.jid, None)
        supply.parked.pop(worker.jid, None)
        self.note_use(worker)

    def wake_for(self, shape: Shape) -> None:
        """Looks again at workers that could run tasks of a shape, because some came in."""
        for supply in self._present:
            if supply.parked and isinstance(supply.terms(shape), Terms):
                supply.hungry.update(supply.parked)
                supply.parked.clear()

    def move(self, worker: Worker, cls: WorkerClass) -> None:
        """Counts a worker, which `hide` has taken out before, for another class."""
        self.count(worker.cls, -worker.online)
        self.count(cls, worker.online)

    # -- classes -----------------------------------------------------------------------------------

    def too_many_classes(self) -> bool:
        """Whether it is time to look for classes that nobody has any more."""
        return len(self._by_key) > self._classes_at_most

    def forget_classes(self, used: set[WorkerClass]) -> None:
        """Drops all classes but these."""
        self._by_key = {key: found for key, found in self._by_key.items() if found.cls in used}
        self._by_class = {found.cls: found for found in self._by_key.values()}
        self._classes_at_most = 2 * max(len(self._by_key), SPARE_CLASSES)

    def forget_shapes(self, used: set[Shape]) -> None:
        """Drops what classes keep about all shapes but these."""
        self._alike_in = 0
        self._asked.forget()
        self.failed = {shape: why for shape, why in self.failed.items() if shape in used}
        for supply in self._by_class.values():
            supply.forget_shapes(used)


def _number(supply: ClassSupply) -> int:
    return supply.number
