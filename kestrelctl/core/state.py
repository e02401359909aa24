"""All that a pool knows, and the few operations that every part of the core shares."""

from __future__ import annotations

import heapq

from kestrelctl.core.assets import amounts
from kestrelctl.core.config import Config
from kestrelctl.core.effects import Effect, Feed, JobEnded, Note, Persist
from kestrelctl.core.events import JobClosed
from kestrelctl.core.job import Job, Phase, Task
from kestrelctl.core.matching import Shape
from kestrelctl.core.model import Counts, JobSpec, TaskState, WorkerAd
from kestrelctl.core.queue import JobQueue
from kestrelctl.core.records import JobRecord, Progress, Record, TaskRecord
from kestrelctl.core.result import Result
from kestrelctl.core.totals import Totals
from kestrelctl.core.worker import Worker, WorkerClass, class_key

#: Attempt numbers of one manager start begin at epoch << this: they fence those of earlier starts.
EPOCH_BITS = 40
#: How far a durable cursor can lag behind, generously: it is stored with each hand-out.
MOST_UNRECORDED = 100_000
#: How many shapes or classes may be known that nobody has any more, at the least.
SPARE_ENTRIES = 64


class State:
    """The pool's memory. Functions of the sibling modules read and change it; nothing else does."""

    def __init__(self, config: Config, epoch: int, next_job_id: int) -> None:
        self.config = config
        self.epoch = epoch
        self.first_number = self.next_number = epoch << EPOCH_BITS
        self.first_job_id = self.next_job_id = next_job_id
        self.jobs: dict[int, Job] = {}
        #: Jobs whose end is not yet durable: to users they are still active.
        self.ending: dict[int, Job] = {}
        self.queue = JobQueue()
        self.workers: dict[str, Worker] = {}
        self.classes: dict[tuple[frozenset[str], tuple[tuple[str, int], ...]], WorkerClass] = {}
        self.shapes: dict[tuple[tuple[tuple[str, int], ...], frozenset[str]], Shape] = {}
        self._classes_at_most = self._shapes_at_most = 2 * SPARE_ENTRIES
        self.online = 0
        self.connected = True
        self.asked: set[str] = set()  #: workers that have yet to say what they hold
        self.limbo_until: float | None = None
        self.delayed: list[tuple[float, int, int]] = []  #: heap of (when, job id, index)
        self.next_take_back_at = 0.0
        self.leases_checked_at = 0.0
        self.effects: list[Effect] = []
        self.records: list[Record] = []  #: of the event at hand; one Persist for all of them
        self.cause = ""
        self.totals = Totals()

    # -- interning ---------------------------------------------------------------------------------

    def shape_for(self, spec: JobSpec) -> Shape:
        """The one shape object for jobs that ask like this one."""
        request = amounts(spec.cpus, spec.memory_bytes)
        requires = frozenset(tag.upper() for tag in spec.requires)
        key = (tuple(sorted(request.items())), requires)
        shape = self.shapes.get(key)
        if shape is None:
            if len(self.shapes) >= self._shapes_at_most:
                self._forget_shapes()
            shape = self.shapes[key] = Shape(request, requires)
        return shape

    def _forget_shapes(self) -> None:
        used = {job.shape for job in self.jobs.values()}
        self.shapes = {key: shape for key, shape in self.shapes.items() if shape in used}
        for cls in self.classes.values():
            cls.answers = {shape: known for shape, known in cls.answers.items() if shape in used}
        self._shapes_at_most = 2 * max(len(self.shapes), SPARE_ENTRIES)

    def class_for(self, ad: WorkerAd) -> WorkerClass:
        """The one class object for workers that offer what this ad says."""
        tags, capacity = class_key(ad)
        key = (tags, tuple(sorted(capacity.items())))
        cls = self.classes.get(key)
        if cls is None:
            if len(self.classes) >= self._classes_at_most:
                self._forget_classes()
            cls = self.classes[key] = WorkerClass(tags, capacity)
        return cls

    def _forget_classes(self) -> None:
        used = {worker.cls for worker in self.workers.values()}
        self.classes = {key: cls for key, cls in self.classes.items() if cls in used}
        self._classes_at_most = 2 * max(len(self.classes), SPARE_ENTRIES)

    def new_job(self, job_id: int, owner: str, spec: JobSpec, submitted_at: float) -> Job:
        job = Job(job_id, owner, spec, self.shape_for(spec), submitted_at)
        self.jobs[job_id] = job
        return job

    def restored_job(self, record: JobRecord) -> Job:
        """A job as the store has it, with counts of its own."""
        job = self.new_job(record.job_id, record.owner, record.spec, record.submitted_at)
        job.stored = True
        job.cursor = job.restored_cursor = record.cursor
        counts = record.counts
        job.counts = Counts(
            done=counts.done, failed=counts.failed, lost=counts.lost, cancelled=counts.cancelled
        )
        return job

    def may_reach(self, job: Job, index: int, number: int) -> bool:
        """Whether an earlier start of the manager may have sent this attempt of the job.

        An attempt that is further than `MOST_UNRECORDED` beyond the cursor is not believed, and its
        task runs again: each index passed over becomes an object, and a worker may say anything.
        """
        return (
            number < self.first_number
            and job.id < self.first_job_id
            and index < job.restored_cursor + MOST_UNRECORDED
            and not job.cancelling
        )

    def reach(self, job: Job, index: int) -> None:
        """Moves a job's cursor past an attempt that an earlier start of the manager sent.

        The durable cursor may lag behind what had been dispatched; other workers may come with what
        it passes over, so that waits with all else that is in limbo.
        """
        passed = job.reach(index)
        if self.connected and self.limbo_until is None:
            for task in reversed(passed):
                job.requeue(task)
        self.records.append(Progress(job.id, job.cursor))

    # -- effects -----------------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def note(self, level: str, text: str) -> None:
        self.emit(Note(cause=self.cause, level=level, text=text))

    def flush_records(self) -> None:
        """Turns the collected records into one effect, ahead of what depends on them."""
        if self.records:
            self.emit(Persist(cause=self.cause, records=list(self.records)))
            self.records.clear()

    # -- life of tasks and jobs --------------------------------------------------------------------

    def refresh(self, job: Job) -> None:
        """Keeps the queue true after a job changed; wakes workers when it has new work for them."""
        if self.queue.update(job):
            for cls in self.classes.values():
                if cls.parked and cls.answer(job.shape)[0] is None:
                    cls.hungry.update(cls.parked)
                    cls.parked.clear()

    def detach(self, task: Task) -> None:
        """Takes a task out of whatever phase it is in, leaving only `job.live`."""
        if task.phase is Phase.RUNNING:
            task.job.running -= 1
            if task.worker is not None:
                task.worker.release(task.number)
        elif task.phase is Phase.WAITING:
            task.job.requeued.pop(task.index, None)

    def delay(self, task: Task, until: float) -> None:
        """Lets a failed task wait before its next attempt."""
        task.phase = Phase.DELAYED
        heapq.heappush(self.delayed, (until, task.job.id, task.index))

    def remember(self, task: Task, state: TaskState, worker: str, result: Result | None) -> None:
        """Queues a task's record for the next commit."""
        self.records.append(
            TaskRecord(
                task.job.id,
                task.index,
                state,
                task.failures,
                task.losses,
                worker,
                result,
                task.concluded,
            )
        )

    def finish(self, task: Task, state: TaskState, worker: str, result: Result | None) -> None:
        """Gives a detached task its final state."""
        job = task.job
        del job.live[task.index]
        counts, totals = job.counts, self.totals
        if state is TaskState.DONE:
            counts.done += 1
            totals.tasks_done += 1
        elif state is TaskState.FAILED:
            counts.failed += 1
            totals.tasks_failed += 1
        elif state is TaskState.LOST:
            counts.lost += 1
            totals.tasks_lost += 1
        else:
            counts.cancelled += 1
            totals.tasks_cancelled += 1
        self.remember(task, state, worker, result)

    def settle(self, job: Job, now: float) -> None:
        """After tasks of a job ended: ends the job with its last task."""
        if job.remaining or job.id not in self.jobs or not job.stored:
            self.refresh(job)
            return
        self.refresh(job)
        del self.jobs[job.id]
        self.ending[job.id] = job
        self.flush_records()
        outcome = job.counts.outcome()
        self.totals.jobs_finished[outcome] += 1
        record = job.record(outcome, now)
        self.emit(Persist(cause=self.cause, records=[record]))
        self.emit(
            JobEnded(
                cause=self.cause,
                job_id=job.id,
                owner=job.owner,
                dispatch_seconds=sorted(job.latencies),
            )
        )
        self.emit(Feed(cause=self.cause, event=JobClosed(at=now, id=self.cause, job_id=job.id)))

    def job(self, job_id: int) -> Job | None:
        """A job that is active as far as users know."""
        return self.jobs.get(job_id) or self.ending.get(job_id)

    def worker(self, jid: str) -> Worker | None:
        return self.workers.get(jid)
