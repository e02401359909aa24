"""A pool's memory after a restart, from what is durable."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.attempts.endings import ask_for_more, settle_job
from kestrelctl.core.attempts.pairs import pair_restored
from kestrelctl.core.features.table import enter, features_of
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.hold import MAX_HOLD_REASON_CHARACTERS, POOL, Hold
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.records import Snapshot, UnfinishedJob, WorkerRecord
from kestrelctl.core.model.seal import Seals
from kestrelctl.core.model.setting import Setting
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd, with_cpus
from kestrelctl.core.scheduling.judgement import problem_with_evaluation
from kestrelctl.core.settings.table import BY_STRUCT
from kestrelctl.core.state import State
from kestrelctl.errors import KestrelError


def restore(config: Config, snapshot: Snapshot) -> State:
    """Makes the state that a manager starts with.

    Tasks that had been dispatched and did not end are unheard of: their workers may still run them,
    and say so when they are asked. Until then nobody knows which tokens are free, what users have
    of their quotas, and how much runs of a job. The manager is not connected yet.
    """
    seals = Seals(snapshot.secret)
    state = State(config, snapshot.epoch, snapshot.next_job_id, seals, features_of)
    state.connected = False
    state.tokens.settled = False
    _restore_settings(state, snapshot.settings)
    state.flock.restore(snapshot.flock_peers)
    state.sharers.settled = False
    state.sharers.restore(snapshot.users, snapshot.stored)
    state.stored_until = state.sharers.first_end()
    restored = [_restore_job(state, unfinished) for unfinished in snapshot.jobs]
    for job in restored:
        was_free = job.freed
        enter(state, job, snapshot.parents)
        if job.freed and not was_free:
            state.record(job.record())  # a parent that is retried later does not stop it again
        pair_restored(state, job, snapshot.paired.get(job.spec.after_each))
        settle_job(state, job, job.submitted_at)
    state.touched_jobs.clear()  # all of them have been settled
    for known in snapshot.workers:
        _restore_worker(state, known)
    return state


def _restore_settings(state: State, settings: Iterable[Setting]) -> None:
    for setting in settings:
        kind = BY_STRUCT[type(setting)]
        try:
            kind.restore(state, setting)
        except KestrelError as error:
            why = f"{error.message}, {error.cause}" if error.cause else error.message
            state.note("error", f"{kind.one.format(setting.name)} is not in force: {why}")
            continue
        state.settings.put(setting)


def _restore_job(state: State, unfinished: UnfinishedJob) -> Job:
    record = unfinished.record
    job = state.restored_job(record, unfinished.apart)
    job.cancelling = record.cancelling
    job.recovering = True
    job.happenings = unfinished.happenings
    for first, last in unfinished.bad:
        job.note_bad(first, last)
    if job.cancelling:
        job.counts.cancelled += job.never_started
    for index in unfinished.unfinished:
        task = job.live[index] = Task(job, index, Standing.UNHEARD)
        task.failures, task.losses = unfinished.counters.get(index, (0, 0))
        task.concluded = unfinished.concluded.get(index, 0)
        task.retried_after = unfinished.retried_after.get(index, 0)
        task.checkpoint = unfinished.checkpoints.get(index)
        task.least_seconds = unfinished.least_seconds.get(index, 0.0)
        ask_for_more(state, task, unfinished.memory_steps.get(index, 0))
    state.totals.tasks_restored += job.remaining
    _hold_if_not_taken(state, job)
    return job


def _hold_if_not_taken(state: State, job: Job) -> None:
    """Puts a job on hold that the pool would not take now: it was taken under other rules, or the
    store is damaged where nothing else shows it. Whoever releases it says that it may run.
    """
    if job.hold is not None or job.cancelling or job.spec.guest is not None:
        return
    problem = problem_with_job(job.spec) or problem_with_evaluation(job.spec)
    if problem is not None:
        job.hold = Hold(POOL, job.submitted_at, problem[:MAX_HOLD_REASON_CHARACTERS])
        state.tell(job, -1, "held", detail=job.hold.reason, cause=POOL)
        state.record(job.record())
        state.note("warning", f"job {job.id} is on hold: {job.hold.reason}")


def _restore_worker(state: State, known: WorkerRecord) -> None:
    ad = known.ad
    if ad is not None and not is_neighbour(known.worker):
        ad = with_cpus(ad, state.config.max_account_cpus)
    worker = Worker(known.worker, state.class_of(ad, known.worker), known.ad or WorkerAd(), 0.0)
    worker.stored = True
    worker.draining = known.draining
    state.workers[known.worker] = worker
