"""The pool: one state machine behind the manager, the simulator and the tests."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kestrelctl.core.attempts import pairs
from kestrelctl.core.attempts.endings import end_backoffs, in_backoff, settle_job
from kestrelctl.core.attempts.estimates import try_one
from kestrelctl.core.attempts.hand_out import hand_out
from kestrelctl.core.attempts.recounting import ease
from kestrelctl.core.attempts.reserve import keep_workers
from kestrelctl.core.attempts.table import promote
from kestrelctl.core.attempts.token_return import keep_tokens, take_lacking, wake_rest, wake_some
from kestrelctl.core.census import (
    Census,
    TokenNumbers,
    count_tokens,
    take_census,
    take_shortage,
)
from kestrelctl.core.counting.totals import Totals
from kestrelctl.core.effects import Effect, TasksEnded
from kestrelctl.core.events import (
    Bounced,
    Cancel,
    ChangeFlock,
    Checkpointed,
    ClockSet,
    Disconnected,
    Drain,
    DropSetting,
    Event,
    Expire,
    Forget,
    Heard,
    JobClosed,
    JobStored,
    Joined,
    Leaving,
    Lost,
    OwnersTold,
    PropertiesRead,
    PutOnHold,
    PutSetting,
    Reconnected,
    Release,
    Reported,
    Resized,
    Resume,
    Retry,
    Returned,
    Revoked,
    ScaleService,
    SetUser,
    Staged,
    StoreFailing,
    StoreWell,
    Submit,
    SubmitGraph,
    TasksClosed,
    Tick,
    Using,
    Wanted,
    WorkerStored,
)
from kestrelctl.core.features import hold
from kestrelctl.core.features.table import next_due
from kestrelctl.core.handlers import (
    checkpoints,
    draining,
    leases,
    membership,
    recovery,
    reporting,
    services,
    settings,
    spanning,
    submission,
)
from kestrelctl.core.invariants import violations
from kestrelctl.core.jobs.fair_share import Sharers
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.queued_bytes import QueuedBytes
from kestrelctl.core.members.availability import closed
from kestrelctl.core.members.settings_in_force import S
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_groups import WorkerGroups
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.records import FlockPeer, Snapshot
from kestrelctl.core.model.refusal import Refusal
from kestrelctl.core.model.seal import Seals
from kestrelctl.core.model.sealed_epoch import Rank
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.recovery import restore
from kestrelctl.core.scheduling.explain import Explanation, explain
from kestrelctl.core.scheduling.imagined import ImaginedWorkers
from kestrelctl.core.scheduling.lendable import LendableClass, LendableClasses
from kestrelctl.core.scheduling.own_waiting import own_waiting
from kestrelctl.core.scheduling.plan import Plan, plan
from kestrelctl.core.scheduling.recall import (
    guests_to_recall,
    newcomers,
    recalls,
    recalls_for,
)
from kestrelctl.core.scheduling.shortage import Shortage
from kestrelctl.core.scheduling.unmet import Unmet, unmet

#: Pause between two looks at what could be recalled.
RECALL_ROUND_SECONDS = 0.1
#: A round looks at each worker. In a pool of more than so many there are as many fewer rounds.
RECALL_ROUND_WORKERS = 5_000
#: Pause between two looks at all workers, if they are more than a few, for a job that spans too
#: many of them.
TOGETHER_ROUND_SECONDS = 0.1
FEW_WORKERS = 100

_HANDLERS: dict[type[Event], Callable[[Any, Any], None]] = {
    Submit: submission.on_submit,
    SubmitGraph: submission.on_submit_graph,
    JobStored: submission.on_job_stored,
    JobClosed: submission.on_job_closed,
    TasksClosed: pairs.on_tasks_closed,
    OwnersTold: submission.on_owners_told,
    Cancel: submission.on_cancel,
    PutOnHold: hold.on_put_on_hold,
    Release: hold.on_release,
    Retry: submission.on_retry,
    PutSetting: settings.on_put_setting,
    DropSetting: settings.on_drop_setting,
    ChangeFlock: settings.on_change_flock,
    SetUser: settings.on_set_user,
    ScaleService: services.on_scale,
    Forget: submission.on_forget,
    Expire: submission.on_expire,
    Joined: membership.on_joined,
    Resized: membership.on_resized,
    PropertiesRead: membership.on_properties,
    WorkerStored: membership.on_worker_stored,
    Heard: membership.on_heard,
    Lost: membership.on_lost,
    Bounced: membership.on_bounced,
    Drain: draining.on_drain,
    Leaving: draining.on_leaving,
    Wanted: membership.on_wanted,
    Resume: draining.on_resume,
    Revoked: membership.on_revoked,
    Disconnected: membership.on_disconnected,
    Reconnected: membership.on_reconnected,
    Reported: reporting.on_reported,
    Returned: reporting.on_returned,
    Using: reporting.on_used,
    Staged: reporting.on_staged,
    Checkpointed: checkpoints.on_checkpointed,
    StoreFailing: recovery.on_store_failing,
    StoreWell: recovery.on_store_well,
    ClockSet: leases.on_clock_set,
    Tick: leases.on_tick,
}


class Pool:
    """Decides everything about a pool; does nothing itself.

    Feed it events with `handle`, then call `schedule` once per burst, and carry out the effects of
    both in order. See `effects` for which of them wait for a commit. The rest of its methods are
    questions; a shell asks these and leaves `state` alone.

    Attributes:
        rank: how this manager stands to others of the pool.
    """

    def __init__(self, snapshot: Snapshot, config: Config | None = None) -> None:
        self.state = restore(config or Config(), snapshot)
        self.rank = Rank(snapshot.secret, snapshot.term, snapshot.epoch)
        self._lendable = LendableClasses(self.state.supply)
        self._imagined = ImaginedWorkers()

    # -- what happens ------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Takes one event in and returns what is to be done about it."""
        state = self.state
        state.at, state.cause = event.at, event.cause
        _HANDLERS[type(event)](state, event)
        self._settle(event.at)
        return state.take_effects()

    def schedule(self, now: float) -> list[Effect]:
        """Hands out waiting tasks; returns what is to be sent.

        Args:
            now: seconds since the epoch, the same clock as the events'.
        """
        state = self.state
        state.at, state.cause = now, "schedule"
        end_backoffs(state, now)
        if state.kept or state.tokens.kept or (state.demand and now >= state.next_starving_at):
            keep_tokens(state, now)
            keep_workers(state, now)
        if state.demand:
            try_one(state, now)
        self._settle(now)
        if state.connected and not state.store_error:
            if state.demand:
                state.sharers.weigh(now)
                lacking = take_lacking(state)
                wake_some(state, lacking)
                self._hand_out(now)
                if wake_rest(state, lacking):
                    self._hand_out(now)
                if state.demand and state.backlogged:
                    self._let_in(now)
            if state.jobs and now >= state.next_recall_at:
                longer = max(1.0, len(state.workers) / RECALL_ROUND_WORKERS)
                state.next_recall_at = now + RECALL_ROUND_SECONDS * longer
                self._recall(now)
        return state.take_effects()

    def _hand_out(self, now: float) -> None:
        """Hands out tasks as long as there are some, and a worker that can take one."""
        state = self.state
        passed_over: list[Worker] = []
        left = hand_out(state, self._plan(now), now, passed_over)
        self._settle(now)
        if passed_over:
            hand_out(state, self._plan(now), now, passed_over)
            for worker in passed_over:
                state.touch(worker)
            self._settle(now)
        while left and state.demand:
            left = hand_out(state, self._plan(now), now)
            self._settle(now)

    def _plan(self, now: float) -> Plan:
        state = self.state
        due = now >= state.next_together_at
        shared = now < state.shared_until
        found = plan(state.demand, state.supply, state.config, now, together=due, shared=shared)
        while state.supply.newly_failed:
            hold.hold_failed(state)
            self._settle(now)
            found = plan(state.demand, state.supply, state.config, now, together=due, shared=shared)
        if found.too_few and len(state.workers) > FEW_WORKERS:
            state.next_together_at = now + TOGETHER_ROUND_SECONDS
        return found

    def _let_in(self, now: float) -> None:
        """Shortens the queues of workers when a user comes who has nothing anywhere."""
        state = self.state
        turns = newcomers(state.demand, state.supply)
        if not turns:
            return
        state.shared_until = now + state.config.shared_seconds
        workers = state.backlogged.values()
        for worker, numbers in recalls_for(
            turns, workers, state.demand, state.supply, state.config
        ):
            state.recall(worker, numbers, makes_room=True)

    def _recall(self, now: float) -> None:
        """Recalls attempts that had better not wait where they do; mostly nothing waits."""
        state = self.state
        if not state.backlogged:
            return
        if not any(worker.queued for worker in state.backlogged.values()):
            state.backlogged.clear()
            return
        workers = state.workers.values()
        found = recalls(workers, state.demand, state.supply, state.config, now)
        if state.guests:
            found = guests_to_recall(workers, state.demand, state.supply) + found
        for worker, numbers in found:
            if not worker.recalls:
                state.recall(worker, numbers)

    def _settle(self, now: float) -> None:
        """Looks once more at each thing that an event has touched."""
        state = self.state
        if state.touched_jobs:
            if state.demand.spanning:
                for job in list(state.touched_jobs):
                    if job.spec.span > 1 and job.id in state.jobs:
                        spanning.settle_members(state, job)
            for job in [job for job in state.touched_jobs if job.changed]:
                if job.id in state.jobs:
                    for look_at in job.changed:
                        look_at(state, job)
        if state.ended_tasks:
            ended, state.ended_tasks = state.ended_tasks, []
            state.emit(TasksEnded(records=ended))
            if state.pairs:
                pairs.feed_ends(state, ended)
        if state.touched_jobs:
            jobs, state.touched_jobs = state.touched_jobs, {}
            for job in jobs:
                settle_job(state, job, now)
        if state.eased:
            eased, state.eased = state.eased, {}
            ease(state, eased)
        if state.touched_workers:
            workers, state.touched_workers = state.touched_workers, {}
            for worker in workers.values():
                if state.workers.get(worker.jid) is not worker:
                    continue
                if worker.backlog:
                    promote(worker, now)
                if closed(worker, now) is None:
                    state.supply.wake(worker)
                else:
                    state.supply.hide(worker)

    def wake_at(self, now: float) -> float | None:
        """Says when to send the next `Tick` if nothing else happens before.

        Returns:
            Seconds since the epoch; None if nothing can become due by itself.
        """
        state = self.state
        moments = next_due(state)
        if state.backoffs:
            moments.append(state.backoffs[0][0])
        if state.reconcile_until is not None:
            round_over = state.leases_checked_at + leases.LEASE_ROUND_SECONDS
            moments.append(max(state.reconcile_until, round_over))
        if state.workers:
            moments.append(now + leases.LEASE_ROUND_SECONDS)
        if any(job.running for job in state.jobs.values()):
            moments.append(now + RECALL_ROUND_SECONDS)
        return min(moments, default=None)

    def check(self) -> None:
        """Verifies every invariant.

        Raises:
            AssertionError: naming those that are broken.
        """
        found = violations(self.state)
        assert not found, "\n".join(found)

    # -- questions ---------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of this start of the manager."""
        return self.state.epoch

    @property
    def seals(self) -> Seals:
        """The seals of this pool's hand-outs."""
        return self.state.seals

    @property
    def connected(self) -> bool:
        """Whether the manager is connected to the server."""
        return self.state.connected

    @property
    def has_heard(self) -> bool:
        """Whether workers that were there before the start have had the time to say so."""
        return self.state.connected and self.state.reconcile_until is None

    @property
    def online(self) -> int:
        """The number of workers that are online."""
        return self.state.online

    @property
    def totals(self) -> Totals:
        """The counts since the manager's start."""
        return self.state.totals

    @property
    def workers(self) -> Mapping[str, Worker]:
        """Every known worker by its address, those that are offline included."""
        return self.state.workers

    @property
    def jobs(self) -> Collection[Job]:
        """Jobs with tasks that have not ended."""
        return self.state.jobs.values()

    def job(self, job_id: int) -> Job | None:
        """A job that is active as far as users know: its end may not be durable yet."""
        return self.state.job(job_id)

    def order(self, job: Job) -> tuple[float, ...]:
        """The place of a job among others: the lower first."""
        return self.state.demand.order(job)

    def settings(self, kind: type[S]) -> list[S]:
        """Everything of a kind that admins have set, by name."""
        return [setting for _, setting in sorted(self.state.settings.of(kind).items())]

    @property
    def worker_groups(self) -> WorkerGroups:
        """The groups of workers."""
        return self.state.worker_groups

    @property
    def flock_peers(self) -> list[FlockPeer]:
        """Every pool by which to find the flock, by domain."""
        return [peer for _, peer in sorted(self.state.flock.peers.items())]

    def tokens(self) -> list[TokenNumbers]:
        """The tokens that the whole pool has itself, by name."""
        return count_tokens(self.state)

    @property
    def sharers(self) -> Sharers:
        """Users and groups: what is set for them, what they run and have used."""
        return self.state.sharers

    @property
    def queued_bytes(self) -> QueuedBytes:
        """The size of each account's jobs that have not ended."""
        return self.state.queued_bytes

    def census(self, now: float) -> Census:
        """Counts everything."""
        return take_census(self.state, now)

    @property
    def waited_for(self) -> int:
        """The number of jobs whose tasks are waited for by tasks of others."""
        return len(self.state.pairs)

    def is_waited_for(self, job_id: int) -> bool:
        """Whether tasks of others wait for the tasks of a job, so that it must be kept."""
        return job_id in self.state.pairs

    @property
    def next_job_id(self) -> int:
        """The id of the next job: all jobs so far have lower ones."""
        return self.state.next_job_id

    @property
    def config(self) -> Config:
        """The settings of the pool."""
        return self.state.config

    def shortage(self) -> Shortage:
        """Finds the waiting tasks that no placement could run now, and what is missing for them."""
        return take_shortage(self.state)

    def lendable(self, now: float, long_seconds: float = math.inf) -> list[LendableClass]:
        """Finds what of the pool's own workers could be lent, by class, after a scheduling pass.

        Workers that may take nothing, or are kept for a job that starves, are not among them.

        Args:
            long_seconds: own tasks that have waited for so long are overdue.
        """
        state = self.state
        return self._lendable.find(
            state.workers.values(),
            state.demand.shapes,
            own_waiting(state.demand, now - long_seconds),
            now,
            starts=state.connected and not state.store_error,
        )

    def unmet(self, now: float) -> list[Unmet]:
        """Finds the pool's own tasks that wait for nothing but a worker, after a scheduling pass.

        There are none while nothing is handed out, or before workers have said what they still run.
        """
        state = self.state
        if state.store_error or not state.connected:
            return []
        if state.reconcile_until is not None and now < state.reconcile_until:
            return []
        return unmet(own_waiting(state.demand))

    def would_fit(self, shape: Shape, ad: WorkerAd, jid: str) -> Refusal | None:
        """Says why tasks of a shape could never run on a worker with this ad; None if they could.

        Args:
            ad, jid: of a worker that need not be there; the pool does not come to know it by that.
        """
        state = self.state
        of_jobs, policies = state.demand.significance, state.policies
        return self._imagined.refusal(shape, ad, jid, of_jobs, policies)

    def known_tags(self) -> frozenset[str]:
        """Every tag that a worker has, or lately had."""
        return frozenset(tag for supply in self.state.supply.classes() for tag in supply.cls.tags)

    def explain(self, job: Job, now: float) -> Explanation:
        """Explains why a job's tasks wait."""
        state = self.state
        entries = [entry for entry in state.backoffs if entry[1] == job.id]
        until = min((e[0] for e in entries if in_backoff(state, e) is not None), default=None)
        return explain(
            job,
            self.jobs,
            self.workers.values(),
            state.demand,
            state.supply,
            until,
            state.store_error,
            now,
        )
