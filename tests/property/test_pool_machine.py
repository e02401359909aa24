"""Any order of events whatever: the pool's invariants hold, and all work comes to its end.

Four workers, two of them of the same kind, and what a neighbour lends are played by the machine:
they answer late, twice, wrongly, or not at all. Records become durable when the machine says so,
and a restart loses what is not. Every bound of the core is small, so that a few jobs and workers
cross it.
"""

from __future__ import annotations

import os
import pkgutil
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl import core
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.agent.agent import ENDED
from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.members.availability import closed
from kestrelctl.core.members.worker import Worker as Member
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.files.byte_limit import ByteLimit
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.job.after import After, IfParentFails, WantedEnd, ids_of
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, OnWorkerLost
from kestrelctl.core.model.job.stage import STAGES, Stage
from kestrelctl.core.model.job.task_state import FINAL_STATES, TaskState
from kestrelctl.core.model.records import (
    EndedTasks,
    GroupRecord,
    JobRecord,
    PolicyRecord,
    Record,
    TaskRecord,
    TokenRecord,
    WorkerGone,
    WorkerRecord,
    ended_tasks,
)
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.setting import Setting
from kestrelctl.core.model.share_change import GroupChange, ShareChange
from kestrelctl.core.model.worker.ad import AssetChange, AssetUnit, WorkerAd, changed
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.use import Use
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.pool import Pool
from kestrelctl.core.scheduling.lendable import LendableClasses
from kestrelctl.core.scheduling.own_waiting import own_waiting
from kestrelctl.manager.requests.descent import ended_pairs

PROFILE = settings(
    max_examples=400,
    stateful_step_count=60,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)

#: Bounds of what the core keeps, looks at or counts. How large they are changes no promise.
SMALL = {
    "FEW_WORKERS": 1,
    "KNOWN_JOBS": 1,
    "MAX_HAPPENINGS": 3,
    "MOST_COUNTED": 2,
    "MOST_GIVEN_UP": 2,
    "MOST_KEPT": 1,
    "MOST_LATENCIES": 2,
    "MOST_LOOKED_AT": 2,
    "MOST_PASSED_OVER": 3,
    "MOST_RANKS": 1,
    "MOST_REFUSED": 2,
    "MOST_STIRRED": 1,
    "MOST_STRETCHES": 1,
    "ROUNDS_PER_LOOK": 2,
    "SPARE_CLASSES": 1,
    "SPARE_SHAPES": 1,
    "COMMANDS": 1,
    "_MANY_GONE": 1,
}

MEBIBYTE = 1 << 20
LOAN = "flock@near.example/0a1b2c3d4e5f"
ADS = {
    LOAN: WorkerAd(assets={"cpus": 3.0, "memory": 300.0 * MEBIBYTE}, distance_seconds=0.02),
    "small": WorkerAd(tags=("stages",)),
    "twin": WorkerAd(tags=("checkpoints",)),
    "large": WorkerAd(
        assets={"cpus": 4.0, "memory": 512.0 * MEBIBYTE, "fpga": 2.0, "gpus": 2.0, "db": 3.0},
        units={"gpus": (AssetUnit("a"), AssetUnit("b"))},
        tags=("gpu", "checkpoints", "stages", "guests"),
    ),
    "odd": WorkerAd(
        assets={"cpus": 1.5, "memory": 100.0 * MEBIBYTE}, unknown={"db": 75, "tapes": 69}
    ),
}
CONFIG = Config(
    away_seconds=20.0,
    quarantine_failures=3,
    forget_worker_seconds=100.0,
    max_queued_bytes=4_000,
    most_offline_sessions=1,
    most_idle_users=1,
)

names = st.sampled_from(sorted(ADS))
specs = st.builds(
    JobSpec,
    program=st.builds(
        Program,
        argv=st.just(("true",)),
        stages=st.sampled_from([(), (), (), (Stage(name="out", argv=("put",)),)]),
        checkpoints=st.sampled_from([(), (), ("state",)]),
    ),
    count=st.sampled_from([1, 1, 2, 7, 30]),
    request=st.builds(
        lambda cpus, memory, fpga, gpus, db, seats: {
            "cpus": cpus,
            "memory": memory,
            "fpga": fpga,
            "gpus": gpus,
            "db": db,
            "seats": seats,
        },
        cpus=st.sampled_from([0.3, 1.0, 1.5]),
        memory=st.sampled_from([0.0, 0.0, 90.0 * MEBIBYTE]),
        fpga=st.sampled_from([0.0, 0.0, 0.0, 0.5]),
        gpus=st.sampled_from([0.0, 0.0, 0.0, 0.6, 1.0, 1.5]),
        db=st.sampled_from([0.0, 0.0, 0.0, 0.5, 1.0, 3.0]),
        seats=st.sampled_from([0.0, 0.0, 0.0, 1.0, 1.5]),
    ),
    requires=st.sampled_from([(), (), ("GPU",)]),
    requirements=st.sampled_from(
        ["", "", "", "Cpus >= RequestCpus", 'TARGET.Name != "twin"', "Memory =!= RequestSeats"]
    ),
    rank=st.sampled_from(["", "", "", "Cpus", "-Cpus", "RequestSeats + Fpga", "substr(Arch, 0)"]),
    priority=st.sampled_from([50, 100]),
    max_running=st.sampled_from([None, None, 1, 3]),
    max_failures=st.integers(1, 3),
    max_losses=st.integers(1, 3),
    on_worker_lost=st.sampled_from(OnWorkerLost),
    held=st.sampled_from([False, False, False, True]),
    hold_after=st.sampled_from([None, None, 1, 3]),
    stop_after=st.sampled_from([None, None, None, 1, 2]),
)
specs = specs.flatmap(
    lambda spec: st.sampled_from([1, 1, 1, 2, 3]).map(
        lambda span: (
            spec
            if span == 1
            else msgspec.structs.replace(
                spec,
                span=span,
                count=span,
                max_running=None,
                program=msgspec.structs.replace(spec.program, checkpoints=()),
            )
        )
    )
)
specs = specs.map(
    lambda spec: (
        msgspec.structs.replace(
            spec, program=msgspec.structs.replace(spec.program, checkpoint_exit=85)
        )
        if spec.program.checkpoints and spec.priority == 50
        else spec
    )
)
charges = st.sampled_from(
    [
        "ConsumptionCpus = 0.25 * TARGET.RequestCpus",
        "ConsumptionCpus = Cpus",
        "ConsumptionCpus = quantize(TARGET.RequestCpus, {1})",
        "ConsumptionCpus = 1 - TARGET.RequestCpus",
        "ConsumptionCpus = TARGET.RequestCpus > 1 ? 0 : TARGET.RequestCpus",
        "ConsumptionMemory = quantize(TARGET.RequestMemory, {64})",
        "ConsumptionMemory = Memory / 3",
        "ConsumptionFpga = 0.3",
        "ConsumptionDb = 2 * TARGET.RequestDb",
        "ConsumptionCpus = 1 / (TARGET.RequestCpus - 1)",
    ]
)
outcomes = st.sampled_from(
    [Outcome.DONE, Outcome.FAILED, Outcome.KILLED, Outcome.UNABLE, Outcome.GOES_ON]
)


byte_limits = st.sampled_from([None, "default", 0, 200, 1_000])


def checkpoint_of(job_id: int, index: int, n: int) -> MadeCheckpoint:
    """A checkpoint that says whose it is."""
    sha256 = f"{job_id:032x}{index:032x}"
    piece = Piece(sha256=sha256, size_bytes=1, url=f"https://share/{n}")
    return MadeCheckpoint(n, StoredFile(sha256=sha256, size_bytes=1, pieces=(piece,)))


class Worker:
    """What a worker has, whatever the pool thinks."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process = 0
        self.greeting = 0
        self.welcomed = False
        #: number -> (job id, index, claim), not yet ended
        self.has: dict[int, tuple[int, int, tuple[tuple[str, int], ...]]] = {}
        self.ended: dict[int, Result] = {}  #: not yet acknowledged
        self.history: list[Result] = []  #: everything that it ever reported
        self.ad = ADS[name]

    def holds(self) -> list[tuple[int, int, int, int]]:
        held = [
            (number, job_id, index, place)
            for place, (number, (job_id, index, _)) in enumerate(self.has.items())
        ]
        return held + [(r.number, r.job_id, r.index, ENDED) for r in self.ended.values()]

    def claims(self) -> list[dict[str, int]]:
        return [dict(claim) for _, _, claim in self.has.values()]

    def end(
        self, number: int, outcome: int, now: float, seconds: float = 0.05, exit_code: int = 0
    ) -> None:
        job_id, index, _ = self.has.pop(number)
        goes_on = outcome == Outcome.GOES_ON
        self.ended[number] = Result(
            number,
            job_id,
            index,
            outcome,
            now,
            seconds,
            exit_code=exit_code,
            checkpoint=checkpoint_of(job_id, index, 1) if goes_on else None,
        )


def running(worker: Member) -> dict[int, Claim]:
    """What the pool charges a worker for, by attempt."""
    return {
        number: task.attempt.claim
        for number, task in worker.held.items()
        if task.attempt is not None and task.attempt.phase is Phase.RUNNING
    }


class PoolMachine(RuleBasedStateMachine):
    """Plays users, workers, disk and clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.store = MemoryStore()
        self.workers = {name: Worker(name) for name in sorted(ADS)}
        self.acknowledged: set[int] = set()
        self.final: dict[tuple[int, int], TaskState] = {}
        self.accepted: set[int] = set()
        self.stopped: set[tuple[int, int]] = set()  #: tasks that ended after they were cancelled
        self.retried: set[int] = set()
        self.done: set[tuple[int, int]] = set()
        self.badly: set[tuple[int, int]] = set()  #: tasks that ever ended otherwise
        self.freed: set[int] = set()  #: jobs that wait for no others any more
        self.on_hold: set[int] = set()  #: jobs that are, as far as records say that were decided
        self.requests = 0
        self.broken = False
        self.phases: dict[int, Phase] = {}  #: of the attempts that there were

    # -- the manager's shell -----------------------------------------------------------------------

    @initialize(first=specs, second=specs)
    def begin(self, first: JobSpec, second: JobSpec) -> None:
        """An ordinary morning."""
        self.start()
        for name in sorted(ADS):
            self.hello(name, set(), dies=False)
        self.put_seats(2)
        self.submit(first)
        self.submit(second)
        self.commit()

    def start(self) -> None:
        """A manager starts with what is durable."""
        self.pending: list[Record] = []
        self.waiting: list[fx.Effect] = []
        self.pool = Pool(self.store.open(), CONFIG)
        self.known_workers = set(self.pool.workers)  # durably: the next manager asks them
        self.on_hold = {job.job_id for job in self.store.jobs() if job.hold is not None}
        self.tell(ev.Reconnected(at=self.now))

    def tell(self, event: ev.Event) -> None:
        had = dict(self.pool.queued_bytes.by_account)
        effects = self.pool.handle(event)
        self.must_grow_no_more(had)
        self.do(effects)
        tokens = self.pool.state.tokens
        before = tokens.held.get("seats", 0)
        effects = self.pool.schedule(self.now)
        most = max(before, tokens.total("seats") if tokens.settled else 0)
        assert tokens.held.get("seats", 0) <= most, "more seats are handed out than there are"
        self.must_store_no_more(effects)
        self.do(effects)

    def must_store_no_more(self, handed_out: list[fx.Effect]) -> None:
        """Who has stored all that he may is handed nothing that stores more."""
        runs = [effect for effect in handed_out if isinstance(effect, fx.Run)]
        sent = {job_id for run in runs for _, job_id, _, _, _ in run.spans}
        for job in [
            job for job in self.pool.jobs if job.id in sent and job.spec.program.checkpoints
        ]:
            stored = job.sharer.stored
            limit = stored.limit_bytes
            assert limit is None or sum(stored.by_hour.values()) < limit, "too much is stored"

    def must_grow_no_more(self, had: dict[str, int]) -> None:
        """Nobody's jobs grow beyond what they may be together."""
        for account, size_bytes in self.pool.queued_bytes.by_account.items():
            limit = self.pool.sharers.max_queued_bytes(account)
            allowed = limit is None or size_bytes <= max(limit, had.get(account, 0))
            assert allowed, f"{account} has {size_bytes} bytes of jobs, and may have {limit}"

    def do(self, effects: list[fx.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Persist):
                self.pending += effect.records
                self.note_holds(effect.records)
            elif effect.after_commit and self.pending:
                self.waiting.append(effect)
            else:
                self.do_one(effect)

    def note_holds(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, JobRecord):
                (self.on_hold.discard if record.hold is None else self.on_hold.add)(record.job_id)
                assert record.hold is None or record.state == "active"
                if record.freed and record.job_id not in self.freed:
                    self.freed.add(record.job_id)
                    self.must_be_free(record)

    def do_one(self, effect: fx.Effect) -> None:
        worker = self.workers.get(getattr(effect, "worker", ""))
        if isinstance(effect, fx.Run):
            handed_out = {job_id for _, job_id, _, _, _ in effect.spans}
            assert not handed_out & self.on_hold, "a task of a held job was handed out"
            waiting = {job.id for job in self.pool.jobs if job.spec.after} - self.freed
            assert not handed_out & waiting, "a task was handed out before others had ended"
            self.must_be_behind_ends(effect)
            assert effect.worker in self.known_workers, "the next manager would not ask it"
        match effect:
            case fx.Feed(event=event):
                self.tell(event)
            case fx.Answer(error=None, job_id=job_id, request=request):
                if request.startswith("submit"):
                    self.acknowledged.add(job_id)
            case fx.Acknowledge(numbers=numbers) if worker:
                for number in numbers:
                    worker.ended.pop(number, None)
            case fx.Welcome(greeting=greeting, kill=kill) if worker:
                if greeting == worker.greeting:
                    worker.welcomed = True
                    self.kill(worker, kill)
            case fx.Run(spans=spans, claims=claims) if worker:
                self.must_be_its_own(effect)
                if worker.welcomed:
                    worker.has |= {
                        number + k: (job_id, index + k, tuple(claims[claim].items()))
                        for number, job_id, index, n, claim in spans
                        for k in range(n)
                    }
            case fx.Kill(numbers=numbers) if worker:
                self.kill(worker, numbers)

    def must_be_its_own(self, run: fx.Run) -> None:
        """What an attempt goes on from was made for its task."""
        given = dict(run.checkpoints)
        for number, job_id, index, n, _ in run.spans:
            for k in range(n):
                found = given.pop(number + k, None)
                if found is not None:
                    assert found.stored == checkpoint_of(job_id, index + k, found.n).stored
        assert not given, "a checkpoint of an attempt that is not sent"

    def must_be_behind_ends(self, run: fx.Run) -> None:
        """What the tasks of a job wait for, one for one, has ended as it wants, durably."""
        jobs = {job.id: job for job in self.pool.jobs}
        for _, job_id, index, n, _ in run.spans:
            spec = jobs[job_id].spec
            for each in range(index, index + n) if spec.after_each else ():
                parent = (spec.after_each, each)
                if parent not in self.done:
                    any_end = spec.if_parent_fails is IfParentFails.RUN
                    assert any_end, f"{parent} is not done"
                    known = parent in self.badly or self.never_starts(*parent)
                    assert known, f"{parent} has not ended"

    def never_starts(self, job_id: int, index: int) -> bool:
        """Whether a task without a row is durably cancelled."""
        record = self.store.job(job_id)
        if record is None or record.cancelling or record.state != "active":
            return True
        parent = record.spec.after_each
        if not parent or record.spec.if_parent_fails is not IfParentFails.CANCEL:
            return False
        return (parent, index) in self.badly or self.never_starts(parent, index)

    def must_be_free(self, record: JobRecord) -> None:
        """What a job waited for has ended as it wants, durably."""
        any_end = record.spec.if_parent_fails is IfParentFails.RUN
        for each in record.spec.after:
            for parent in self.store.jobs(ids=range(each.first, each.last + 1)):
                assert parent.state != "active", "it did not wait"
                assert any_end or each.ending.is_met(parent.state), "it is not to run"

    def kill(self, worker: Worker, numbers: list[int]) -> None:
        for number in numbers:
            if number in worker.has:
                worker.end(number, Outcome.KILLED, self.now)

    @precondition(lambda self: not self.pool.state.store_error)
    @rule()
    def commit_some_time(self) -> None:
        self.commit()

    def commit(self) -> None:
        records, self.pending = self.pending, []
        actions, self.waiting = self.waiting, []
        with suppress(StopIteration):
            self.store.commit(records).send(None)
        for record in records:
            self.hold_against_history(record)
        for effect in actions:
            self.do_one(effect)

    def hold_against_history(self, record: Record) -> None:
        if isinstance(record, WorkerRecord):
            self.known_workers.add(record.worker)
        elif isinstance(record, WorkerGone):
            self.known_workers.discard(record.worker)
        if not isinstance(record, TaskRecord):
            return
        key = (record.job_id, record.index)
        if self.final.get(key) is record.state is TaskState.CANCELLED:
            assert key not in self.stopped, f"{key} was stopped twice"
            self.stopped.add(key)
        elif key in self.final:
            self.stopped.discard(key)
            assert record.state is TaskState.WAITING, f"{key} was {self.final[key]}"
            assert self.was_retried(record.job_id), f"nobody wanted {key} again"
            assert self.final.pop(key) is not TaskState.DONE
        if record.result is not None:
            assert record.result.number not in self.accepted, f"{key} is accepted and charged twice"
            assert (record.result.job_id, record.result.index) == key
            self.accepted.add(record.result.number)
        if record.state is TaskState.DONE:
            assert record.result is not None
            assert record.result.outcome == Outcome.DONE
        if record.state in FINAL_STATES:
            self.final[key] = record.state
            (self.done if record.state is TaskState.DONE else self.badly).add(key)

    def was_retried(self, job_id: int) -> bool:
        """Whether a user has retried a job, or one for whose tasks its tasks wait."""
        record = self.store.job(job_id)
        parent = record.spec.after_each if record is not None else 0
        return job_id in self.retried or (parent > 0 and self.was_retried(parent))

    @rule()
    def crash(self) -> None:
        """What was not durable is lost; so is what the workers were told meanwhile."""
        self.start()

    # -- users -------------------------------------------------------------------------------------

    @rule(spec=specs)
    def submit(self, spec: JobSpec) -> None:
        self.requests += 1
        request = f"submit {self.requests}"
        self.tell(ev.Submit(at=self.now, request=request, owner="ada", spec=spec))

    @rule(spec=specs)
    def submit_guest(self, spec: JobSpec) -> None:
        """A neighbour hands in a job of a user who also has some of the pool's own."""
        count = 1 if spec.span > 1 else spec.count
        home = GuestOf(pool="home.example", job_id=7, user="ada", loan="0a1b2c3d4e5f")
        self.submit(msgspec.structs.replace(spec, span=1, count=count, guest=home))

    @rule(
        spec=specs,
        parents=st.sets(st.integers(0, 3), min_size=1, max_size=2),
        ending=st.sampled_from(WantedEnd),
        otherwise=st.sampled_from(IfParentFails),
    )
    def submit_after(
        self, spec: JobSpec, parents: set[int], ending: WantedEnd, otherwise: IfParentFails
    ) -> None:
        """A job that waits for others."""
        ids = sorted({self.some_job(which) for which in parents})
        after = tuple(After(job_id, job_id, ending) for job_id in ids)
        spec = msgspec.structs.replace(spec, after=after, if_parent_fails=otherwise)
        self.requests += 1
        self.tell(
            ev.Submit(
                at=self.now,
                request=f"submit {self.requests}",
                owner="ada",
                spec=spec,
                ended=self.ended(spec),
            )
        )

    @rule(spec=specs, which=st.integers(0, 3), otherwise=st.sampled_from(IfParentFails))
    def submit_after_each(self, spec: JobSpec, which: int, otherwise: IfParentFails) -> None:
        """A job whose tasks wait for those of another, one for one."""
        parent = self.some_job(which)
        known = self.pool.job(parent) or self.store.job(parent)
        if known is None or known.spec.service or known.spec.span > 1:
            return
        whole = msgspec.structs.replace(
            spec,
            count=known.spec.count,
            items=None,
            service=False,
            span=1,
            after_each=parent,
            if_parent_fails=otherwise,
        )
        self.requests += 1
        self.tell(
            ev.Submit(
                at=self.now,
                request=f"submit {self.requests}",
                owner="ada",
                spec=whole,
                paired=ended_pairs(self.store, None, [parent]),
            )
        )

    def ended(self, spec: JobSpec) -> dict[int, str]:
        """The final states of what a job waits for, as the store knows them."""
        found = self.store.jobs(ids=list(ids_of(spec.after)))
        return {job.job_id: job.state for job in found if job.state != "active"}

    @rule(which=st.integers(0, 3))
    def cancel(self, which: int) -> None:
        job_id = self.some_job(which)
        self.tell(ev.Cancel(at=self.now, request="c", job_id=job_id))

    @rule(which=st.integers(0, 3))
    def hold(self, which: int) -> None:
        job_id = self.some_job(which)
        self.tell(ev.PutOnHold(at=self.now, request="h", by="ada", job_id=job_id))

    @rule(which=st.integers(0, 3))
    def release(self, which: int) -> None:
        self.release_job(self.some_job(which))

    def release_job(self, job_id: int) -> None:
        self.tell(ev.Release(at=self.now, request="l", job_id=job_id))

    @rule(which=st.integers(0, 3), indexes=st.lists(st.integers(0, 29), min_size=1))
    def cancel_tasks(self, which: int, indexes: list[int]) -> None:
        job_id = self.some_job(which)
        job = self.pool.job(job_id)
        indexes = [index for index in indexes if job is not None and index < job.spec.count]
        if indexes:
            self.tell(ev.Cancel(at=self.now, request="c", job_id=job_id, indexes=indexes))

    @precondition(lambda self: not self.pool.state.store_error)
    @rule(which=st.integers(0, 3))
    def retry(self, which: int) -> None:
        """As a manager does: it looks into the store when all is durable."""
        self.commit()
        job_id = self.some_job(which)
        record: JobRecord | None = next(iter(self.store.jobs(ids=[job_id])), None)
        if record is not None and record.state == "active":
            record = None
        self.retried.add(job_id)
        bad = self.store.ended_badly(job_id)
        self.tell(
            ev.Retry(
                at=self.now,
                request="r",
                job_id=job_id,
                record=record,
                indexes=bad,
                rest=True,
                ended={} if record is None else self.ended(record.spec),
                bad=[] if record is None else ended_tasks(record, bad).bad,
                paired=self.paired(record),
            )
        )

    def paired(self, record: JobRecord | None) -> EndedTasks | None:
        """What the tasks of an ended job wait for, if that has ended."""
        parent = 0 if record is None else record.spec.after_each
        return ended_pairs(self.store, None, [parent]).get(parent)

    def put(self, setting: Setting | GroupChange) -> None:
        self.tell(ev.PutSetting(at=self.now, request="p", setting=setting))

    def drop(self, kind: type[Setting], name: str) -> None:
        self.tell(ev.DropSetting(at=self.now, request="d", kind=kind, name=name))

    @rule(
        name=st.sampled_from("ab"),
        workers=st.sampled_from(["true", "Cpus > 1", "Memory > 0"]),
        charges=st.lists(charges, min_size=1, max_size=2, unique_by=lambda line: line.split()[0]),
    )
    def put_policy(self, name: str, workers: str, charges: list[str]) -> None:
        """An admin has other tasks charged otherwise; some of what is wanted is refused."""
        text = "\n".join(charges)
        self.put(PolicyRecord(name, workers, text))

    @rule(name=st.sampled_from("ab"))
    def drop_policy(self, name: str) -> None:
        self.drop(PolicyRecord, name)

    @rule(total=st.integers(1, 4))
    def put_seats(self, total: int) -> None:
        """An admin says how many seats the whole pool has."""
        self.put(TokenRecord("seats", total))

    @rule()
    def drop_seats(self) -> None:
        self.drop(TokenRecord, "seats")

    @rule(
        max_queued=st.none() | st.integers(0, 60),
        max_running=st.none() | st.integers(0, 3),
        of_group=st.booleans(),
        weight=st.floats(-1.0, 10.0),
    )
    def set_share(
        self, max_queued: int | None, max_running: int | None, of_group: bool, weight: float
    ) -> None:
        """An admin sets bounds for the user or his group; some of what is wanted is refused."""
        bounds = ShareChange(weight=weight, max_queued=max_queued, max_running=max_running)
        if of_group:
            self.put(GroupChange("g", bounds))
        else:
            self.tell(ev.SetUser(at=self.now, request="s", name="ada", change=bounds, group="g"))

    @rule(limit=st.sampled_from([None, "default", 0, 1, 3]))
    def limit_what_is_stored(self, limit: ByteLimit) -> None:
        """An admin says how much the user may have in the file share."""
        self.tell(
            ev.SetUser(
                at=self.now, request="s", name="ada", change=ShareChange(), max_stored_bytes=limit
            )
        )

    @rule(account=st.sampled_from(["ada", "home.example"]), limit=byte_limits)
    def limit_how_large_jobs_are(self, account: str, limit: ByteLimit) -> None:
        """An admin says how large the jobs of an account may be, perhaps less than they are."""
        self.tell(
            ev.SetUser(
                at=self.now, request="s", name=account, change=ShareChange(), max_queued_bytes=limit
            )
        )

    @rule(name=st.sampled_from("ab"), tags=st.lists(st.sampled_from(["gpu", ""]), max_size=1))
    def put_worker_group(self, name: str, tags: list[str]) -> None:
        """An admin makes a group of workers; one that names nothing is refused."""
        self.put(WorkerGroup(name=name, tags=tuple(tags)))

    @rule(name=st.sampled_from("ab"), order=st.sampled_from([0, -1]))
    def put_flock_rule(self, name: str, order: int) -> None:
        self.put(FlockRule(name=name, direction="lend", action="deny", order=order))

    @rule(kind=st.sampled_from([WorkerGroup, FlockRule]), name=st.sampled_from("ab"))
    def drop_worker_group_or_flock_rule(self, kind: type[Setting], name: str) -> None:
        self.drop(kind, name)

    @rule()
    def drop_group(self) -> None:
        """The user leaves his group, which goes."""
        change = ShareChange()
        self.tell(ev.SetUser(at=self.now, request="s", name="ada", change=change, group=""))
        self.drop(GroupRecord, "g")

    @rule(which=st.integers(0, 3))
    def expire(self, which: int) -> None:
        """It is said that a job has been kept for long enough; of an active one nobody may."""
        job_id = self.some_job(which)
        active = self.pool.job(job_id) is not None
        self.tell(ev.Expire(at=self.now, job_ids=[job_id], sweep=True))
        assert (self.pool.job(job_id) is not None) == active
        if not active:
            self.acknowledged.discard(job_id)

    def some_job(self, which: int) -> int:
        known = sorted(self.acknowledged)
        return known[which % len(known)] if known else 1

    # -- workers -----------------------------------------------------------------------------------

    @rule(
        name=names,
        forgets=st.sets(st.integers(0, 40)),
        dies=st.booleans(),
        computed=st.sets(st.integers(0, 3)),
    )
    def hello(
        self, name: str, forgets: set[int], dies: bool, computed: Collection[int] = ()
    ) -> None:
        """A worker joins, comes back, or is asked; some of what it had may be gone.

        Its next process goes on with what it had computed.
        """
        worker = self.workers[name]
        worker.process += dies
        if dies:
            going = enumerate(worker.has.items())
            worker.has = dict(each for place, each in going if place in computed)
            worker.ad = ADS[name]
        for place, number in enumerate(list(worker.has)):
            if place in forgets:
                del worker.has[number]
        worker.greeting += 1
        worker.welcomed = False
        self.tell(
            ev.Joined(
                at=self.now,
                worker=name,
                incarnation=f"{worker.process}",
                greeting=worker.greeting,
                ad=worker.ad,
                holds=worker.holds(),
                claims=worker.claims(),
                seals=self.seals(worker),
            )
        )

    @rule(name=names, cpus=st.sampled_from([0.5, 1.0, 8.0]), ids=st.sets(st.sampled_from("abc")))
    def resize(self, name: str, cpus: float, ids: set[str]) -> None:
        """A worker has more or less; all that is charged stays as it is."""
        worker = self.workers[name]
        known = self.pool.state.workers.get(name)
        before = {} if known is None else running(known)
        worker.ad = msgspec.structs.replace(
            worker.ad,
            assets={**worker.ad.assets, "cpus": cpus, "gpus": float(len(ids))},
            units={"gpus": tuple(AssetUnit(unit) for unit in sorted(ids))},
        )
        event = ev.Resized(at=self.now, worker=name, ad=worker.ad)
        self.do(self.pool.handle(event))
        if known is not None:
            after = running(known)
            assert before.items() <= after.items(), "a resize ended something, or charged it anew"
        self.do(self.pool.schedule(self.now))

    @rule(name=names, db=st.sampled_from([None, 0.0, 1.0, 4.0]))
    def know(self, name: str, db: float | None) -> None:
        """A worker comes to know how much it has of an asset, or knows it no more."""
        worker = self.workers[name]
        change = AssetChange(unknown={"db": 75}) if db is None else AssetChange(amounts={"db": db})
        worker.ad = changed(worker.ad, change, {})
        self.tell(ev.Resized(at=self.now, worker=name, ad=worker.ad))

    @rule(name=names, capacity=st.sampled_from([1.0, 2.0, 8.0]))
    def another_machine(self, name: str, capacity: float) -> None:
        """A worker is restarted with another size."""
        worker = self.workers[name]
        worker.process += 1
        worker.has.clear()
        worker.greeting += 1
        worker.welcomed = False
        worker.ad = msgspec.structs.replace(
            ADS[name], assets={**ADS[name].assets, "cpus": capacity}
        )
        self.tell(
            ev.Joined(
                at=self.now,
                worker=name,
                incarnation=f"{worker.process}",
                greeting=worker.greeting,
                ad=worker.ad,
                holds=worker.holds(),
                claims=worker.claims(),
                seals=self.seals(worker),
            )
        )

    @rule(
        name=names,
        n=st.integers(1, 9),
        outcome=outcomes,
        seconds=st.sampled_from([0.01, 30.0]),
        exit_code=st.sampled_from([1, 69, 75]),
    )
    def report(self, name: str, n: int, outcome: int, seconds: float, exit_code: int = 0) -> None:
        """Ends; some of the failures say that there was no more of an asset."""
        worker = self.workers[name]
        for number in list(worker.has)[:n]:
            worker.end(number, outcome, self.now, seconds, exit_code)
        self.send_report(worker, list(worker.ended.values()))

    def send_report(self, worker: Worker, results: list[Result]) -> None:
        worker.history += results
        seals = self.seals(worker)
        self.tell(ev.Reported(at=self.now, worker=worker.name, results=results, seals=seals))

    def seals(self, worker: Worker) -> list[Seal]:
        """What it was given with all that it ever had and still has, ended, or reported."""
        attempts = [attempt[:3] for attempt in worker.holds()]
        attempts += [(r.number, r.job_id, r.index) for r in worker.history]
        mark = self.pool.seals.mark
        return [
            (number, job_id, index, 1, mark(worker.name, number, job_id, index, 1))
            for number, job_id, index in attempts
        ]

    @rule(name=names, of=names, outcome=outcomes)
    def report_what_another_has(self, name: str, of: str, outcome: int) -> None:
        """With its seals; nothing may come of it."""
        if name == of:
            return
        before = {job_id: job.counts.total() for job_id, job in self.pool.state.jobs.items()}
        results = [
            Result(number, job_id, index, outcome, self.now, 0.1)
            for number, (job_id, index, _) in self.workers[of].has.items()
        ]
        seals = self.seals(self.workers[of])
        self.tell(ev.Reported(at=self.now, worker=name, results=results, seals=seals))
        for job_id, total in before.items():
            assert self.pool.state.jobs[job_id].counts.total() == total

    @rule(name=names, which=st.integers(0, 100))
    def report_again(self, name: str, which: int) -> None:
        worker = self.workers[name]
        if worker.history:
            self.tell(
                ev.Reported(
                    at=self.now,
                    worker=name,
                    results=[worker.history[which % len(worker.history)]],
                    seals=self.seals(worker),
                )
            )

    @rule(name=names, ahead=st.integers(0, 5), index=st.integers(-1, 40), outcome=outcomes)
    def report_what_never_was(self, name: str, ahead: int, index: int, outcome: int) -> None:
        """Numbers that this start of the manager never gave out; nothing may come of them."""
        before = {job_id: job.counts.total() for job_id, job in self.pool.state.jobs.items()}
        number = self.pool.state.next_number + ahead
        fresh = [job_id for job_id, job in self.pool.state.jobs.items() if not job.cursor]
        for job_id in [*fresh, 10_000]:
            result = Result(number, job_id, index, outcome, self.now, 0.1)
            self.tell(ev.Reported(at=self.now, worker=name, results=[result]))
        for job_id in fresh:
            assert self.pool.state.jobs[job_id].counts.total() == before[job_id]

    @rule(name=names, n=st.integers(1, 40))
    def give_back(self, name: str, n: int) -> None:
        worker = self.workers[name]
        numbers = list(worker.has)[-n:]
        for number in numbers:
            del worker.has[number]
        self.tell(ev.Returned(at=self.now, worker=name, numbers=[*numbers, 3]))

    @rule(name=names)
    def lose(self, name: str) -> None:
        self.tell(ev.Lost(at=self.now, worker=name, cause="unavailable"))

    @rule(name=names)
    def bounce(self, name: str) -> None:
        self.tell(ev.Bounced(at=self.now, worker=name))

    @rule(name=names)
    def hear(self, name: str) -> None:
        self.tell(ev.Heard(at=self.now, worker=name))

    @rule(name=names, of=names, seconds=st.sampled_from([0.0, 60.0, 1e12]))
    def use(self, name: str, of: str, seconds: float) -> None:
        """A worker says what tasks use: its own, and those of another."""
        uses = [Use(number, seconds, seconds, 1 << 20) for number in self.workers[of].has]
        self.tell(ev.Using(at=self.now, worker=name, uses=uses))
        known = self.pool.state.workers.get(name)
        if known is not None and known.synced:
            assert set(known.uses) <= set(known.held)

    @rule(name=names, of=names, stage=st.sampled_from([*STAGES, "nonsense"]))
    def begin_stages(self, name: str, of: str, stage: str) -> None:
        """A worker says in which stage tasks are: its own, and those of another."""
        stages = [(number, stage) for number in self.workers[of].has]
        self.tell(ev.Staged(at=self.now, worker=name, stages=stages))

    @rule(name=names, of=names, n=st.integers(1, 3), lost=st.booleans())
    def checkpoint(self, name: str, of: str, n: int, lost: bool) -> None:
        """A worker tells of checkpoints: of its own tasks, and of those of another."""
        before = {
            (job.id, index): task.checkpoint
            for job in self.pool.state.jobs.values()
            for index, task in job.live.items()
        }
        known = self.pool.state.workers.get(name)
        held = set(known.held) if known is not None and known.synced else set()
        for number, (job_id, index, _) in self.workers[of].has.items():
            made = None if lost else checkpoint_of(job_id, index, n)
            self.tell(ev.Checkpointed(at=self.now, worker=name, number=number, made=made))
            job = self.pool.state.jobs.get(job_id)
            task = job.live.get(index) if job is not None else None
            if task is not None and number not in held:
                assert task.checkpoint == before[job_id, index]

    @rule(name=names)
    def leave(self, name: str) -> None:
        self.tell(ev.Leaving(at=self.now, worker=name))

    @rule(name=names)
    def drain(self, name: str) -> None:
        self.tell(ev.Drain(at=self.now, worker=name, by="root"))

    @rule(name=names)
    def resume(self, name: str) -> None:
        self.tell(ev.Resume(at=self.now, worker=name))

    @rule(name=names)
    def revoke(self, name: str) -> None:
        self.tell(ev.Revoked(at=self.now, worker=name, by="root"))
        assert name not in self.pool.state.workers

    @rule(name=names, n=st.integers(1, 9), outcome=outcomes)
    def tell_another_story(self, name: str, n: int, outcome: int) -> None:
        """What it said before, with another end; the seals are its own."""
        worker = self.workers[name]
        results = [
            msgspec.structs.replace(result, outcome=outcome)
            for result in worker.history[-n:]
            if result.number not in worker.ended
        ]
        seals = self.seals(worker)
        self.tell(ev.Reported(at=self.now, worker=name, results=results, seals=seals))

    @rule(name=names, n=st.integers(1, 9), index=st.integers(0, 40))
    def mix_up(self, name: str, n: int, index: int) -> None:
        """Ends of what it has, but of other tasks than those that it has."""
        worker = self.workers[name]
        results = [
            Result(number, job_id, index, Outcome.DONE, self.now, 0.1)
            for number, (job_id, own, _) in list(worker.has.items())[:n]
            if own != index
        ]
        seals = self.seals(worker)
        before = {job_id: job.counts.total() for job_id, job in self.pool.state.jobs.items()}
        self.tell(ev.Reported(at=self.now, worker=name, results=results, seals=seals))
        for job_id, job in self.pool.state.jobs.items():
            assert job.counts.total() == before[job_id]

    # -- the disk ----------------------------------------------------------------------------------

    @rule()
    def fill_disk(self) -> None:
        self.tell(ev.StoreFailing(at=self.now, why="no space"))

    @precondition(lambda self: self.pool.state.store_error)
    @rule()
    def mend_disk(self) -> None:
        """All that waited is durable now."""
        self.commit()
        self.tell(ev.StoreWell(at=self.now))

    # -- time and the manager's connection ---------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 0.6, 1.9, 5.0, 30.0, 700.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.tell(ev.Tick(at=self.now))

    @rule()
    def disconnect(self) -> None:
        self.tell(ev.Disconnected(at=self.now))

    @precondition(lambda self: not self.pool.state.connected)
    @rule()
    def reconnect(self) -> None:
        self.tell(ev.Reconnected(at=self.now))

    # -- what must hold ----------------------------------------------------------------------------

    @invariant()
    def nothing_is_broken(self) -> None:
        if hasattr(self, "pool"):
            try:
                self.pool.check()
                self.must_count_every_task_once()
                self.must_lend_and_lack_no_more_than_there_is()
                self.must_never_wait_again_that_ran()
            except AssertionError:
                self.broken = True
                raise

    def must_count_every_task_once(self) -> None:
        state = self.pool.state
        found = self.pool.census(self.now)
        remaining = sum(job.remaining for job in state.jobs.values())
        assert found.waiting.total() + found.queued + found.running == remaining
        assert min(found.waiting.values()) >= 0
        assert found.workers_by_state.total() == len(state.workers)
        assert all(found.free[name] <= found.capacity[name] for name in found.capacity)

    def must_never_wait_again_that_ran(self) -> None:
        """An attempt that is charged stays so until it is over (`core.jobs.attempt.LIFE`)."""
        workers = self.pool.state.workers.values()
        attempts = [task.attempt for worker in workers for task in worker.held.values()]
        now = {each.number: each.phase for each in attempts if each is not None}
        for number in now.keys() & self.phases.keys():
            assert (self.phases[number], now[number]) != (Phase.RUNNING, Phase.QUEUED)
        self.phases = now

    def must_lend_and_lack_no_more_than_there_is(self) -> None:
        """What is free is the pool's own and no more than all of it; guests lack nothing here."""
        machines = 0
        lendable = self.pool.lendable(self.now)
        for each in lendable:
            machines += each.machines
            assert all(0 <= n <= each.whole[name] for name, n in each.free.items())
            assert (each.ad.distance_seconds, each.ad.host) == (0.0, "")
        state = self.pool.state
        own = [w for w in state.workers.values() if w.jid != LOAN]
        assert machines <= sum(closed(worker, self.now) is None for worker in own)
        anew = LendableClasses(state.supply).find(
            state.workers.values(),
            state.demand.shapes,
            own_waiting(state.demand),
            self.now,
            starts=state.connected and not state.store_error,
        )
        assert lendable == anew, "what has changed since the last time was not looked at"
        lacking = sum(each.tasks for each in self.pool.unmet(self.now))
        assert lacking <= sum(job.remaining for job in state.jobs.values() if not job.spec.guest)

    @invariant()
    def no_job_is_forgotten(self) -> None:
        for job_id in self.acknowledged:
            assert self.store.jobs(ids=[job_id]), f"acknowledged job {job_id} is gone"

    def teardown(self) -> None:
        """From wherever this led: with honest workers every job comes to its end."""
        if self.broken or not hasattr(self, "pool"):
            return
        self.commit()
        self.tell(ev.StoreWell(at=self.now))
        self.tell(ev.Reconnected(at=self.now))
        free = ShareChange(max_running=None)
        self.tell(ev.SetUser(at=self.now, request="s", name="ada", change=free))
        self.limit_what_is_stored(None)
        self.put(GroupChange("g", free))
        self.drop_policy("a")
        self.drop_policy("b")
        self.put_seats(2)
        for _ in range(1000):
            self.commit()
            if not self.pool.state.jobs and not self.pending:
                break
            self.now += 1.0
            for job_id in sorted(self.on_hold):
                self.release_job(job_id)
            self.give_up_what_spans_too_many()
            self.give_up_what_waits_in_vain()
            for name, worker in self.workers.items():
                known = self.pool.state.workers.get(name)
                self.resume(name)
                whole = worker.ad == ADS[name]
                if known is None or not known.online or not worker.welcomed or not whole:
                    self.hello(name, set(), dies=True)
                self.report(name, 10_000, Outcome.DONE, 1.0)
            self.tell(ev.Tick(at=self.now))
            self.nothing_is_broken()
        left = list(self.pool.state.jobs.values())
        assert not left, f"work is left that nobody will ever do: {left[0].spec}"
        for job_id in self.acknowledged:
            [job] = self.store.jobs(ids=[job_id])
            over = sum(1 for key in self.final if key[0] == job_id)
            assert job.state != "active"
            assert over + job.counts.cancelled >= job.spec.count

    def give_up_what_waits_in_vain(self) -> None:
        """There are jobs that wait until somebody retries what they wait for."""
        for job in list(self.pool.jobs):
            pairing = job.pairing
            waits = pairing is not None and pairing.otherwise is IfParentFails.WAIT
            in_vain = waits and pairing is not None and pairing.in_vain
            if in_vain or (job.parents is not None and job.parents.failed):
                self.tell(ev.Cancel(at=self.now, request="c", job_id=job.id))

    def give_up_what_spans_too_many(self) -> None:
        """There are jobs whose tasks any worker could run, but not so many of them at once."""
        for job in list(self.pool.jobs):
            if job.spec.span > 1 and not self.pool.explain(job, self.now).ever:
                self.tell(ev.Cancel(at=self.now, request="c", job_id=job.id))


def modules_of_the_core() -> list[object]:
    return [
        import_module(found.name)
        for found in pkgutil.walk_packages(core.__path__, f"{core.__name__}.")
    ]


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, bound in SMALL.items():
        found = [module for module in modules_of_the_core() if hasattr(module, name)]
        assert found, f"the core has no bound {name}"
        for module in found:
            monkeypatch.setattr(module, name, bound)


@pytest.mark.usefixtures("small_bounds")
def test_any_order_of_events() -> None:
    run_state_machine_as_test(PoolMachine, settings=PROFILE)
