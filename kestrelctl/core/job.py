"""A job in the manager's memory: a cursor into its array, and objects only for tasks under way."""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from kestrelctl.core.model import Counts, JobSpec
from kestrelctl.core.records import JobRecord

if TYPE_CHECKING:
    from kestrelctl.core.matching import Shape
    from kestrelctl.core.worker import Worker


class Phase(enum.Enum):
    """Where a task that was dispatched at least once stands."""

    WAITING = "waiting"  #: in `Job.requeued`
    DELAYED = "delayed"  #: failed, and waits out its back-off
    LIMBO = "limbo"  #: was dispatched before the manager's restart; its worker has not spoken yet
    RUNNING = "running"  #: a worker has it


class Task:
    """A task that was dispatched and has no final state yet."""

    __slots__ = (
        "charged",
        "concluded",
        "failures",
        "index",
        "job",
        "losses",
        "lost_numbers",
        "number",
        "phase",
        "sent_at",
        "worker",
    )

    def __init__(self, job: Job, index: int, phase: Phase) -> None:
        self.job = job
        self.index = index
        self.phase = phase
        self.number = 0
        self.worker: Worker | None = None
        self.sent_at = 0.0  #: 0 if the attempt was adopted
        self.charged = False
        self.failures = 0
        self.losses = 0
        self.lost_numbers: tuple[int, ...] = ()  #: attempts that were counted as losses
        #: Attempts up to this number are over, their results counted: nobody can still run them.
        self.concluded = 0


class Job:
    """An active job."""

    __slots__ = (
        "attempts_failed",
        "cancelling",
        "counts",
        "cursor",
        "id",
        "key",
        "latencies",
        "live",
        "mean_seconds",
        "owner",
        "queued",
        "requeued",
        "restored_cursor",
        "running",
        "shape",
        "spec",
        "stored",
        "submitted_at",
        "waits_since",
    )

    def __init__(
        self, job_id: int, owner: str, spec: JobSpec, shape: Shape, submitted_at: float
    ) -> None:
        self.id = job_id
        self.owner = owner
        self.spec = spec
        self.shape = shape
        self.submitted_at = submitted_at
        self.waits_since = submitted_at  #: or since a retry brought it back
        #: Order among jobs: higher priority first, then first come.
        self.key = (-spec.priority, job_id)
        self.cursor = 0
        self.restored_cursor = 0  #: where the cursor was when the job came from the store
        self.live: dict[int, Task] = {}
        self.requeued: OrderedDict[int, Task] = OrderedDict()
        self.running = 0
        self.counts = Counts()
        self.cancelling = False
        self.stored = False
        self.queued = False
        #: Smoothed run time of its tasks; None until one has ended.
        self.mean_seconds: float | None = None
        self.attempts_failed = 0
        #: What dispatch added to its latest tasks: from hand-out to report, less queue and run
        #: time.
        self.latencies: deque[float] = deque(maxlen=4096)

    @property
    def never_started(self) -> int:
        """Tasks beyond the cursor. In a cancelled job they are cancelled, without an object or a
        row.
        """
        return self.spec.count - self.cursor

    @property
    def waiting(self) -> int:
        """Tasks that could be dispatched now."""
        return (0 if self.cancelling else self.never_started) + len(self.requeued)

    @property
    def remaining(self) -> int:
        """Tasks without a final state."""
        return (0 if self.cancelling else self.never_started) + len(self.live)

    def takeable(self) -> int:
        """Tasks that may be dispatched now, limits considered."""
        if self.cancelling or not self.stored:
            return 0
        waiting = self.waiting
        if self.spec.max_running is not None:
            return max(0, min(waiting, self.spec.max_running - self.running))
        return waiting

    def take(self, n: int) -> list[Task]:
        """The next n tasks, those that come back first. The caller makes them running."""
        tasks: list[Task] = []
        while len(tasks) < n and self.requeued:
            tasks.append(self.requeued.popitem(last=False)[1])
        fresh = min(n - len(tasks), self.spec.count - self.cursor)
        for index in range(self.cursor, self.cursor + fresh):
            task = self.live[index] = Task(self, index, Phase.WAITING)
            tasks.append(task)
        self.cursor += fresh
        return tasks

    def requeue(self, task: Task) -> None:
        """Puts a task at the head of what waits."""
        task.phase = Phase.WAITING
        self.requeued[task.index] = task
        self.requeued.move_to_end(task.index, last=False)

    def reach(self, index: int) -> list[Task]:
        """Moves the cursor past `index`; returns what it passes over, in limbo."""
        passed = [Task(self, i, Phase.LIMBO) for i in range(self.cursor, index + 1)]
        self.live.update((task.index, task) for task in passed)
        self.cursor = max(self.cursor, index + 1)
        return passed

    def learn(self, wall_seconds: float, n: int) -> None:
        """Folds the total run time of n tasks into the mean; recent tasks weigh more."""
        sample = wall_seconds / n
        if self.mean_seconds is None:
            self.mean_seconds = sample
        else:
            weight = min(0.5, n * 0.05)
            self.mean_seconds += (sample - self.mean_seconds) * weight

    def record(self, state: str = "active", ended_at: float | None = None) -> JobRecord:
        """The job as it goes to the store."""
        return JobRecord(
            job_id=self.id,
            owner=self.owner,
            spec=self.spec,
            submitted_at=self.submitted_at,
            state=state,
            cancelling=self.cancelling,
            cursor=self.cursor,
            counts=Counts(
                done=self.counts.done,
                failed=self.counts.failed,
                lost=self.counts.lost,
                cancelled=self.counts.cancelled,
            ),
            ended_at=ended_at,
        )
