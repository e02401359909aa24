"""Compares what really happened with what was promised."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import msgspec

from kestrel_worlds.bound_audit import BoundAudit, InUse
from kestrel_worlds.checkpoint_audit import CheckpointAudit
from kestrel_worlds.decisions import Decisions
from kestrel_worlds.outline_audit import OutlineAudit
from kestrel_worlds.pair_audit import PairAudit
from kestrel_worlds.share_audit import ShareAudit
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.stage_audit import StageAudit
from kestrelctl.core.effects import Effect, Persist, Run
from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.job import FAILED_MEMBER, FAILED_TASKS
from kestrelctl.core.jobs.quota import counted
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.end_reason import EndKind, EndReason
from kestrelctl.core.model.job.after import IfParentFails, ids_of
from kestrelctl.core.model.job.ending_rules import asks_for_more_memory, may_be_retried
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.task_state import FINAL_STATES, Counts, TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import GPUS, MILLI, Amounts, amounts
from kestrelctl.core.model.worker.matching_ads import in_lower_case, job_ad, worker_ad
from kestrelctl.core.pool import Pool
from kestrelctl.core.scheduling.expression_answers import Side
from kestrelctl.core.scheduling.judgement import judge
from kestrelctl.core.scheduling.ladder import refusal
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.state import State
from kestrelctl.store.port import CoreStore, StoreRecord


class Execution(msgspec.Struct):
    """One run of a task's command on a machine: the side effect that a task is about."""

    number: int
    job_id: int
    index: int
    worker: str
    request: Amounts
    began_at: float
    gpus: tuple[str, ...] = ()
    ended_at: float | None = None
    outcome: int | None = None  #: None while it runs, and if its worker's death ended it
    refused: str = ""  #: the asset of unknown capacity of which there was no more for it


class Audit:
    """Sees every execution and every commit, and notes whatever breaks a promise.

    Attributes:
        problems: what broke, in words; empty if all is well.
        executions: every run of a command, by attempt number.
        acknowledged_jobs: jobs whose submission was answered.
        accepted_results: how many results became durable.
        over_since: task -> the moment since which its end is durable.
        stopped_since: job -> the moment since which its cancellation is durable.
        killed_at: attempt -> when its end was last ordered.
        stages: is told what came of the stages of attempts.
        checkpoints: checks the checkpoints from which tasks go on.
        decisions: which worker got which task, and how that ended.

    Args:
        calm: as in `OutlineAudit`.
        shares: compares what owners get with what belongs to them; None where more decides that.
    """

    def __init__(
        self, clock: SimulationClock, *, calm: bool = False, shares: ShareAudit | None = None
    ) -> None:
        self.problems: list[str] = []
        self.executions: dict[int, Execution] = {}
        self.acknowledged_jobs: set[int] = set()
        self.accepted_results = 0
        self.over_since: dict[tuple[int, int], float] = {}
        self.stopped_since: dict[int, float] = {}
        self.killed_at: dict[int, float] = {}
        self._clock = clock
        self.stages = StageAudit()
        self.decisions = Decisions()
        self._bounds = BoundAudit()
        self.checkpoints = CheckpointAudit(self.expect)
        self._outlines = OutlineAudit(calm=calm)
        self._pairs = PairAudit()
        self._shares = shares
        self._jobs: dict[int, JobRecord] = {}
        self._rows: dict[tuple[int, int], TaskRecord] = {}
        self._running: dict[str, dict[int, Execution]] = {}
        self._capacity: dict[str, Amounts] = {}
        self._ads: dict[str, WorkerAd] = {}
        #: worker -> how much it really has of assets of unknown capacity
        self._hidden: dict[str, Amounts] = {}
        self._accepted: set[tuple[int, int, int]] = set()
        #: job -> run time of all results that became durable, as a store adds it up
        self._charged: defaultdict[int, float] = defaultdict(float)
        #: attempt number -> (its result, when that was first reported)
        self._results: dict[int, tuple[Result, float]] = {}
        #: Tasks that have run at least once, where shares are watched.
        self._begun: set[tuple[int, int]] = set()
        #: Jobs that the pool has decided to hold, whether that is durable yet or not.
        self._held: set[int] = set()
        self._freed: set[int] = set()
        #: When a task or job that was over was last brought back.
        self._brought_back_at: dict[object, float] = {}

    def expect(self, condition: bool, text: str) -> None:
        """Notes a problem unless the condition holds."""
        if not condition:
            self._clock.tell("audit", "PROBLEM", text)
            self.problems.append(f"{self._clock.now - self._clock.start:.6f}: {text}")

    def is_guest(self, job_id: int) -> bool:
        """Whether a job that is durable belongs to a user of another pool."""
        job = self._jobs.get(job_id)
        return job is not None and job.spec.guest is not None

    def check_pool(self, pool: Pool) -> None:
        """Verifies the pool's invariants."""
        try:
            pool.check()
        except AssertionError as error:
            self.expect(False, str(error))

    def check_bounds(self, pool: Pool) -> None:
        """Verifies that no more is used at once than the pool has, or than an owner may have."""
        running = (
            InUse(one.number, one.worker, self._jobs[one.job_id].owner, one.request)
            for one in self.running()
        )
        for problem in self._bounds.look(pool.state, running, self.killed_at):
            self.expect(False, problem)

    def check_outlines(self, pool: Pool) -> None:
        """Verifies the estimates of assets of unknown capacity."""
        for problem in self._outlines.look(pool.state):
            self.expect(False, problem)

    def check_shares(self, pool: Pool, now: float) -> None:
        """Verifies that everybody gets his share."""
        if self._shares is not None:
            for problem in self._shares.look(pool.state, now):
                self.expect(False, problem)

    def check_schedule(self, pool: Pool, now: float) -> None:
        """Verifies that nothing waits while somebody could take it."""
        state = pool.state
        if not state.connected or state.store_error:
            return
        for shape in state.demand.waiting_shapes():
            if state.tokens.times_free(shape.tokens) < shape.span:
                continue
            asking = [turn.sharer for turn in state.demand.turns() if turn.shapes & shape.bit]
            idle: list[str] = []
            for worker in state.workers.values():
                if not any(_may_have(sharer, shape, worker, state) for sharer in asking):
                    continue
                # The end of a quarantine is noticed with the next look at the leases.
                kept = worker.kept_for
                if kept is not None and kept.shape is not shape:
                    continue  # It makes room for a job that starves.
                left_seconds = worker.remaining_seconds(now)
                if left_seconds is not None and left_seconds <= 0.0:
                    continue
                why_not = refusal(worker, state.supply.of(worker), shape, now - 1.0)
                if why_not is None and not worker.queued:
                    idle.append(worker.jid)
            for jid in idle if len(idle) >= shape.span else ():
                self.expect(False, f"{jid} idles while tasks wait that it could run")
        for problem in self._outlines.look_at_rests(state, now):
            self.expect(False, problem)

    # -- machines ----------------------------------------------------------------------------------

    def machine(
        self,
        worker: str,
        capacity: Amounts,
        ad: WorkerAd | None = None,
        hidden: Amounts | None = None,
    ) -> None:
        """Notes how much of each asset a worker's machine has, and what the worker says of itself.

        Args:
            hidden: how much it really has of the assets of unknown capacity.
        """
        self._capacity[worker] = capacity
        self._hidden[worker] = hidden or {}
        self._outlines.machine(worker, self._hidden[worker])
        if ad is not None:
            self._ads[worker] = ad
        self._running[worker] = {}

    def resized(self, worker: str, capacity: Amounts) -> None:
        """Notes how much of each asset a worker has from now on; what runs may take more."""
        self._capacity[worker] = capacity

    def began(
        self,
        number: int,
        job_id: int,
        index: int,
        worker: str,
        item: str | None,
        gpus: tuple[str, ...] = (),
    ) -> str:
        """Notes that a command starts to run, with this item, and with these GPUs as its own.

        Returns:
            The asset of unknown capacity of which there is no more for it; empty if there is none.
        """
        self.expect(number not in self.executions, f"attempt {number} was started twice")
        job = self._jobs.get(job_id)
        self.expect(job is not None, f"attempt {number} is of job {job_id}, which is not durable")
        request: Amounts = {}
        if job is not None:
            spec = job.spec
            request = amounts(spec.request)
            said = spec.items[index] if spec.items else None
            self.expect(item == said, f"task {job_id}/{index} has the item {item}, not {said}")
            self._agreed(job, worker)
        execution = Execution(number, job_id, index, worker, request, self._clock.now, gpus)
        self.executions[number] = execution
        running = self._running[worker]
        running[number] = execution
        if job is not None and self._shares is not None:
            now = self._clock.now
            cpus = request.get("cpus", 0)
            self._shares.began(job.owner, cpus, now)
            if (job_id, index) not in self._begun:
                delay_seconds = now - job.submitted_at
                for problem in self._shares.few(job.owner, job.spec.count, cpus, delay_seconds):
                    self.expect(False, problem)
            self._begun.add((job_id, index))
        for name, there in self._capacity[worker].items():
            used = self.in_use(worker, name)
            self.expect(used <= there, f"{worker} runs {used} {name} at once, it has {there}")
        wanted = request.get(GPUS, 0)
        self.expect(len(gpus) == -(-wanted // MILLI), f"attempt {number} is told of {gpus}")
        for gpu in gpus:
            # Nobody asks for more than one here, or for one and a half.
            used = sum(one.request[GPUS] for one in running.values() if gpu in one.gpus)
            self.expect(used <= MILLI, f"{used} of GPU {gpu} of {worker} is taken")
        execution.refused = self._lacking(worker, running.values())
        return execution.refused

    def _lacking(self, worker: str, running: Iterable[Execution]) -> str:
        """Finds an asset of unknown capacity of which commands want more than a worker has."""
        for asset, there in self._hidden[worker].items():
            if sum(one.request.get(asset, 0) for one in running if not one.refused) > there:
                return asset
        return ""

    def _agreed(self, job: JobRecord, worker: str) -> None:
        """Checks the whole ads of both sides against each other, as no class or shape does."""
        ad = self._ads.get(worker)
        if ad is None or not (job.spec.requirements or ad.start):
            return
        mine, target = (
            Side(in_lower_case(job_ad(job.spec, job.owner))),
            Side(in_lower_case(worker_ad(ad, worker))),
        )
        why = None
        if job.spec.requirements:
            why = judge(Reason.REQUIREMENTS, job.spec.requirements, mine, target)
        if why is None and ad.start:
            why = judge(Reason.START, ad.start, target, mine)
        self.expect(why is None, f"{worker} runs a task of job {job.job_id} against {why}")

    def ended(self, number: int, outcome: int | None) -> None:
        """Notes that a command has ended; `outcome` is None if its worker's death ended it."""
        execution = self.executions[number]
        del self._running[execution.worker][number]
        execution.ended_at = self._clock.now
        job = self._jobs.get(execution.job_id)
        if job is not None and self._shares is not None:
            self._shares.ended(job.owner, execution.request.get("cpus", 0), self._clock.now)
        execution.outcome = outcome
        if execution.refused and outcome == Outcome.FAILED:
            self._outlines.refused(execution.worker, execution.refused, number)
        elif outcome == Outcome.DONE:
            self._outlines.succeeded(execution.worker, execution.request)

    def kept(self, result: Result) -> None:
        """Notes a result that a worker reports."""
        self._results.setdefault(result.number, (result, self._clock.now))

    def in_use(self, worker: str, asset: str) -> int:
        """Adds up how much of an asset the commands that run on a worker have asked for."""
        return sum(one.request.get(asset, 0) for one in self._running[worker].values())

    def running(self) -> list[Execution]:
        """Lists the commands that run now."""
        return [one for running in self._running.values() for one in running.values()]

    # -- manager -----------------------------------------------------------------------------------

    def manager_started(self, pool: Pool) -> None:
        """Checks that a manager that has read the store has the same jobs on hold as the store."""
        durable = {job_id: job.hold for job_id, job in self._jobs.items() if job.hold is not None}
        known = {job.id: job.hold for job in pool.jobs if job.hold is not None}
        self.expect(known == durable, f"a manager starts with the holds {known}, not {durable}")
        self._held = set(durable)

    def decided(self, effects: Sequence[Effect]) -> None:
        """Checks the effects that the pool wants: nothing of a held job is handed out, and of a job
        that spans workers all members at once or none.
        """
        together: Counter[int] = Counter()
        for effect in effects:
            if isinstance(effect, Persist):
                for record in effect.records:
                    if isinstance(record, JobRecord):
                        held = record.hold is not None
                        (self._held.add if held else self._held.discard)(record.job_id)
                        self._freed_now(record)
                    elif isinstance(record, TaskRecord):
                        self.stages.decided(record)
            elif isinstance(effect, Run):
                self.decisions.handed_out(effect)
                self.checkpoints.handed_out(effect)
                for problem in self._pairs.sent(effect.spans, self._jobs):
                    self.expect(False, problem)
                for span in effect.spans:
                    number, job_id, _, n, _ = span
                    for problem in self.stages.handed_out(span):
                        self.expect(False, problem)
                    self._bounds.sent(number, n, self._clock.now)
                    together[job_id] += n
                    job = self._jobs.get(job_id)
                    free = job is None or not job.spec.after or job_id in self._freed
                    self.expect(free, f"job {job_id} is handed out, and waits for others")
                    text = f"attempt {number} of job {job_id} is handed out, which is on hold"
                    self.expect(job_id not in self._held, text)
        for job_id, sent in together.items():
            job = self._jobs.get(job_id)
            whole = job is None or job.spec.span in (1, sent)
            self.expect(whole, f"{sent} members of job {job_id} are handed out")

    def _freed_now(self, job: JobRecord) -> None:
        """Checks, when a job waits no more, that its parents ended as it wants, durably."""
        if not job.freed or job.job_id in self._freed:
            return
        self._freed.add(job.job_id)
        any_end = job.spec.if_parent_fails is IfParentFails.RUN
        for parent, ending in (
            (id, each.ending) for each in job.spec.after for id in ids_of([each])
        ):
            state = self._jobs[parent].state if parent in self._jobs else "unknown"
            met = state != "active" and (any_end or ending.is_met(state))
            text = f"job {job.job_id} goes on after job {parent}, which is {state}"
            self.expect(met, f"{text} and should be {ending}")

    def answered_submission(self, job_id: int, *, repeated: bool) -> None:
        """Checks a job of which a user is told that it is safe, and whether it was made before."""
        self.expect(job_id in self._jobs, f"job {job_id} was acknowledged before its commit")
        self.expect(
            repeated or job_id not in self.acknowledged_jobs,
            f"job {job_id} was acknowledged twice as a new one",
        )
        self.acknowledged_jobs.add(job_id)

    def tasks_ended(self, records: list[TaskRecord]) -> None:
        """Checks tasks of which the listeners are told that they are over."""
        for record in records:
            durable = self._rows.get((record.job_id, record.index))
            where = f"task {record.job_id}/{record.index}"
            self.expect(durable is not None, f"{where} was said to be over before its commit")
            final = record.state in FINAL_STATES
            self.expect(final, f"{where} was said to be over, but it is {record.state}")

    def job_ended(self, job_id: int) -> None:
        """Checks a job of which the watchers are told that it has ended."""
        job = self._jobs.get(job_id)
        over = job is not None and job.state != "active"
        self.expect(over, f"active job {job_id} was said to be over")

    def acknowledged(self, numbers: list[int]) -> None:
        """Checks results that a worker may forget: those of successes must be final, durably.

        A success that came when its task was over was refused for good, whatever was done since.
        So was a success of an attempt from before a user's retry.
        """
        for number in numbers:
            if number not in self._results:
                self.expect(False, f"{number} was acknowledged, which nobody reported")
                continue
            result, reported_at = self._results[number]
            job_id, index = result.job_id, result.index
            job = self._jobs.get(job_id)
            if result.outcome != Outcome.DONE or job is None or job.state != "active":
                continue
            if job.spec.span > 1:
                continue  # It counts with the good ends of all other members.
            row = self._rows.get((job_id, index))
            over = job.cancelling if row is None else row.state in FINAL_STATES
            was_over = any(
                self._brought_back_at.get(what, 0.0) >= reported_at
                for what in ((job_id, index), job_id)
            )
            fenced = row is not None and number <= row.retried_after
            self.expect(
                over or was_over or fenced,
                f"success {number} of {job_id}/{index} was acknowledged and dropped",
            )

    def told_to_kill(self, numbers: list[int]) -> None:
        """Notes attempts that a worker is told to kill."""
        for number in numbers:
            self.killed_at[number] = self._clock.now

    def committed(self, records: Sequence[StoreRecord]) -> None:
        """Compares each row with the one that it replaces."""
        self.decisions.committed(records)
        for record in records:
            if isinstance(record, (TaskRecord, JobRecord)):
                self._pairs.committed(record)
            if isinstance(record, TaskRecord):
                self._row(self._rows.get((record.job_id, record.index)), record)
                if record.result is not None:
                    self._charged[record.job_id] += record.result.wall_seconds
                problem = self.stages.row(record)
                self.expect(not problem, problem)
                self.checkpoints.committed(record)
                self._rows[record.job_id, record.index] = record
                if record.state in FINAL_STATES:
                    self.over_since[record.job_id, record.index] = self._clock.now
                elif self.over_since.pop((record.job_id, record.index), None) is not None:
                    self._brought_back_at[record.job_id, record.index] = self._clock.now
            elif isinstance(record, JobRecord):
                before = self._jobs.get(record.job_id)
                if before is not None and before.state != "active" == record.state:
                    self._brought_back_at[record.job_id] = self._clock.now
                if before is not None:  # later records lack the items
                    spec = msgspec.structs.replace(record.spec, items=before.spec.items)
                    record = msgspec.structs.replace(record, spec=spec)
                self._jobs[record.job_id] = record
                if record.cancelling:
                    self.stopped_since.setdefault(record.job_id, self._clock.now)
                else:
                    self.stopped_since.pop(record.job_id, None)

    def _row(self, before: TaskRecord | None, row: TaskRecord) -> None:
        where = f"task {row.job_id}/{row.index}"
        failures, losses = (before.failures, before.losses) if before else (0, 0)
        brought_back = before is not None and before.state in FINAL_STATES
        kept = row.retried_after == (before.retried_after if before else 0)
        self.expect(brought_back or kept, f"{where} is fenced, and nobody had it brought back")
        if before is not None and before.state is row.state is TaskState.CANCELLED:
            self.expect(before.result is None, f"{where} was stopped twice")
        elif before is not None and before.state in FINAL_STATES:
            fresh = row.state is TaskState.WAITING and not (row.failures or row.losses)
            self.expect(fresh, f"{where} was {before.state} and became {row.state}")
            self.expect(before.state is not TaskState.DONE, f"{where} was done and is run again")
            return
        result = row.result
        if result is not None:
            key = (row.job_id, row.index, result.number)
            self.expect(key not in self._accepted, f"{where}: {result.number} was accepted twice")
            self._accepted.add(key)
            self.accepted_results += 1
            said = (result.job_id, result.index)
            self.expect(said == key[:2], f"{where} has the result of {said}")
        if row.state is TaskState.DONE:
            ran = self.executions.get(result.number) if result else None
            good = ran is not None and ran.outcome == Outcome.DONE
            self.expect(good, f"{where} is done but its attempt never succeeded")
            self.expect(
                ran is None or (ran.job_id, ran.index, ran.worker) == (*key[:2], row.worker),
                f"{where} is done by an attempt of another task or worker",
            )
        if row.state is TaskState.CANCELLED:
            return
        step = before.memory_step if before is not None and not brought_back else 0
        why = EndReason.of("" if result is None else result.reason)
        asks = why.kind is EndKind.MEMORY_LIMIT
        more = asks and row.memory_step == step + 1
        self.expect(more or row.memory_step == step, f"{where} asks for step {row.memory_step}")
        failed = result is not None and result.outcome == Outcome.FAILED and not more
        by_itself = failed and not why.stage
        refused = by_itself and result is not None and self._was_refused(result.number)
        self.expect(not refused, f"{where} was refused, and that is counted against it")
        self.expect(
            row.failures == failures + failed,
            f"{where}: {failures} failures became {row.failures} with {result and result.number}",
        )
        lost = row.state in (TaskState.WAITING, TaskState.LOST) and result is None
        kept = before is not None and before.checkpoint is not row.checkpoint
        kept = kept or (before is None and row.checkpoint is not None)
        found_again = lost and row.losses == losses - 1
        reset = row.state is TaskState.WAITING and not (row.failures or row.losses)
        self.expect(
            row.losses == losses + lost or found_again or reset or (kept and row.losses == losses),
            f"{where}: {losses} losses became {row.losses} as {row.state}",
        )

    def _was_refused(self, number: int) -> bool:
        execution = self.executions.get(number)
        return execution is not None and execution.refused != ""

    # -- at the end --------------------------------------------------------------------------------

    def verdict(self, tables: CoreStore) -> None:
        """Compares the tables and the machines when all is quiet."""
        for execution in self.running():
            self.expect(False, f"attempt {execution.number} still runs on {execution.worker}")
        jobs = {job.job_id: job for job in tables.jobs(limit=len(self._jobs))}
        for job_id in sorted(self.acknowledged_jobs):
            self.expect(job_id in jobs, f"acknowledged job {job_id} is unknown")
        keys = Counter((job.owner, job.key) for job in jobs.values() if job.key)
        for (_, key), times in keys.items():
            self.expect(times == 1, f"{times} jobs came of the one submission {key}")
        self._charges(jobs)
        for job in jobs.values():
            self._job(job, tables.tasks(job.job_id, limit=job.spec.count))

    def _charges(self, jobs: Iterable[int]) -> None:
        """Checks that each attempt was charged once, with the run time that its worker reported."""
        took: defaultdict[int, float] = defaultdict(float)
        for job_id, _, number in sorted(self._accepted):
            if number in self._results:  # a result that the pool has made took no time
                took[job_id] += self._results[number][0].wall_seconds
        for job_id in jobs:
            charged, really = self._charged[job_id], took[job_id]
            self.expect(
                abs(charged - really) < 1e-6 * (1.0 + really),
                f"job {job_id} is charged {charged} s, its attempts took {really} s",
            )

    def _job(self, job: JobRecord, rows: list[TaskRecord]) -> None:
        where = f"job {job.job_id}"
        spec = job.spec
        self.expect(job.state != "active", f"{where} never ended")
        self.expect(job.hold is None, f"{where} has ended, and is on hold")
        final = {row.index for row in rows if row.state in FINAL_STATES}
        missing = sorted(set(range(job.cursor)) - final)
        self.expect(not missing, f"tasks {missing} of {where} have no final state")
        beyond = [row.index for row in rows if row.index >= job.cursor]
        self.expect(not beyond, f"{where} has rows {beyond} beyond its cursor {job.cursor}")
        never_started = spec.count - job.cursor
        may_never = job.cancelling or bool(spec.after_each)
        self.expect(may_never or not never_started, f"{where}: {never_started} never started")
        counts = Counts(cancelled=never_started)
        for row in rows:
            if row.state in FINAL_STATES:
                setattr(counts, row.state, getattr(counts, row.state) + 1)
            if row.state is TaskState.FAILED:
                result, step = row.result, row.memory_step
                hasty = result is not None and asks_for_more_memory(spec, step, result)
                self.expect(not hasty, f"task {row.index} of {where} had more memory to ask for")
                ruled_out = row.result is not None and not may_be_retried(spec, row.result)
                limit = row.failures == spec.max_failures or ruled_out
                self.expect(limit, f"task {row.index} of {where} failed at {row.failures}")
            if row.state is TaskState.LOST:
                limit = row.losses == spec.max_losses
                self.expect(limit, f"task {row.index} of {where} was lost at {row.losses}")
        blamed = job.stopped_by == FAILED_MEMBER and not (counts.failed or counts.lost)
        self.expect(not blamed, f"{where} was stopped, though no member of it has failed")
        failed, most = counts.failed + counts.lost, spec.stop_after or math.inf
        hasty = job.stopped_by == FAILED_TASKS and failed < most
        self.expect(not hasty, f"{where} was stopped after {failed} failed tasks, not {most}")
        # The invariants check after each event that it does not go on after them. Here that cannot
        # be told: if a job was not stopped, its other tasks may have been cancelled one by one.
        together = counts.done in (0, spec.count)
        self.expect(spec.span == 1 or together, f"{counts.done} members of {where} are done")
        self.expect(counts == job.counts, f"{where} says {job.counts}, its rows say {counts}")
        self.expect(job.state == counts.outcome(), f"{where} is {job.state} with {counts}")


def _may_have(sharer: Sharer, shape: Shape, worker: Worker, state: State) -> bool:
    """Whether the quotas of a user leave room for one more task of a shape at a worker."""
    terms = state.supply.of(worker).terms(shape)
    charged = terms.claim.amounts if isinstance(terms, Terms) else shape.request
    wanted = counted(charged, shape.tokens)
    return all(quota.room(wanted, shape.span) >= shape.span for quota in sharer.quotas)
