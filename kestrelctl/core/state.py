"""All that a pool knows, and the few operations that every part of the core shares."""

from __future__ import annotations

from copy import copy

import msgspec

from kestrelctl.core.counting.totals import Totals
from kestrelctl.core.effects import Effect, Note, Persist
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.story import happening
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import JobRecord, Record, TaskRecord
from kestrelctl.core.model.seal import Seals
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.supply import Supply

#: Attempt numbers of one manager start begin at a multiple of two to this power, each start at the
#: next: they fence those of earlier starts.
EPOCH_BITS = 40

#: (until when, job id, index): a task that failed waits for its next attempt.
BackOff = tuple[float, int, int]


class State:
    """The pool's memory. Of the core, `attempts`, `handlers`, `recovery` and `pool` change it.

    Attributes:
        seals: prove to this start what earlier ones handed out.
        ending: jobs whose end is not yet durable: to users they are still active.
        forgetting: jobs that the store still has, but shall not.
        keys: (owner, key) of submissions that are not yet durable -> the job that each made. Later
            the store knows them.
        sessions: the workers of each account that are online.
        rounds: how often something came back from workers of each account, `Worker.round_at`.
        set_aside: of each account the worker that was put in quarantine last.
        asked: workers that have yet to say what they hold.
        reconcile_until: while set, tasks that were dispatched before a restart wait for their
            workers to say that they have them.
        backoffs: heap; it may hold entries of tasks that wait no more.
        at, cause: of the event at hand.
        touched_jobs, touched_workers: what the event at hand changed, to be settled after it.
        records: what is to be written with the next commit.
        ended_tasks: records of tasks that the event at hand brought to their end.
        store_error: why nothing becomes durable now; empty if it does.
        unread: workers whose reports were not taken in for that reason; in the order of a dict.
    """

    def __init__(self, config: Config, epoch: int, next_job_id: int, seals: Seals) -> None:
        self.config = config
        self.epoch = epoch
        self.seals = seals
        self.first_number = self.next_number = (seals.offset + epoch) << EPOCH_BITS
        self.next_job_id = next_job_id
        self.jobs: dict[int, Job] = {}
        self.ending: dict[int, Job] = {}
        self.forgetting: set[int] = set()
        self.keys: dict[tuple[str, str], int] = {}
        self.workers: dict[str, Worker] = {}
        self.sessions: dict[str, dict[str, Worker]] = {}
        self.rounds: dict[str, int] = {}
        self.set_aside: dict[str, Worker] = {}
        self.demand = Demand()
        self.supply = Supply()
        self.online = 0
        self.connected = True
        self.store_error = ""
        self.unread: dict[str, None] = {}
        self.asked: set[str] = set()
        self.reconcile_until: float | None = None
        self.backoffs: list[BackOff] = []
        self.next_recall_at = 0.0
        self.leases_checked_at = 0.0
        self.totals = Totals()
        self.at = 0.0
        self.cause = ""
        self.touched_jobs: dict[Job, None] = {}
        self.touched_workers: dict[str, Worker] = {}
        self.ended_tasks: list[TaskRecord] = []
        self._effects: list[Effect] = []
        self.records: list[Record] = []

    # -- jobs, workers, and what they have in common -----------------------------------------------

    def new_job(self, job_id: int, owner: str, spec: JobSpec, submitted_at: float) -> Job:
        """A job whose tasks all wait."""
        if self.demand.too_many_shapes():
            used = {job.shape for job in self.jobs.values()}
            self.demand.forget_shapes(used)
            self.supply.forget_shapes(used)
        shape = self.demand.shape_of(spec)
        if spec.request == shape.asked:
            spec = msgspec.structs.replace(spec, request=shape.asked)
        job = Job(job_id, owner, spec, shape, submitted_at)
        self.jobs[job_id] = job
        return job

    def restored_job(self, record: JobRecord) -> Job:
        """A job as the store has it, with counts of its own."""
        job = self.new_job(record.job_id, record.owner, record.spec, record.submitted_at)
        job.stored = True
        job.key = record.key
        job.cursor = record.cursor
        job.counts = copy(record.counts)
        return job

    def class_of(self, ad: WorkerAd | None) -> WorkerClass:
        """The class of workers with this ad; None if it is not known."""
        if self.supply.too_many_classes():
            self.supply.forget_classes({worker.cls for worker in self.workers.values()})
        return self.supply.class_of(ad)

    def job(self, job_id: int) -> Job | None:
        """A job that is active as far as users know."""
        return self.jobs.get(job_id) or self.ending.get(job_id)

    # -- what an event changes ---------------------------------------------------------------------

    def touch(self, worker: Worker) -> None:
        """What a worker may take has changed: it is looked at again after the event."""
        self.touched_workers[worker.jid] = worker

    def touch_job(self, job: Job) -> None:
        """What a job needs has changed: it is looked at again after the event."""
        self.touched_jobs[job] = None

    def record(self, record: Record) -> None:
        """Has a record written with the next commit."""
        self.records.append(record)

    def tell(
        self,
        job: Job,
        index: int,
        what: str,
        *,
        number: int = 0,
        worker: str = "",
        detail: str = "",
        cause: str = "",
    ) -> None:
        """Adds to the story of a job.

        Args:
            index: of the task that it happened to; -1 for the job as a whole.
            what: one of `records.HAPPENINGS`.
            cause: who or what was behind it; that of the event by default.
        """
        found = happening(
            job,
            index,
            what,
            at=self.at,
            number=number,
            worker=worker,
            cause=cause or self.cause,
            detail=detail,
        )
        if found is not None:
            self.records.append(found)

    # -- effects -----------------------------------------------------------------------------------

    def emit(self, effect: Effect) -> None:
        """Wants something done. What waits for a commit comes behind all that was recorded."""
        if effect.after_commit:
            self._flush_records()
        self._effects.append(effect)

    def note(self, level: str, text: str) -> None:
        """Wants an operator to read something."""
        self.emit(Note(level=level, text=text))

    def take_effects(self) -> list[Effect]:
        """All that is to be done, in order; it counts as done from now on."""
        self._flush_records()
        effects, self._effects = self._effects, []
        return effects

    def _flush_records(self) -> None:
        if self.records:
            self._effects.append(Persist(records=self.records))
            self.records = []
