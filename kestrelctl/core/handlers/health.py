"""Quarantine: a machine that fails task after task in no time must not eat the queue."""

from __future__ import annotations

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.result import Result, how_it_ended
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.core.state import State


def note_failure(state: State, worker: Worker, job: Job, result: Result, now: float) -> None:
    """Counts a failure against a worker; many fast ones in a row put it in quarantine.

    Only where the fault seems to be the machine's: others must have brought tasks of the same job
    to a good end at least as often as they failed. A job that fails everywhere quarantines nobody.
    """
    config = state.config
    if result.wall_seconds > config.quarantine_fast_seconds:
        worker.streak = 0
        return
    worker.streak += 1
    if worker.streak < config.quarantine_failures:
        return
    failed_elsewhere = max(0, job.attempts_failed - worker.streak)
    if job.counts.done == 0 or job.counts.done < failed_elsewhere:
        return
    last = how_it_ended(result.reason, result.signal, result.exit_code)
    quarantine(state, worker, f"{worker.streak} failures in a row, last: {last}", now)


def quarantine(state: State, worker: Worker, why: str, now: float) -> None:
    """Sends a worker nothing for a while, longer each time."""
    if worker.quarantined_until > now:
        return
    config = state.config
    pause = doubled_seconds(
        config.quarantine_seconds, worker.quarantines, config.max_quarantine_seconds
    )
    worker.quarantines += 1
    worker.quarantined_until = now + pause
    state.touch(worker)
    state.totals.workers_quarantined += 1
    state.note("warning", f"worker {worker.jid} is in quarantine for {pause:g} s: {why}")
