"""The pool's answers about jobs, their tasks, output and files. `docs/protocol.md` shows one of
each.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from kestrelctl.core.model.end_reason import NO_REASON, ReasonText
from kestrelctl.core.model.files.stored_file import StoredFile
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.stage import StageRun
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.numbers import PoolMoment
from kestrelctl.core.model.refusal import ClauseCount, Refusal
from kestrelctl.protocol.request import Failed, Reply


class CheckpointView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The latest checkpoint of a task.

    Attributes:
        n: its number among those of its task.
        age_seconds: the time since the pool heard of it.
        size_bytes: what its files take together.
    """

    n: int
    age_seconds: float
    size_bytes: int = 0


class TaskOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """The output of one task of many; an array, because pages of a thousand travel.

    Attributes:
        data: base64 in JSON; empty if `more`.
        size_bytes: how much it wrote, as far as the manager knows.
        more: whether its worker, or the file share, has more than the manager: `logs` asks for it.
        why_missing: why nothing of it can be had.
    """

    task_id: int
    data: bytes = b""
    size_bytes: int = 0
    more: bool = False
    why_missing: str = ""


class AttemptOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A piece of what one attempt of a task has written so far.

    Attributes:
        attempt: its number.
        count: which attempt of its task it is; 0 if that is not known any more.
        over: how it ended, or that it was given up; empty while it runs.
        data: base64 in JSON.
        more: whether there is more of it already.
        skipped_bytes: how much before this piece cannot be had.
        cut_bytes: how much after the last piece was never kept.
        why_missing: why that is so.
    """

    attempt: int
    worker: str = ""
    count: int = 0
    over: str = ""
    data: bytes = b""
    more: bool = False
    skipped_bytes: int = 0
    cut_bytes: int = 0
    why_missing: str = ""


class FollowedLog(Reply, frozen=True, kw_only=True, tag="followed_log"):
    """The state of a task, and a piece of output; None if there is none to be read now."""

    state: str
    piece: AttemptOutput | None = None


class StageSum(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sums of one stage in ended tasks of a job: the first thousand of them.

    Attributes:
        tasks: how many of them have begun it.
        mean_seconds: that of all its tries in one attempt, with the pauses between.
        repeated: how many tries followed one that had failed.
    """

    name: str
    tasks: int
    mean_seconds: float
    repeated: int = 0


class TaskFiles(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files that a task left, as one archive.

    Attributes:
        files: how many.
    """

    task_id: int
    files: int
    stored: StoredFile


class OutputPage(Reply, frozen=True, kw_only=True, tag="output_page"):
    """A page of tasks that left files; the next begins after the index `after`, if it is set."""

    tasks: list[TaskFiles]
    after: int | None = None


class NeighbourAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a neighbour does not run a task that waits.

    Attributes:
        reason: a word: one of `core.model.refusal.Reason`, of `protocol.pools.REASONS`, or of
            `NEIGHBOUR_STATES`; `asked` if it may come to run it there.
        detail: in words; may be empty.
    """

    pool: str
    reason: str
    detail: str = ""


class GraphJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job of several that are submitted as one.

    Attributes:
        after: the jobs among these that it waits for, by their places, from 0; all come before it.
            Jobs that are there already are in the `after` of its spec.
        after_each: the place of the job whose tasks its tasks wait for, one for one; None for none.
    """

    spec: JobSpec
    after: tuple[After, ...] = ()
    after_each: int | None = None


class GraphSubmitted(Reply, frozen=True, kw_only=True, tag="graph_submitted"):
    """All of these jobs are durable.

    Attributes:
        job_id: that of the first; those of the others follow, in the order in which they were sent.
        jobs: how many.
        tasks: how many all of them have.
        repeated: an earlier submission with the same key has made them.
    """

    job_id: int
    jobs: int
    tasks: int
    repeated: bool = False


class GraphNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job in a drawing.

    Attributes:
        name: its name, or the beginning of its command if it has none.
        state: as in `JobView`; `waiting` for an active one that waits for others.
        ended: tasks with a final state.
    """

    job_id: int
    name: str
    state: str
    tasks: int = 1
    ended: int = 0


class GraphEdge(msgspec.Struct, frozen=True, array_like=True):
    """A job, and others with ids in a row that it waits for, or did.

    Attributes:
        ending: how they must end: `ok`, `ended` or `failed`; or `each`, for a job whose tasks wait
            for the tasks of another, one for one.
    """

    child: int
    first: int
    last: int
    ending: str


class JobGraph(Reply, frozen=True, kw_only=True, tag="graph"):
    """Jobs, with all that they wait for and all that wait for them, directly or not.

    Attributes:
        nodes: in the order of their ids: parents before their children.
        edges: those between them; a range may name jobs that are forgotten.
        more: whether some jobs are left out, because they are too many.
    """

    nodes: list[GraphNode]
    edges: list[GraphEdge]
    more: bool = False


class Submitted(Reply, frozen=True, kw_only=True, tag="submitted"):
    """The job is durable: nothing but its user can lose it now.

    Attributes:
        repeated: an earlier submission with the same key has made it.
        hopeless: why its tasks wait, if that was asked for and nothing could ever run them.
    """

    job_id: int
    tasks: int
    repeated: bool = False
    hopeless: JobExplanation | None = None


class SubmittedEach(Reply, frozen=True, kw_only=True, tag="submitted_each"):
    """The answers to several jobs, in the order in which these were sent."""

    answers: list[Submitted | Failed]


class RunningUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of tasks that have run for a while and still run, as their workers last said.

    Attributes:
        tasks: how many these are.
        wall_seconds, cpu_seconds, memory_bytes: the sums of all tasks; memory as it was then.
        since: the moment of the oldest of these reports, in seconds since the epoch.
    """

    tasks: int
    wall_seconds: float
    cpu_seconds: float
    memory_bytes: int
    since: PoolMoment


class JobView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as users see it. `waiting + running + done + failed + lost + cancelled = tasks`.

    For another user's job the name is empty, the spec says only what it asks of the pool, and a
    hold has no reason, unless the pool shares jobs. A job that is shown whole always has a command.

    Attributes:
        state: active, cancelling, done, failed or cancelled.
        spec: the job as submitted, cut where it is long: without items, inputs and, unless
            `details` were asked for and there is room, variables and cleanup. `ids` stands for its
            ranges but the first.
        ids: those of all tasks, as `--array` takes them.
        resumed: how many attempts were begun from a checkpoint.
        stopped_by: `deadline`, `failed member` or `failed tasks` if that stopped it.
        hold: set while nothing more of it is handed out.
        dispatch_p50_seconds, dispatch_p99_seconds: what dispatch added to a task: from hand-out to
            report, less queue and run time.
        inputs: only with `details`: what its tasks find in their scratch directories, by name.
        stdin: the same for the file that they read.
        stage_sums: only with `details`: how its stages went, and the command.
        attempts, cpu_seconds, wall_seconds, wait_seconds: only with `details` or `used`: the sums
            of its attempts that have results; the wait of a task is from the submission to its last
            start.
        memory_byte_seconds, peak_bytes: the peak of memory times the run time, and the most that an
            attempt took, of those whose memory is known; None if it is known of none.
        spread: only with `details`: p50, p90, p99 and the most of each ended task's `wait_seconds`,
            `wall_seconds`, `cpu_seconds` and `peak_bytes`. Those of memory are left out if it is
            known of no task.
        spread_tasks, spread_memory_tasks: how many tasks these cover, and those of memory.
        sampled: whether these are a sample.
        running_use: only with `details`.
    """

    job_id: int
    name: str
    owner: str
    state: str
    tasks: int
    submitted_at: PoolMoment
    ended_at: PoolMoment | None = None
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    spec: JobSpec = msgspec.field(default_factory=lambda: JobSpec(program=Program(argv=())))
    ids: str = ""
    resumed: int = 0
    stopped_by: str = ""
    hold: Hold | None = None
    mean_seconds: float | None = None
    dispatch_p50_seconds: float | None = None
    dispatch_p99_seconds: float | None = None
    inputs: list[str] | None = None
    stdin: str = ""
    stage_sums: list[StageSum] = []
    attempts: int | None = None
    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    wait_seconds: float | None = None
    memory_byte_seconds: float | None = None
    peak_bytes: int | None = None
    spread: dict[str, list[float]] = {}
    spread_tasks: int = 0
    spread_memory_tasks: int = 0
    sampled: bool = False
    running_use: RunningUse | None = None

    @property
    def whole(self) -> bool:
        """Whether the user sees all of it, because it is his own or the pool shares jobs."""
        return bool(self.spec.program.argv)

    @property
    def guest_of(self) -> str:
        """The domain of the pool whose guest it is; empty for none."""
        return self.spec.guest_of

    @property
    def deadline_at(self) -> float | None:
        """The moment when what has not ended is stopped, in seconds since the epoch; or None."""
        return self.spec.deadline(self.submitted_at)


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A job in an overview; an array, because it travels every second."""

    job_id: int
    name: str  #: its name, or the beginning of its command; empty if it is not for this user
    owner: str
    state: str  #: active, held, cancelling, done, failed or cancelled
    tasks: int
    submitted_at: PoolMoment
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    lost: int = 0
    cancelled: int = 0
    ended_at: PoolMoment | None = None
    guest_of: str = ""  #: the domain of the pool whose guest it is; empty for none


class Jobs(Reply, frozen=True, kw_only=True, tag="jobs"):
    """A page of jobs.

    Attributes:
        before: asks for the next page, which has older ones; None if this was the last.
        total: how many there are on all pages; only the first page says so.
    """

    jobs: list[JobView]
    before: int | None = None
    total: int | None = None


class Ended(Reply, frozen=True, kw_only=True, tag="ended"):
    """A watched job has ended, durably."""

    job: JobView


class TaskView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """A task as users see it; an array, because pages of a thousand travel.

    For a task that runs, `wall_seconds` is until now; processor time and `memory_bytes` are what
    its worker said at `said_at`, if it has run for a while. `peak_bytes` is None for a task that
    ended before its memory was looked at.

    Attributes:
        wait_seconds: from the submission of the job to the start of its last attempt; for a task
            that waits, until now.
        item: its item, if the job has items and that was asked for; a long one ends with an
            ellipsis.
    """

    index: int
    task_id: int
    state: TaskState
    worker: str = ""
    exit_code: int | None = None
    signal: int = 0
    reason: ReasonText = NO_REASON
    failures: int = 0
    losses: int = 0
    started_at: PoolMoment | None = None
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
    wait_seconds: float | None = None
    stdout_bytes: int = 0  #: what it wrote in all, whoever has it
    stderr_bytes: int = 0
    memory_bytes: int | None = None  #: without the page cache
    said_at: PoolMoment | None = None
    output_files: int = 0  #: files that it left and its job asked for
    outputs_bytes: int = 0  #: what they take together
    logs_stored: bool = False  #: what it printed is in the file share, as far as it is long
    stage: str = ""  #: that of a task that runs, as its worker last said
    stages: tuple[StageRun, ...] = ()  #: how each went, if its job has stages
    checkpoint: CheckpointView | None = None
    item: str | None = None


class Tasks(Reply, frozen=True, kw_only=True, tag="tasks"):
    """A page of tasks; `after` asks for the next one, None if this was the last.

    Attributes:
        stages: those that the job has beside its command.
    """

    tasks: list[TaskView]
    after: int | None = None
    stages: list[str] = []


class Log(Reply, frozen=True, kw_only=True, tag="log"):
    """A piece of output.

    Attributes:
        job_id: the job that it is of; `name` is that job's.
        data: base64 in JSON.
        next_offset: where the next piece starts; None at the end.
        skipped_bytes: how much before this piece cannot be had.
        cut_bytes: how much after the last piece was never kept.
        why_missing: why that is so.
        stored: where all of it is in the file share, if that was asked for; then there is no data.
        attempt: the one that wrote it, if its worker sent the piece; 0 otherwise.
    """

    data: bytes
    size_bytes: int
    next_offset: int | None = None
    skipped_bytes: int = 0
    cut_bytes: int = 0
    why_missing: str = ""
    stored: StoredFile | None = None
    job_id: int = 0
    name: str = ""
    task_id: int = 0
    attempt: int = 0


class LogPage(Reply, frozen=True, kw_only=True, tag="log_page"):
    """A page of outputs; `after` asks for the next one, None if this was the last."""

    outputs: list[TaskOutput]
    after: int | None = None


class Obstacle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An obstacle to running a task: how many workers have it, one of them, and the reasons."""

    workers: int
    example: str
    refusal: Refusal


class JobExplanation(Reply, frozen=True, kw_only=True, tag="explanation"):
    """The reasons why tasks of a job wait.

    Attributes:
        job_reasons: what holds the job back by itself (`max-running`, `backoff` …).
        obstacles: for each group of workers with the same reason; the closest fit first.
        could_run: workers that could take a task of the job at once.
        ever: whether any worker known now could ever run it.
        tasks_ahead: waiting tasks of other jobs at work that come before this one.
        clauses: those of `requirements` and of workers' `start`: how many workers each leaves.
        neighbours: why each pool of the flock that this one knows does not run them.
        environments: classes of environments that are started for such tasks.
        next_start_seconds: how long it is until one of these is tried again, if the latest start
            has failed wherever they can be made; None otherwise.
        gives_way: a worker that could run it as soon as the environments on its machine have gone;
            empty for none.
    """

    job: JobView
    waiting: int
    job_reasons: list[Refusal]
    obstacles: list[Obstacle]
    could_run: int
    ever: bool
    tasks_ahead: int = 0
    clauses: list[ClauseCount] = []
    neighbours: list[NeighbourAnswer] = []
    environments: list[str] = []
    next_start_seconds: float | None = None
    gives_way: str = ""

    @property
    def is_hopeless(self) -> bool:
        """Whether tasks wait for something that nothing known to the pool will bring about."""
        return bool(self.waiting) and not (self.ever or self.environments or self.gives_way)


class StoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, array_like=True):
    """Something that happened to a job or a task, or how it is; an array, because many travel.

    Attributes:
        at: seconds since the epoch. What a worker's clock said is put between the submission and
            the end of the job, because it may be off.
        task_id: None if it happened to the job as a whole.
        what: one of `HAPPENINGS`, or `submitted`, `ended`; or, of a task: `started`, `waiting`,
            `sent`, `queued` (at its worker), `running`.
        number: that of the attempt; 0 if none is meant.
        cause: who or what was behind it; for `ended`, the final state.
    """

    at: PoolMoment
    task_id: int | None
    what: str
    number: int = 0
    worker: str = ""
    cause: str = ""
    detail: str = ""


class Story(Reply, frozen=True, kw_only=True, tag="story"):
    """The story of a job and its tasks, in order of time.

    Attributes:
        more: whether entries were left out.
        items: those of up to 20 of the tasks asked about, by task id, as `TaskView.item`.
    """

    job: JobView
    entries: list[StoryEntry]
    more: bool = False
    items: dict[int, str] = {}


AnswerAboutJobs: TypeAlias = (
    Submitted
    | SubmittedEach
    | GraphSubmitted
    | JobGraph
    | Jobs
    | Ended
    | Tasks
    | OutputPage
    | Log
    | LogPage
    | FollowedLog
    | JobExplanation
    | Story
)
