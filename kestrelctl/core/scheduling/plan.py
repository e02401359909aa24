"""A plan: which tasks go where, and which stay unmet. Pure: it changes nothing that it reads.

Filter (which classes can run a shape), fit (how many tasks a worker has room for), order (the first
job that fits), assign (the least flexible classes first, and in rounds, so that no worker of these
is filled before the others have anything; a job with a `rank` gets nothing of a class while one
that it prefers has room, and then flexibility does not count).
`attempts.hand_out` carries a plan out. What the pool lacks for the rest is `shortage`'s question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Job, Order
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.claim import Claim
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.offer import Offer
from kestrelctl.core.scheduling.supply import ClassSupply, Supply

#: So many classes are told apart by rank in one plan; those behind them are filled side by side,
#: the higher ranks first.
MOST_RANKS = 16


class Assignment:
    """The next `tasks` tasks of a job go to a worker, each with this claim."""

    __slots__ = ("claim", "job", "tasks")

    def __init__(self, job: Job, tasks: int, claim: Claim) -> None:
        self.job = job
        self.tasks = tasks
        self.claim = claim


class Plan:
    """What to do about the demand of a moment. It is good until the pool changes.

    Attributes:
        assignments: for each worker, in the order in which it shall get them.
        sated: workers that were looked at and have room for nothing that is left.
    """

    __slots__ = ("_lines", "assignments", "sated")

    def __init__(self, lines: dict[Shape, Line]) -> None:
        self.assignments: dict[Worker, list[Assignment]] = {}
        self.sated: list[Worker] = []
        self._lines = lines

    def assign(self, worker: Worker, job: Job, tasks: int, claim: Claim) -> None:
        """Adds tasks of a job to what a worker shall get."""
        known = self.assignments.setdefault(worker, [])
        if known and known[-1].job is job:
            known[-1].tasks += tasks
        else:
            known.append(Assignment(job, tasks, claim))

    def unmet(self) -> dict[Shape, int]:
        """How many tasks of each shape stay without a worker."""
        left = {shape: line.left_in_all() for shape, line in self._lines.items()}
        return {shape: tasks for shape, tasks in left.items() if tasks}


class Line:
    """The jobs of one shape in order, less what a plan has given away.

    Attributes:
        members: online workers that could run its tasks.
        job: the first that has tasks left; None at the end.
        order: where that job comes among those of other shapes.
        left: how many of its tasks may still be given away.
        waiting: how many of its tasks wait, limits not considered.
        ranks: of classes, the lowest first: those from the last on may get its tasks; none is left
            when all may.
    """

    __slots__ = ("_jobs", "_place", "job", "left", "members", "order", "ranks", "waiting")

    def __init__(self, jobs: Sequence[tuple[Order, Job]], members: int) -> None:
        self.members = members
        self.ranks: list[float] = []
        self._jobs = jobs
        self._place = -1
        self.order: Order = ()
        self.left = self.waiting = 0
        self.job: Job | None = None
        self._advance()

    def _advance(self) -> None:
        self._place += 1
        if self._place == len(self._jobs):
            self.job = None
            return
        self.order, self.job = self._jobs[self._place]
        self.left = takeable(self.job)
        self.waiting = self.job.waiting

    def take(self, n: int) -> None:
        """Gives n tasks of the first job away."""
        self.left -= n
        self.waiting -= n
        if self.left <= 0:
            self._advance()

    def left_in_all(self) -> int:
        """How many tasks may still be given away, of all its jobs."""
        if self.job is None:
            return 0
        return self.left + sum(takeable(job) for _, job in self._jobs[self._place + 1 :])


def plan(demand: Demand, supply: Supply, config: Config, now: float) -> Plan:
    """Plans for all that waits and everybody who may take it.

    Args:
        now: seconds since the epoch.
    """
    classes = supply.classes()
    lines = {shape: Line(jobs, _members(shape, classes)) for shape, jobs in demand.groups()}
    found = Plan(lines)
    # In the first round each is made when its turn comes: of many idle workers few are looked at.
    offers: dict[ClassSupply, Iterable[Offer]] = {
        cls: (Offer(worker, config, now) for worker in cls.hungry.values())
        for cls in classes
        if cls.hungry
    }
    ranked = [_rank(line, shape, offers) for shape, line in lines.items() if shape.rank]
    if not lines:
        return found
    if ranked:
        shape = min((s for s in lines if s.rank), key=lambda s: lines[s].order)
        tiers = [sorted(offers, key=lambda cls: -_rank_of(cls, shape))]
    else:
        tiers = supply.flexibility.tiers(offers, lines)
    for tier in tiers:
        progress = True
        while progress:
            progress = False
            for cls in tier:
                pairs = _pairs(cls, lines)
                still: list[Offer] = []
                for offer in offers[cls]:
                    if all(line.job is None for line in lines.values()):
                        return found
                    fed = _feed(found, offer, pairs, config)
                    if fed is None:
                        found.sated.append(offer.worker)
                    else:
                        still.append(offer)
                        progress = progress or fed
                offers[cls] = still
            if not progress:
                behind = [line for line in ranked if line.ranks and line.job is not None]
                for line in behind:
                    line.ranks.pop()
                progress = bool(behind)
    return found


def _rank(line: Line, shape: Shape, classes: Iterable[ClassSupply]) -> Line:
    """Has a line go to the classes that its jobs prefer first."""
    found = {_rank_of(cls, shape) for cls in classes if isinstance(cls.terms(shape), Terms)}
    line.ranks = sorted(found)[-MOST_RANKS:]
    return line


def _rank_of(cls: ClassSupply, shape: Shape) -> float:
    terms = cls.terms(shape)
    return terms.rank if isinstance(terms, Terms) else -inf


def _members(shape: Shape, classes: Iterable[ClassSupply]) -> int:
    return sum(cls.members for cls in classes if isinstance(cls.terms(shape), Terms))


def _pairs(cls: ClassSupply, lines: dict[Shape, Line]) -> list[tuple[Line, Terms]]:
    """What workers of a class can run, and on what terms."""
    found = []
    for shape, line in lines.items():
        terms = cls.terms(shape)
        if isinstance(terms, Terms):
            found.append((line, terms))
    return found


def _feed(
    found: Plan, offer: Offer, pairs: Iterable[tuple[Line, Terms]], config: Config
) -> bool | None:
    """Gives a worker a share of the first job that it has room for.

    Returns:
        Whether it got one: not yet if the job's rank prefers others; None if there is none.
    """
    best: tuple[Line, Terms, Job] | None = None
    best_room = 0
    kept = offer.worker.kept_for
    for line, terms in pairs:
        job = line.job
        if job is None or (best is not None and line.order > best[0].order):
            continue
        if kept is not None and job.shape is not kept.shape:
            continue
        room = offer.room_for(job, line.waiting, line.members, terms, config)
        if offer.wants is not None:
            room = min(room, offer.wants)
        if room:
            best, best_room = (line, terms, job), room
    if best is None:
        return None
    line, terms, job = best
    if line.ranks and terms.rank < line.ranks[-1]:
        return False
    share = max(1, line.waiting // (2 * line.members))
    n = min(best_room, share, line.left)
    offer.give(job, n, terms.claim)
    found.assign(offer.worker, job, n, terms.claim)
    line.take(n)
    return True
