"""All that a pool knows, and the few operations that every part of the core shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from copy import copy
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec

from kestrelctl.core.counting.totals import Totals
from kestrelctl.core.effects import Answer, Effect, MemberChanged, Note, Persist, Recall
from kestrelctl.core.jobs.alarms import Alarms
from kestrelctl.core.jobs.dependencies import Dependencies
from kestrelctl.core.jobs.fair_share import Sharers
from kestrelctl.core.jobs.job import Gate, Job, Moments
from kestrelctl.core.jobs.queued_bytes import QueuedBytes, encoded_bytes
from kestrelctl.core.jobs.quota import Quota
from kestrelctl.core.jobs.story import happening
from kestrelctl.core.jobs.tokens import Tokens
from kestrelctl.core.members.flock_memory import FlockMemory
from kestrelctl.core.members.settings_in_force import SettingsInForce
from kestrelctl.core.members.silence import Process
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.members.worker_groups import WorkerGroups
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.light_spec import Apart
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.records import GroupRecord, JobRecord, Record, TaskRecord
from kestrelctl.core.model.seal import Seals
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.significance import Interest, interests_of
from kestrelctl.core.policies.in_force import PoliciesInForce
from kestrelctl.core.scheduling.demand import Demand
from kestrelctl.core.scheduling.supply import Supply

#: Attempt numbers of one manager start begin at a multiple of two to this power, each start at the
#: next: they fence those of earlier starts.
EPOCH_BITS = 40

#: (until when, job id, index): a task that failed waits for its next attempt.
BackOff = tuple[float, int, int]

#: The reason why something is not done: a code of `kestrelctl.errors`, a message and a hint.
Refused: TypeAlias = tuple[str, str, str]


class State:
    """The pool's memory. In the core, rooms above this one change it.

    Attributes:
        seals: prove to this start what earlier ones handed out.
        ending: jobs whose end is not yet durable: to users they are still active.
        guests: those of `jobs` that are guests.
        queued_bytes: how large `jobs` are, by account.
        forgetting: jobs that the store still has, but shall not.
        keys: (owner, key) of submissions that are not yet durable -> the job that each made. Later
            the store knows them.
        sessions: the workers of each account that are online.
        rounds: how often something came back from workers of each account, `Worker.round_at`; of
            accounts without workers, only for a while.
        set_aside: the worker of each account that was put in quarantine last, as long as that
            lasts; it may hold others for a while.
        processes: of workers, by their incarnation; while there are any.
        asked: workers that have yet to say what they hold.
        reconcile_until: while set, tasks that were dispatched before a restart wait for their
            workers to say that they have them.
        backoffs: heap; it may hold entries of tasks that wait no more.
        began_at: the first moment of this start; infinite before it.
        alarms: moments at which something of a job becomes due.
        pairs: job -> the active jobs whose tasks wait for its tasks, one for one.
        kept: jobs that starve -> the workers that are kept for each, and since when.
        at, cause: of the event at hand.
        usage_recorded_at: when the usage of users was last recorded.
        backlogged: workers at which something waits, by address; it may name others that had a
            backlog.
        shared_until: until then little waits at workers, because others want in.
        stored_until: when the oldest of what users have stored counts no more; None if they have
            stored nothing.
        touched_jobs, touched_workers: what the event at hand changed, to be settled after it.
        touched_tokens: of tokens that came back since the last plan, how many of each were free
            before.
        eased: bounds that held something back and now hold back less, to be settled after it.
        records: what is to be written with the next commit.
        ended_tasks: records of tasks that the event at hand brought to their end.
        store_error: why nothing becomes durable now; empty if it does.
        unread: workers whose reports were not taken in for that reason; in the order of a dict.
    """

    def __init__(
        self,
        config: Config,
        epoch: int,
        next_job_id: int,
        seals: Seals,
        features_of: Callable[[JobSpec], tuple[tuple[Gate, ...], Moments]],
    ) -> None:
        self.config = config
        self._features_of = features_of
        self.epoch = epoch
        self.seals = seals
        self.first_number = self.next_number = (seals.offset + epoch) << EPOCH_BITS
        self.next_job_id = next_job_id
        self.jobs: dict[int, Job] = {}
        self.ending: dict[int, Job] = {}
        self.guests: set[int] = set()
        self.queued_bytes = QueuedBytes()
        self.forgetting: set[int] = set()
        self.keys: dict[tuple[str, str], int] = {}
        self.workers: dict[str, Worker] = {}
        self.sessions: dict[str, dict[str, Worker]] = {}
        self.rounds: dict[str, int] = {}
        self.set_aside: dict[str, Worker] = {}
        self.processes: WeakValueDictionary[str, Process] = WeakValueDictionary()
        self.settings = SettingsInForce()
        self.worker_groups = WorkerGroups()
        self.sharers = Sharers(config, self.settings.of(GroupRecord))
        self.tokens = Tokens()
        self.flock = FlockMemory()
        self.dependencies = Dependencies()
        self.pairs: dict[int, dict[int, Job]] = {}
        self.demand = Demand(self.sharers, config, self.tokens)
        self.supply = Supply()
        self.online = 0
        self.connected = True
        self.store_error = ""
        self.unread: dict[str, None] = {}
        self.asked: set[str] = set()
        self.reconcile_until: float | None = None
        self.backoffs: list[BackOff] = []
        self.began_at = math.inf
        self.alarms = Alarms()
        self.next_recall_at = 0.0
        self.backlogged: dict[str, Worker] = {}
        self.shared_until = 0.0
        self.kept: dict[Job, tuple[list[Worker], float]] = {}
        self.next_starving_at = 0.0
        self.next_together_at = 0.0
        self.leases_checked_at = 0.0
        self.usage_recorded_at = 0.0
        self.stored_until: float | None = None
        self.totals = Totals()
        self.at = 0.0
        self.cause = ""
        self.touched_jobs: dict[Job, None] = {}
        self.touched_workers: dict[str, Worker] = {}
        self.touched_tokens: dict[str, int] = {}
        self.eased: dict[Quota, None] = {}
        self.ended_tasks: list[TaskRecord] = []
        self._effects: list[Effect] = []
        self.records: list[Record] = []

    @property
    def policies(self) -> PoliciesInForce:
        """The policies that say what tasks are charged on which workers."""
        return self.supply.policies

    # -- jobs, workers, and what they have in common -----------------------------------------------

    def new_job(
        self, job_id: int, owner: str, spec: JobSpec, submitted_at: float, size_bytes: int
    ) -> Job:
        """Makes a job whose tasks all wait.

        Args:
            size_bytes: of its spec, `encoded_bytes`.
        """
        if self.demand.too_many_shapes():
            used = {line.shape for job in self.jobs.values() for line in job.lines()}
            self.demand.forget_shapes(used)
            self.supply.forget_shapes(used)
            self._ask_anew()
        self._ask_for_job(spec)
        shape = self.demand.shape_of(spec, owner)
        if spec.request is not shape.asked and spec.request == shape.asked:
            spec = msgspec.structs.replace(spec, request=shape.asked)
        sharer = self.sharers.of(owner)
        if spec.guest is None:
            sharer.at_home = True
        else:
            self.guests.add(job_id)
        job = Job(job_id, sharer, spec, shape, submitted_at, size_bytes)
        job.stores_files = spec.stores_files(keep_logs=self.config.keep_logs)
        self.jobs[job_id] = job
        self.queued_bytes.add(job)
        job.gates, job.changed = self._features_of(spec)
        return job

    def restored_job(self, record: JobRecord, apart: Apart | None = None) -> Job:
        """Makes a job as the store has it, with counts of its own.

        Args:
            apart: what the spec of the record lacks; None for nothing.
        """
        size_bytes = encoded_bytes(record.spec) if apart is None else apart.spec_bytes
        job = self.new_job(
            record.job_id, record.owner, record.spec, record.submitted_at, size_bytes
        )
        job.lighten(apart)
        job.stored = True
        job.key = record.key
        job.cursor = record.cursor
        job.counts = copy(record.counts)
        job.stopped_by = record.stopped_by
        job.hold = record.hold
        job.freed = record.freed
        job.settled = record.settled
        job.resumed = record.resumed
        return job

    def respecify(self, job: Job, spec: JobSpec) -> None:
        """Gives a job another spec: that of a service with more copies."""
        more_bytes = encoded_bytes(spec) - encoded_bytes(job.spec)
        self.queued_bytes.drop(job)
        job.respecify(spec, job.encoded_bytes + more_bytes)
        self.queued_bytes.add(job)

    def remove_job(self, job: Job) -> None:
        """Removes a job that is active no more."""
        del self.jobs[job.id]
        self.guests.discard(job.id)
        self.queued_bytes.drop(job)
        self.dependencies.release(job)
        self.unpair(job)

    def class_of(self, ad: WorkerAd | None, jid: str) -> WorkerClass:
        """The class of a worker with this ad, which is None if it is not known."""
        if self.supply.too_many_classes():
            self.supply.forget_classes({worker.cls for worker in self.workers.values()})
        if ad is not None:
            self._ask_for_worker(ad)
        return self.supply.class_of(ad, jid)

    def _ask_for_job(self, spec: JobSpec) -> None:
        """Tells workers and jobs apart by what a job's expressions ask."""
        for text in (spec.requirements, spec.rank):
            if text:
                asked = interests_of(text)
                self._ask(asked.mine, asked.others)

    def _ask_for_worker(self, ad: WorkerAd) -> None:
        """Does the same for a worker's expression."""
        if ad.start:
            asked = interests_of(ad.start)
            self._ask(asked.others, asked.mine)

    def _ask(self, of_jobs: Interest, of_workers: Interest) -> None:
        if self.demand.significance.learn(of_jobs):
            self.demand.reshape(self.jobs.values())
        if self.supply.significance.learn(of_workers):
            self.supply.reclass(self.workers.values())

    def _ask_anew(self) -> None:
        """Forgets what nobody asks any more."""
        self.demand.significance.forget()
        self.supply.significance.forget()
        for spec in {
            (job.spec.requirements, job.spec.rank): job.spec for job in self.jobs.values()
        }.values():
            self._ask_for_job(spec)
        for ad in {worker.ad.start: worker.ad for worker in self.workers.values()}.values():
            self._ask_for_worker(ad)
        self.demand.reshape(self.jobs.values())
        self.supply.reclass(self.workers.values())

    def job(self, job_id: int) -> Job | None:
        """A job that is active as far as users know."""
        return self.jobs.get(job_id) or self.ending.get(job_id)

    def unpair(self, job: Job) -> None:
        """Takes a job out of `pairs`: it has ended or is cancelled, and waits for no task."""
        pairing = job.pairing
        if pairing is None:
            return
        children = self.pairs.get(pairing.parent, {})
        children.pop(job.id, None)
        if not children:
            self.pairs.pop(pairing.parent, None)
        if job.cancelling:
            job.pairing = None

    # -- what an event changes ---------------------------------------------------------------------

    def touch(self, worker: Worker) -> None:
        """Marks a worker that may take other tasks now, to look at it again after the event."""
        self.touched_workers[worker.jid] = worker

    def touch_job(self, job: Job) -> None:
        """Marks a job whose needs have changed, to look at it again after the event."""
        self.touched_jobs[job] = None

    def touch_tokens(self, names: Iterable[str]) -> None:
        """Marks tokens that may soon be free: workers are looked at for what waits for them."""
        for name in names:
            self.touched_tokens.setdefault(name, self.tokens.free(name))

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

    def refuse(
        self, request: str, code: str, message: str, hint: str = "", cause: str = ""
    ) -> bool:
        """Tells whoever asked for something why it is not done; returns False.

        Args:
            code: of `kestrelctl.errors`.
        """
        answer = Answer(request=request, error=code, message=message, cause=cause, hint=hint)
        self.emit(answer)
        return False

    def emit(self, effect: Effect) -> None:
        """Adds an effect. One that waits for a commit comes behind all that was recorded."""
        if effect.after_commit:
            self._flush_records()
        self._effects.append(effect)

    def recall(self, worker: Worker, numbers: list[int], *, makes_room: bool = False) -> None:
        """Asks a worker to give back attempts that wait there.

        Args:
            makes_room: whether that is because others came, and not for a fault of its own.
        """
        worker.recalls = (*worker.recalls, makes_room)
        self.emit(Recall(worker=worker.jid, numbers=numbers))

    def note(self, level: str, text: str) -> None:
        """Adds a note that an operator should read."""
        self.emit(Note(level=level, text=text))

    def tell_member(self, worker: Worker, kind: str, reason: str = "") -> None:
        """Says what happened to a worker, unless a neighbour lends it: that is no member.

        Args:
            kind: one of `member_change.MEMBER_KINDS`.
        """
        if not is_neighbour(worker.jid):
            self.emit(
                MemberChanged(at=self.at, kind=kind, worker=worker.jid, ad=worker.ad, reason=reason)
            )

    def take_effects(self) -> list[Effect]:
        """Takes all that is to be done, in order; it counts as done from now on."""
        self._flush_records()
        effects, self._effects = self._effects, []
        return effects

    def _flush_records(self) -> None:
        if self.records:
            self._effects.append(Persist(records=self.records))
            self.records = []
