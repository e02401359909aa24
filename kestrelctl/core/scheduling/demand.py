"""The demand: jobs with tasks that may be handed out, in the order in which they get workers.

The highest priority goes first; at one priority, the user who runs the least for his share
(`jobs.fair_share`); of one user, the job that came first. The jobs of one user that wait at one
priority are a *turn*. The place of a turn changes with each task that begins or ends anywhere;
nothing has to be moved for that: turns are few, and a plan sorts them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import attrgetter, itemgetter

from kestrelctl.core.jobs.fair_share import Sharer, Sharers
from kestrelctl.core.jobs.gates import takeable
from kestrelctl.core.jobs.job import Job, Order
from kestrelctl.core.jobs.tokens import Tokens
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.shape import Shape, ShapeKey, shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.matching_ads import JOB_ATTRIBUTES, job_facts
from kestrelctl.core.model.worker.significance import Facts, Significance

#: At least so many shapes that nobody has any more may be known.
SPARE_SHAPES = 64

_order = attrgetter("order")
_entry_place = itemgetter(0)

#: Jobs of one user, priority and shape, each with its place before it. Several lines of one job may
#: be among them, if they ask alike: these have one place.
Line = list[tuple[Order, Job]]


class Turn:
    """The jobs of one user that wait at one priority.

    Attributes:
        lines: shape -> his jobs that ask like that, in order.
        shapes: the set of these shapes.
        short: those of them whose first job has short tasks: these may be queued at workers.
        let_in: whether workers were asked once to make room for it.
    """

    __slots__ = ("let_in", "lines", "priority", "shapes", "sharer", "short")

    def __init__(self, priority: int, sharer: Sharer) -> None:
        self.priority = priority
        self.sharer = sharer
        self.lines: dict[int, Line] = {}
        self.shapes = 0
        self.short = 0
        self.let_in = False

    @property
    def order(self) -> tuple[int, float, float]:
        """Its present place among other turns: the lowest goes first."""
        return (-self.priority, self.sharer.held_for_share, self.sharer.handed)


class Demand:
    """Jobs with takeable tasks, by priority, user and shape.

    Workers are compared with shapes, never with jobs, however many jobs wait.

    Args:
        sharers: all users.
        config: says what short tasks are.
        tokens: of the whole pool.

    Attributes:
        significance: of the attributes of jobs.
        shapes: the known shapes by their place in sets of shapes.
        of_tokens: those of them that ask for tokens.
        waiting: the set of those for which something waits.
        spanning: the set of those whose jobs run on several workers at once.
    """

    def __init__(self, sharers: Sharers, config: Config, tokens: Tokens) -> None:
        self.sharers = sharers
        self.tokens = tokens
        self._config = config
        self._turns: dict[tuple[int, str], Turn] = {}
        self._by_key: dict[ShapeKey, Shape] = {}
        self._shapes_at_most = 2 * SPARE_SHAPES
        self.shapes: list[Shape] = []
        self.of_tokens: list[Shape] = []
        self.waiting = self.spanning = 0
        self._lines_of: dict[int, int] = {}
        self.significance = Significance(JOB_ATTRIBUTES)

    def __bool__(self) -> bool:
        return bool(self._turns)

    def turns(self) -> Iterable[Turn]:
        """Returns the turns of all users at all priorities."""
        return self._turns.values()

    def jobs(self) -> Iterator[Job]:
        """Every job that is in."""
        for turn in self._turns.values():
            for line in turn.lines.values():
                for _, job in line:
                    yield job

    def in_order(self) -> Iterator[Job]:
        """The same jobs in the order of the queue, found while the caller iterates."""
        turns = sorted(self._turns.values(), key=_order)
        for _, equal in groupby(turns, key=_order):
            lines = [line for turn in equal for line in turn.lines.values()]
            for _, job in lines[0] if len(lines) == 1 else merge(*lines, key=_entry_place):
                yield job

    def waiting_shapes(self) -> list[Shape]:
        """Every shape for which something waits."""
        return [shape for shape in self.shapes if shape.bit & self.waiting]

    def order(self, job: Job) -> Order:
        """Returns the present place of a job among all jobs: the lowest goes first."""
        whole = job.whole
        sharer = whole.sharer
        return (-whole.precedence, sharer.held_for_share, sharer.handed, *_place(whole))

    def update(self, job: Job) -> bool:
        """Puts a job in, takes it out, or moves it, as it now is.

        Returns:
            Whether another job is the first of its line now, though the one before has not gone
            out: then workers that had no room for that one may have room for this one.
        """
        job.takeable = takeable(job)
        if job.takeable <= 0:
            if job.place is not None:
                self._remove(job)
            return False
        if job.place is None:
            return self._insert(job)
        turn = self._turn(job)
        line = turn.lines[job.shape.bit]
        if _place(job.whole) == job.place:
            if line[0][1] is job:
                self._look_at_head(turn, job.shape)
            return False
        first = line[0][1]
        self._remove(job)
        self._insert(job)
        return self._turn(job).lines[job.shape.bit][0][1] is not first

    def _turn(self, job: Job) -> Turn:
        return self._turns[job.precedence, job.owner]

    def _insert(self, job: Job) -> bool:
        """Puts a job in; returns whether it is the first of its line."""
        key = (job.precedence, job.owner)
        turn = self._turns.get(key)
        if turn is None:
            sharer = job.sharer
            turn = self._turns[key] = Turn(key[0], sharer)
            if not sharer.is_active:
                self.sharers.welcome(sharer)
            sharer.turns += 1
        bit = job.shape.bit
        line = turn.lines.setdefault(bit, [])
        if not turn.shapes & bit:
            turn.shapes |= bit
            self.waiting |= bit
            self._lines_of[bit] = self._lines_of.get(bit, 0) + 1
        job.place = _place(job.whole)
        insort(line, (job.place, job), key=_entry_place)
        if line[0][1] is not job:
            return False
        self._look_at_head(turn, job.shape)
        return True

    def _remove(self, job: Job) -> None:
        turn, bit = self._turn(job), job.shape.bit
        line = turn.lines[bit]
        at = bisect_left(line, job.place, key=_entry_place)
        while line[at][1] is not job:
            at += 1
        del line[at]
        job.place = None
        if line:
            self._look_at_head(turn, job.shape)
            return
        del turn.lines[bit]
        self._lines_of[bit] -= 1
        if not self._lines_of[bit]:
            del self._lines_of[bit]
            self.waiting &= ~bit
        turn.shapes &= ~bit
        turn.short &= ~bit
        if not turn.shapes:
            del self._turns[turn.priority, turn.sharer.name]
            turn.sharer.turns -= 1

    def _look_at_head(self, turn: Turn, shape: Shape) -> None:
        """Notes whether the first job of a line has short tasks."""
        if is_short(turn.lines[shape.bit][0][1], self._config):
            turn.short |= shape.bit
        else:
            turn.short &= ~shape.bit

    # -- shapes ------------------------------------------------------------------------------------

    def shape_of(self, spec: JobSpec, owner: str) -> Shape:
        """The one shape object for jobs that ask like this one."""
        key = shape_key(spec, self.facts_of(spec, owner), self.tokens.names)
        shape = self._by_key.get(key)
        if shape is None:
            request, requires, requirements, rank, facts, seconds, tokens, span, stays = key
            shape = Shape(
                dict(request),
                requires,
                spec.request,
                requirements,
                rank,
                facts,
                seconds,
                dict(tokens),
                span,
                stays=stays,
            )
            shape.bit = 1 << len(self.shapes)
            self._by_key[key] = shape
            self.shapes.append(shape)
            if tokens:
                self.of_tokens.append(shape)
            if span > 1:
                self.spanning |= shape.bit
        return shape

    def facts_of(self, spec: JobSpec, owner: str) -> Facts:
        """The facts of a job's ad that expressions ask for, beside the job's own request."""
        return self.significance.of(job_facts(spec, owner)) if self.significance else ()

    def reshape(self, jobs: Iterable[Job]) -> None:
        """Gives jobs their new shapes after other attributes or tokens have come to matter."""
        for line in (line for job in jobs for line in job.lines()):
            shape = self.shape_of(line.asks, line.owner)
            if shape is line.shape:
                continue
            queued = line.place is not None
            if queued:
                self._remove(line)
            line.shape = shape
            if queued:
                self._insert(line)

    def too_many_shapes(self) -> bool:
        """Whether it is time to look for shapes that nobody has any more."""
        return len(self._by_key) > self._shapes_at_most

    def forget_shapes(self, used: set[Shape]) -> None:
        """Drops all shapes but these, which get other places in sets of shapes.

        Whoever keeps such sets has to forget them (`Supply.forget_shapes`).
        """
        self._by_key = {key: shape for key, shape in self._by_key.items() if shape in used}
        self._shapes_at_most = 2 * max(len(self._by_key), SPARE_SHAPES)
        waiting = [
            (turn, [(shape, turn.lines[shape.bit]) for shape in self.shapes_of(turn)])
            for turn in self._turns.values()
        ]
        self.shapes = list(self._by_key.values())
        self.of_tokens = [shape for shape in self.shapes if shape.tokens]
        self.waiting = self.spanning = 0
        for place, shape in enumerate(self.shapes):
            shape.bit = 1 << place
            if shape.span > 1:
                self.spanning |= shape.bit
        self._lines_of = {}
        for turn, lines in waiting:
            turn.lines = {shape.bit: line for shape, line in lines}
            turn.shapes = turn.short = 0
            for shape, _ in lines:
                turn.shapes |= shape.bit
                self.waiting |= shape.bit
                self._lines_of[shape.bit] = self._lines_of.get(shape.bit, 0) + 1
                self._look_at_head(turn, shape)

    def shapes_of(self, turn: Turn) -> list[Shape]:
        """The shapes that a turn asks for."""
        return [self.shapes[bit.bit_length() - 1] for bit in turn.lines]


def is_short(job: Job, config: Config) -> bool:
    """Whether a job's tasks are expected to be short: then some may wait at a worker for others.

    A task that holds tokens never waits there: others could use these meanwhile. Nor does a member
    of a job that spans workers: the other members would wait for it.
    """
    if job.shape.tokens or job.shape.span > 1:
        return False
    seconds = job.mean_seconds
    if seconds is None:
        seconds = job.expected_seconds
    return seconds is not None and seconds < config.short_seconds


def _place(job: Job) -> Order:
    """Returns the place of a job among those of its user and priority.

    First come, first served; but a job whose tasks keep failing lets others go first.
    """
    return (job.line, job.id)
