"""Placements of idle pools to compare: first fit, best fit, flow, and the optimum.

All take the same instance and say how many tasks of each shape go to which worker. Time is not
limited and nothing runs yet; the more tasks are placed, the better.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from kestrelctl.core.scheduling.flow import Flow

Amounts = tuple[int, ...]


@dataclass(frozen=True)
class Shape:
    """Tasks that ask alike.

    Attributes:
        asks: of each asset.
        classes: of which the workers may run them.
    """

    tasks: int
    asks: Amounts
    classes: frozenset[int]


@dataclass(frozen=True)
class Instance:
    """A pool at a moment. Workers of a class are alike and have nothing to do.

    Attributes:
        workers: how many of each class.
        has: of each class, what a worker has of each asset.
        shapes: in the order in which their tasks wait.
    """

    workers: Sequence[int]
    has: Sequence[Amounts]
    shapes: Sequence[Shape]

    def total(self) -> list[int]:
        """What all workers together have of each asset."""
        pairs = list(zip(self.workers, self.has, strict=True))
        return [sum(n * has[asset] for n, has in pairs) for asset in range(len(self.has[0]))]

    def share(self, shape: Shape) -> float:
        """The largest share that one task takes of what the pool has of an asset."""
        return max(a / t for a, t in zip(shape.asks, self.total(), strict=True) if t)


#: (shape, class, worker of the class) -> tasks
Placement = Counter[tuple[int, int, int]]


class Books:
    """What each worker has left."""

    def __init__(self, instance: Instance) -> None:
        self.free = [
            [list(has) for _ in range(n)]
            for n, has in zip(instance.workers, instance.has, strict=True)
        ]
        self.placed: Placement = Counter()
        self.left = [shape.tasks for shape in instance.shapes]
        self._shapes = instance.shapes

    def room(self, shape: int, cls: int, worker: int) -> int:
        """How many tasks of a shape fit there still."""
        free, asks = self.free[cls][worker], self._shapes[shape].asks
        return min(f // a for f, a in zip(free, asks, strict=True) if a)

    def place(self, shape: int, cls: int, worker: int, most: int) -> int:
        """Puts tasks there, as many as fit and are left; returns how many."""
        n = min(most, self.left[shape], self.room(shape, cls, worker))
        if n > 0:
            self.charge(shape, cls, worker, n)
        return n

    def charge(self, shape: int, cls: int, worker: int, n: int) -> None:
        """Counts tasks as put there, or as taken from there."""
        free = self.free[cls][worker]
        for asset, amount in enumerate(self._shapes[shape].asks):
            free[asset] -= n * amount
        self.left[shape] -= n
        self.placed[shape, cls, worker] += n

    def fill(self, shape: int, classes: Iterable[int]) -> None:
        """Puts tasks of a shape at the workers of these classes, one class after another."""
        for cls in classes:
            for worker in range(len(self.free[cls])):
                if not self.left[shape]:
                    return
                self.place(shape, cls, worker, self.left[shape])


def first_fit(instance: Instance) -> Placement:
    """Each task goes to the first worker that has room."""
    books = Books(instance)
    for number, shape in enumerate(instance.shapes):
        books.fill(number, sorted(shape.classes))
    return books.placed


def best_fit(instance: Instance) -> Placement:
    """Each task goes to the least flexible class that has room: that which fewest shapes can use.

    Small tasks come first.
    """
    books = Books(instance)
    _best_fit(instance, books)
    return books.placed


def _best_fit(instance: Instance, books: Books) -> None:
    users = Counter(cls for shape in instance.shapes for cls in shape.classes)
    for number in _small_first(instance):
        classes = instance.shapes[number].classes
        books.fill(number, sorted(classes, key=lambda cls: (users[cls], cls)))


def _small_first(instance: Instance) -> list[int]:
    shares = [instance.share(shape) for shape in instance.shapes]
    return sorted(range(len(shares)), key=lambda number: shares[number])


def flow(instance: Instance) -> Placement:
    """The maximum flow, small tasks first, packed into workers; then what still finds room."""
    books = Books(instance)
    planned = _planned(instance)
    for cls in range(len(instance.workers)):
        _pack(instance, books, cls, {s: n for (s, c), n in planned.items() if c == cls})
    _best_fit(instance, books)
    if len(instance.total()) > 1:  # of one asset the flow leaves nothing over
        _exchange(instance, books)
    return books.placed


def _planned(instance: Instance) -> dict[tuple[int, int], int]:
    """How many tasks of which shape the flow sends to which class."""
    total = instance.total()
    dominant = []
    for shape in instance.shapes:
        shares = [a / t if t else 0.0 for a, t in zip(shape.asks, total, strict=True)]
        dominant.append(shares.index(max(shares)))
    capacities, arcs = {}, {}
    for number, shape in enumerate(instance.shapes):
        asset = dominant[number]
        for cls in shape.classes:
            n, has = instance.workers[cls], instance.has[cls]
            capacities[cls, asset] = n * has[asset]
            fits = min(h // a for h, a in zip(has, shape.asks, strict=True) if a)
            arcs[number, (cls, asset)] = fits * n * shape.asks[asset]
    found: Flow[int, tuple[int, int]] = Flow(capacities, arcs)
    for number in _small_first(instance):
        shape = instance.shapes[number]
        found.add({number: shape.tasks * shape.asks[dominant[number]]})
    return {
        (number, cls): amount // instance.shapes[number].asks[asset]
        for (number, (cls, asset)), amount in found.flows().items()
    }


def _pack(instance: Instance, books: Books, cls: int, tasks: dict[int, int]) -> None:
    """Puts what flows to a class into its workers, small tasks first, where least room is."""
    workers = range(instance.workers[cls])
    for number in _small_first(instance):
        left = tasks.get(number, 0)
        for worker in sorted(workers, key=lambda w: books.room(number, cls, w)):
            left -= books.place(number, cls, worker, left)


def _exchange(instance: Instance, books: Books) -> None:
    """Takes one or two tasks of a shape from a worker wherever that lets more run in all."""
    while any(books.left) and any(
        _let_more_run(instance, books, place, n)
        for place, there in list(books.placed.items())
        for n in (1, 2)
        if there >= n
    ):
        pass


def _let_more_run(
    instance: Instance, books: Books, place: tuple[int, int, int], taken: int
) -> bool:
    """Takes tasks from a place, fills it with what waits, and puts them elsewhere if it can."""
    moved, cls, worker = place
    before, kept = sum(books.left), Counter(books.placed)
    books.charge(moved, cls, worker, -taken)
    for number in _small_first(instance):
        if number != moved and cls in instance.shapes[number].classes:
            books.place(number, cls, worker, books.left[number])
    books.fill(moved, sorted(instance.shapes[moved].classes))
    if sum(books.left) < before:
        return True
    for where in {*kept, *books.placed}:
        if change := kept[where] - books.placed[where]:
            books.charge(*where, change)
    return False


def optimum(instance: Instance) -> int:
    """The most tasks that can be placed, by an exact solver (SciPy's `milp`, that is HiGHS).

    Workers of one asset are put together, if every task takes one of it: that leaves nothing over.
    """
    merge = all(shape.asks == (1,) for shape in instance.shapes)
    counts = [1] * len(instance.workers) if merge else instance.workers
    places = [
        (cls, tuple(has * (instance.workers[cls] if merge else 1) for has in instance.has[cls]))
        for cls, n in enumerate(counts)
        for _ in range(n)
    ]
    shapes = instance.shapes
    pairs = [(s, p) for s in range(len(shapes)) for p in range(len(places))]
    pairs = [(s, p) for s, p in pairs if places[p][0] in shapes[s].classes]
    if not pairs:
        return 0
    of_shape = np.array([s for s, _ in pairs])
    of_place = np.array([p for _, p in pairs])
    rows, most = [], []
    for s, shape in enumerate(shapes):
        rows.append((of_shape == s).astype(float))
        most.append(shape.tasks)
    for asset in range(len(instance.has[0])):
        asks = np.array([shapes[s].asks[asset] for s, _ in pairs])
        for p, (_, has) in enumerate(places):
            rows.append((of_place == p) * asks)
            most.append(has[asset])
    found = milp(
        -np.ones(len(pairs)),
        constraints=LinearConstraint(np.array(rows), -np.inf, most),
        integrality=np.ones(len(pairs)),
        bounds=Bounds(0, np.inf),
    )
    assert found.success, found.message
    return round(-found.fun)


def placed(placement: Placement) -> int:
    """How many tasks a placement places."""
    return sum(placement.values())


def must_be_valid(instance: Instance, placement: Placement) -> None:
    """Nothing is placed where it may not be, nor beyond what there is."""
    used: Counter[tuple[int, int, int]] = Counter()
    tasks: Counter[int] = Counter()
    for (s, cls, worker), n in placement.items():
        assert n >= 0
        assert not n or cls in instance.shapes[s].classes
        tasks[s] += n
        for asset, amount in enumerate(instance.shapes[s].asks):
            used[cls, worker, asset] += n * amount
    assert all(n <= instance.shapes[s].tasks for s, n in tasks.items())
    assert all(n <= instance.has[cls][asset] for (cls, _, asset), n in used.items())


# -- random instances ------------------------------------------------------------------------------


def one_asset(
    r: random.Random, classes: int = 25, shapes: int = 40, workers: int = 1000
) -> Instance:
    """Tasks of one processor that need tags; about as many as there are processors."""
    tags = range(6)
    offered = [frozenset(r.sample(tags, r.randint(0, 5))) for _ in range(classes)]
    cpus = [r.choice((1, 2, 4, 8, 16)) for _ in range(classes)]
    counts = [max(1, round(workers / classes))] * classes
    total = sum(n * each for n, each in zip(counts, cpus, strict=True))
    weights = [r.random() for _ in range(shapes)]
    found = []
    for weight in weights:
        asked = frozenset(r.sample(tags, r.choice((0, 1, 1, 2, 2, 3))))
        able = frozenset(c for c, has in enumerate(offered) if asked <= has)
        found.append(Shape(round(weight / sum(weights) * total), (1,), able))
    return Instance(counts, [(each,) for each in cpus], found)


def two_assets(r: random.Random) -> Instance:
    """A few workers, and tasks that differ in processors, memory (GiB) and tags."""
    classes = r.randint(2, 4)
    has = [(r.choice((4, 8, 16)), r.choice((8, 16, 32))) for _ in range(classes)]
    counts = [r.randint(1, 2) for _ in range(classes)]
    found = []
    for _ in range(r.randint(3, 6)):
        asks = (r.choice((1, 1, 2, 3, 4)), r.choice((1, 2, 3, 4, 6, 8)))
        able = frozenset(
            c
            for c in range(classes)
            if r.random() < 0.6 and all(a <= h for a, h in zip(asks, has[c], strict=True))
        )
        found.append(Shape(r.randint(2, 12), asks, able))
    return Instance(counts, has, found)
