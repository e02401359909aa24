"""A job in the manager's memory: a cursor into its array, and objects only for tasks under way."""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import msgspec

from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.pairing import TaskPairing
from kestrelctl.core.jobs.parents import Parents
from kestrelctl.core.jobs.recent import Recent
from kestrelctl.core.model.end_reason import NO_REASON, EndKind
from kestrelctl.core.model.index_ranges import IndexRanges
from kestrelctl.core.model.job.checkpoint import Checkpoint
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.light_spec import Apart, is_long, lightened
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.records import JobRecord
from kestrelctl.core.model.refusal import Refusal

#: Whoever submitted a job that took no longer sees its end himself.
SHORT_SECONDS = 60.0


def is_worth_a_mail(outcome: str, *, took_seconds: float, cancelled: bool) -> bool:
    """Whether an owner who has an address is sent word of the end of a job.

    He is if it went wrong or took long; whoever cancels a job knows.

    Args:
        took_seconds: from its submission to its end.
    """
    return not cancelled and (outcome == "failed" or took_seconds > SHORT_SECONDS)


#: The most refused attempts whose numbers a task remembers: they matter while a hello is under way.
MOST_REFUSED = 16
#: The most attempts that a task remembers as given up: the latest.
MOST_GIVEN_UP = 16
#: A task is suspected of ending its worker after so many losses.
SUSPECT_LOSSES = 2
#: The cause that stops a job that nobody cancels, as the reason of tasks that it ends.
DEADLINE = EndKind.DEADLINE.text()
#: The same for a job that spans workers, of which a member cannot run any more.
FAILED_MEMBER = EndKind.FAILED_MEMBER.text()
#: The same for a job that bears no more tasks that fail.
FAILED_TASKS = EndKind.FAILED_TASKS.text()
#: The same for a job of which a parent has ended otherwise than the job wants.
PARENT = EndKind.PARENT.text()
#: The bad tasks of most jobs, which have none. Nobody adds to this one.
_NONE = IndexRanges()
#: The most latencies that are kept of a job: the latest.
MOST_LATENCIES = 4096
#: The latencies of a job of which nothing has ended. Nobody adds to this one either.
_NOTHING_YET: deque[float] = deque(maxlen=0)
#: The place of a job among others: the lower goes first. It ends with the job's id.
Order = tuple[float, ...]


class Standing(enum.Enum):
    """The standing of a task that was dispatched at least once and has not ended."""

    READY = "ready"  #: in `Job.ready`
    BACKOFF = "backoff"  #: failed, and waits for its next attempt
    UNHEARD = "unheard"  #: was dispatched before a restart; its worker has not spoken yet
    UNDER_WAY = "under-way"  #: it has an attempt
    BEHIND = "behind"  #: was passed over: it waits for the task of its index of another job


class Gate(NamedTuple):
    """A limit that may hold back the waiting tasks of jobs that ask for it.

    Attributes:
        reason: the word for it in metrics and in `Refusal`: that of `Reason` that others use, too,
            or else the name of its option, whose row has the sentence for people.
        limit: how many of a job's tasks may be handed out now, as far as this gate is concerned;
            None for any number.
        tells: gives people the reason why it holds them back.
        always_told: whether it is told even if nothing of the job waits.
    """

    reason: str
    limit: Callable[[Job], int | None]
    tells: Callable[[Job, float], Refusal]
    always_told: bool = False


#: Functions of a job's features that look at it; called with the state of the pool and the job.
Moments: TypeAlias = tuple[Callable[[Any, "Job"], None], ...]


class Job:
    """An active job.

    Attributes:
        sharer: its owner, as the queue sees him.
        key: the key of its submission; empty if that had none.
        spec: what it is; without what only workers need, once the store has it (`lighten`).
        has_items: whether its tasks have items.
        is_long: whether its program has texts that only the store has.
        ready: tasks that were dispatched before and shall be dispatched again, the next one first.
            Those that ask for more than the job does are in `larger`.
        larger: how often a task has asked for more memory, and how long it is known to take at
            least -> the line of such tasks.
        running: its attempts under way.
        place: where it stands in the queue; None if it does not. The queue writes it.
        takeable: how many of its tasks may be handed out, as the queue has found; it writes that,
            too.
        precedence: its priority among all jobs, guests included; that of its spec.
        line: the id that it counts as in the queue: its own, until its tasks keep failing.
        failed_in_row: attempts that failed since one succeeded, or since a release.
        hold: who wants that nothing more of it is handed out; None if nobody does, and never set
            while it is cancelled.
        bad: the tasks that ended otherwise than done, and were not brought back. Those that a
            cancel of the whole job found beyond the cursor are not among them.
        parents: what it waits for; None for nothing, or nothing any more.
        pairing: the tasks that each of its tasks waits for; None for none.
        freed: whether its parents have all ended as it wants: it waits for none of them again.
        settled: the final states of parents that were forgotten while it waited.
        recovering: whether a restart has found it, and workers have yet to say what they run of it.
        stopped_by: what stopped it if nobody cancelled it: `DEADLINE`, `FAILED_MEMBER`,
            `FAILED_TASKS`, `PARENT`; else empty.
        waits_since: its submission, or when something of it began to wait again of which nothing
            had waited.
        served_at: when some of its tasks were last handed out, or the manager connected; 0 before.
        latest_account, latest_seconds: who last brought a task to a good end, and its run time.
        before_seconds: the run time of the last task before that by another account; None for none.
        recent: how its latest attempts went, and where; None before the first.
        mean_seconds: smoothed run time of its tasks; None until one has ended.
        latencies: what dispatch added to its latest tasks, in seconds: from hand-out to report,
            less the time in the worker's queue and the run time.
        happenings: how many records its story has.
        resumed: how many attempts were begun from a checkpoint.
        stores_files: whether its tasks put something into the file share.
        encoded_bytes: the size of its spec as JSON.
        gates: the gates of the features that it has, in order (`core.jobs.gates`).
        changed: the functions that look at it after each event that changed it (`core.features`).
    """

    __slots__ = (
        "_template",
        "bad",
        "before_seconds",
        "cancelling",
        "changed",
        "counts",
        "cursor",
        "encoded_bytes",
        "failed_in_row",
        "freed",
        "gates",
        "happenings",
        "has_items",
        "hold",
        "id",
        "is_long",
        "key",
        "larger",
        "latencies",
        "latest_account",
        "latest_seconds",
        "line",
        "live",
        "mean_seconds",
        "owner",
        "pairing",
        "parents",
        "place",
        "precedence",
        "ready",
        "recent",
        "recovering",
        "resumed",
        "running",
        "served_at",
        "settled",
        "shape",
        "sharer",
        "spec",
        "stopped_by",
        "stored",
        "stores_files",
        "submitted_at",
        "takeable",
        "waits_since",
    )

    def __init__(
        self,
        job_id: int,
        sharer: Sharer,
        spec: JobSpec,
        shape: Shape,
        submitted_at: float,
        encoded_bytes: int,
    ) -> None:
        self.id = job_id
        self.sharer = sharer
        self.owner = sharer.name
        self.key = ""
        self.spec = spec
        self.has_items = spec.items is not None
        self.is_long = is_long(spec)
        self._template: Template | None = None
        self.shape = shape
        self.submitted_at = submitted_at
        self.place: Order | None = None
        self.takeable = 0
        self.precedence = spec.precedence
        self.line = job_id
        self.failed_in_row = 0
        self.hold: Hold | None = None
        self.bad = _NONE
        self.parents: Parents | None = None
        self.pairing: TaskPairing | None = None
        self.freed = False
        self.settled: dict[int, str] = {}
        self.recovering = False
        self.waits_since = submitted_at
        self.served_at = 0.0
        self.cursor = 0
        self.live: dict[int, Task] = {}
        self.ready: OrderedDict[int, Task] = OrderedDict()
        self.larger: dict[tuple[int, float], LargerRequest] = {}
        self.running = 0
        self.counts = Counts()
        self.cancelling = False
        self.stopped_by = NO_REASON
        self.stored = False
        self.mean_seconds: float | None = None
        self.latest_account = ""
        self.latest_seconds: float | None = None
        self.before_seconds: float | None = None
        self.recent: Recent | None = None
        self.latencies = _NOTHING_YET
        self.happenings = 0
        self.resumed = 0
        self.stores_files = False
        self.encoded_bytes = encoded_bytes
        self.gates: tuple[Gate, ...] = ()
        self.changed: Moments = ()

    @property
    def whole(self) -> Job:
        """The job that this is a line of: itself."""
        return self

    def lighten(self, apart: Apart | None = None) -> None:
        """Lets go of what only workers need: from now on the store has it.

        Args:
            apart: what its spec lacks already, as the store has said.
        """
        if apart is not None:
            self.has_items |= apart.items
            self.is_long |= apart.program
        self.spec = lightened(self.spec)
        self._template = None

    def respecify(self, spec: JobSpec, encoded_bytes: int) -> None:
        """Gives it another spec: that of a service with more copies."""
        self.spec = spec
        self.encoded_bytes = encoded_bytes
        self._template = None

    @property
    def asks(self) -> JobSpec:
        """The job as the tasks of this line ask."""
        return self.spec

    def lines(self) -> list[Job]:
        """The lines in which tasks of it wait, each with a request of its own."""
        return [self, *self.larger.values()]

    def template(self, *, keep_logs: bool) -> Template:
        """The part of the job that workers are sent; of a long one its program has to be filled up.

        Args:
            keep_logs: the pool's setting, the same each time; see `Template.of`.
        """
        if self._template is None:
            made = Template.of(self.id, self.spec, self.owner, keep_logs=keep_logs)
            self._template = msgspec.structs.replace(made, with_items=self.has_items)
        return self._template

    @property
    def never_started(self) -> int:
        """Tasks beyond the cursor. In a cancelled job, and in one that has ended, they are
        cancelled, without an object or a row.
        """
        return self.spec.count - self.cursor

    @property
    def to_start(self) -> int:
        """The tasks beyond the cursor that have no final state."""
        if self.cancelling:
            return 0
        pairing = self.pairing
        return self.spec.count - self.cursor - (0 if pairing is None else pairing.cancelled)

    @property
    def waiting(self) -> int:
        """Tasks that wait for nothing of their own."""
        if self.cancelling:
            return len(self.ready)
        if self.pairing is not None:
            return self.pairing.free.total + len(self.ready)
        return self.spec.count - self.cursor + len(self.ready)

    @property
    def waiting_behind(self) -> int:
        """Tasks that wait for the task of the same index of another job."""
        pairing = self.pairing
        if pairing is None or self.cancelling:
            return 0
        return self.to_start - pairing.free.total + len(pairing.behind)

    @property
    def remaining(self) -> int:
        """Tasks without a final state."""
        return self.to_start + len(self.live)

    def take(self, n: int, shunned: str = "", now: float = 0.0) -> list[Task]:
        """Takes the next n tasks, first those that come back. The caller gives each an attempt.

        Args:
            shunned: tasks that were just lost at this worker stay; empty for none.
        """
        tasks: list[Task] = []
        stay: list[Task] = []
        while len(tasks) < n and self.ready:
            task = self.ready.popitem(last=False)[1]
            shuns = shunned and task.lost_at == shunned and task.shun_until > now
            (stay if shuns else tasks).append(task)
        for task in reversed(stay):
            self.make_ready(task)
        if self.pairing is not None:
            return tasks + self._take_free(self.pairing, n - len(tasks))
        fresh = min(n - len(tasks), self.spec.count - self.cursor)
        standing = Standing.READY
        for index in range(self.cursor, self.cursor + fresh):
            task = self.live[index] = Task(self, index, standing)
            tasks.append(task)
        self.cursor += fresh
        return tasks

    def make_ready(self, task: Task) -> None:
        """Puts a task at the head of its line."""
        task.standing = Standing.READY
        ready = task.line.ready if task.memory_step or task.least_seconds else self.ready
        ready[task.index] = task
        ready.move_to_end(task.index, last=False)

    def _take_free(self, pairing: TaskPairing, n: int) -> list[Task]:
        """The first n tasks beyond the cursor for which the parent's have ended."""
        tasks: list[Task] = []
        for first, last in pairing.free.take(n):
            self._pass_over(pairing, first, Standing.BEHIND)
            for index in range(first, last + 1):
                task = self.live[index] = Task(self, index, Standing.READY)
                tasks.append(task)
            self.cursor = last + 1
        return tasks

    def _pass_over(self, pairing: TaskPairing, to: int, standing: Standing) -> list[Task]:
        """Moves the cursor to an index; what it passes over gets objects, unless it is cancelled.

        Args:
            standing: the standing of these tasks.
        """
        passed: list[Task] = []
        for first, last in self.bad.gaps(self.cursor, to - 1):
            for index in range(first, last + 1):
                task = self.live[index] = Task(self, index, standing)
                passed.append(task)
                if index not in pairing.free:
                    pairing.behind.add(index)
            pairing.free.discard(first, last)
        for first, last in self.bad.within(self.cursor, to - 1):
            pairing.passed.append((first, last))
            pairing.cancelled -= last - first + 1
        self.cursor = max(self.cursor, to)
        return passed

    def reach(self, index: int) -> list[Task]:
        """Moves the cursor past `index`; returns what it passes over, UNHEARD."""
        if self.pairing is not None:
            return self._pass_over(self.pairing, index + 1, Standing.UNHEARD)
        passed = [Task(self, i, Standing.UNHEARD) for i in range(self.cursor, index + 1)]
        self.live.update((task.index, task) for task in passed)
        self.cursor = max(self.cursor, index + 1)
        return passed

    def note_latency(self, seconds: float) -> None:
        """Notes what dispatch added to one of its tasks."""
        if self.latencies is _NOTHING_YET:
            self.latencies = deque(maxlen=MOST_LATENCIES)
        self.latencies.append(seconds)

    def note_bad(self, first: int, last: int) -> None:
        """Notes that these tasks have ended otherwise than done."""
        if self.bad is _NONE:
            self.bad = IndexRanges()
        self.bad.add(first, last)

    def line_up(self, task: Task) -> None:
        """Lets a task wait that nobody has heard of: ready, or behind its parent's task."""
        if self.pairing is not None and task.index in self.pairing.behind:
            task.standing = Standing.BEHIND
        else:
            self.make_ready(task)

    def seconds_elsewhere(self, account: str) -> float | None:
        """The latest run time of a task that another account's worker brought to a good end; until
        one of its own has ended, what is expected.
        """
        if self.mean_seconds is None:
            return self.expected_seconds
        return self.before_seconds if account == self.latest_account else self.latest_seconds

    def learn(self, wall_seconds: float, n: int) -> None:
        """Folds the total run time of n tasks into the mean; recent tasks weigh more."""
        sample = wall_seconds / n
        if self.mean_seconds is None:
            # The expectation from earlier jobs is as good as a word of another worker.
            self.latest_seconds = self.expected_seconds
            self.mean_seconds = sample
        else:
            weight = min(0.5, n * 0.05)
            self.mean_seconds += (sample - self.mean_seconds) * weight
        self.sharer.expect(self.spec.program.argv, self.mean_seconds)

    @property
    def expected_seconds(self) -> float | None:
        """The expected run time of its tasks: the mean of its own or, until one has ended, that of
        its owner's latest tasks of the same command; None if there are none.
        """
        if self.mean_seconds is not None:
            return self.mean_seconds
        return self.sharer.expected.get(self.spec.program.argv)

    def record(self, state: str = "active", ended_at: float | None = None) -> JobRecord:
        """The job as it goes to the store."""
        return JobRecord(
            job_id=self.id,
            owner=self.owner,
            spec=self.spec,
            submitted_at=self.submitted_at,
            key=self.key,
            state=state,
            cancelling=self.cancelling,
            cursor=self.cursor,
            counts=self.counts.copy(),
            ended_at=ended_at,
            untold=state != "active"
            and self.spec.notify.wants(
                "failed" if self.stopped_by else state,
                cancelled=self.cancelling and not self.stopped_by,
            ),
            unmailed=ended_at is not None
            and bool(self.sharer.record.mail)
            and is_worth_a_mail(
                "failed" if self.stopped_by else state,
                took_seconds=ended_at - self.submitted_at,
                cancelled=self.cancelling and not self.stopped_by,
            ),
            stopped_by=self.stopped_by,
            hold=self.hold if state == "active" else None,
            freed=self.freed,
            settled=self.settled,
            resumed=self.resumed,
        )


class Task(msgspec.Struct, eq=False):
    """A task that was dispatched, or passed over, and has no final state yet.

    Attributes:
        attempt: the one under way, if the task is UNDER_WAY.
        backoff_until: when its latest back-off ends or ended, in seconds since the epoch.
        lost_numbers: attempts that were lost.
        spared_numbers: those of them that do not count as losses.
        given_up: attempts of this start that were taken from their worker without a word of it:
            only these may still be heard of.
        lost_at, shun_until: where it was lost last, and until when it rather runs elsewhere.
        unable: how often a worker could not start it, or had no more of an asset for it.
        lone_refusals: how often it was refused an asset though nothing else took any of that, since
            it last failed.
        concluded: attempts up to this number are over, their results counted: nobody can still run
            them.
        retried_after: a user had it brought back after this attempt: none up to it can end it.
        refused_numbers: the latest attempts after `concluded` that are over though their results
            were not counted.
        memory_step: how often it has asked for more memory than its job does.
        least_seconds: the time that it is known to take at least, because a lender ended it after
            that; 0 if none has ended it.
        restarts: how often it was started again, as a copy of a service or to go on.
        quick_ends: how often in a row that was after a short time.
        checkpoint: the one from which its next attempt goes on; None to begin anew.
        cancelled: whether a user wants this task stopped. It is stored as cancelled then, and
            stays live until its attempt is over.
    """

    job: Job
    index: int
    standing: Standing
    attempt: Attempt | None = None
    failures: int = 0
    losses: int = 0
    backoff_until: float = 0.0
    lost_numbers: tuple[int, ...] = ()
    spared_numbers: tuple[int, ...] = ()
    given_up: tuple[Attempt, ...] = ()
    lost_at: str = ""
    shun_until: float = 0.0
    unable: int = 0
    lone_refusals: int = 0
    concluded: int = 0
    retried_after: int = 0
    refused_numbers: tuple[int, ...] = ()
    cancelled: bool = False
    memory_step: int = 0
    least_seconds: float = 0.0
    restarts: int = 0
    quick_ends: int = 0
    checkpoint: Checkpoint | None = None

    @property
    def is_unwanted(self) -> bool:
        """Whether it shall not run any more: it is cancelled, or its job is."""
        return self.cancelled or self.job.cancelling

    @property
    def goes_on(self) -> bool:
        """Whether it may be stopped anywhere, to go on elsewhere from what it leaves."""
        return self.job.spec.program.checkpoint_exit is not None

    @property
    def is_suspect(self) -> bool:
        """Whether it may be the task itself that ends its workers."""
        return self.losses >= SUSPECT_LOSSES

    @property
    def next_count(self) -> int:
        """The number of the next attempt, as users count: 1 for the first.

        Failures and losses count. A restart of the manager forgets losses that were not held
        against the task; after a user's retry, the first attempt is 1 again.
        """
        again = self.failures + self.memory_step + self.restarts
        return 1 + again + max(self.losses, len(self.lost_numbers))

    @property
    def line(self) -> Job:
        """The line in which it waits: with the tasks of its job that ask for as much as it does."""
        if self.memory_step or self.least_seconds:
            return self.job.larger[self.memory_step, self.least_seconds]
        return self.job

    def give_up(self, attempt: Attempt) -> None:
        """Remembers that this attempt may still be somewhere."""
        self.given_up = (*self.given_up, attempt)[-MOST_GIVEN_UP:]

    def hear_of(self, number: int) -> Attempt | None:
        """Takes back that an attempt was given up; returns it if it was."""
        found = next((attempt for attempt in self.given_up if attempt.number == number), None)
        if found is not None:
            self.given_up = tuple(attempt for attempt in self.given_up if attempt is not found)
        return found

    def refuse(self, number: int) -> None:
        """Remembers that this attempt is over, and that its result was not counted."""
        self.hear_of(number)
        self.refused_numbers = (*self.refused_numbers, number)[-MOST_REFUSED:]

    def is_over(self, number: int) -> bool:
        """Whether the end of this attempt was reported and acknowledged."""
        return number <= self.concluded or number in self.refused_numbers


class LargerRequest(Job):
    """The tasks of a job that ask for more memory or time than it does: a line of their own in the
    queue.

    To the queue and to plans it is a job of another shape, of which all tasks have run before. Its
    `whole` answers for what holds for the job as a whole (limits, order, a cancel).
    """

    __slots__ = ("_asks", "_whole")

    def __init__(self, whole: Job, asks: JobSpec, shape: Shape) -> None:
        super().__init__(
            whole.id, whole.sharer, whole.spec, shape, whole.submitted_at, whole.encoded_bytes
        )
        self.has_items, self.is_long = whole.has_items, whole.is_long
        self._asks = asks
        self._whole = whole
        self.cursor = whole.spec.count

    @property
    def asks(self) -> JobSpec:
        return self._asks

    @property
    def whole(self) -> Job:
        return self._whole

    @property
    def expected_seconds(self) -> None:
        """None, nobody knows: the tasks that took as long as others are in the job's line."""
        return None

    def template(self, *, keep_logs: bool) -> Template:
        return self._whole.template(keep_logs=keep_logs)
