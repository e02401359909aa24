"""Quarantine: a machine that breaks, or lies, must not eat the queue.

Four things lead there: failures in a row and successes in no time, where others at the same job at
the same time fare otherwise; losses in a row; and being unable to start anything. A failure that
all machines have is the job's fault, and quarantines nobody; nor is more than a share of a pool
ever out.
"""

from __future__ import annotations

import msgspec

from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.job import Job
from kestrelctl.core.jobs.recent import Recent
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.result import Result, how_it_ended
from kestrelctl.core.pacing.backoff import doubled_seconds
from kestrelctl.core.state import State

#: Failures that are no likelier than this without a fault of the machine are held against it.
UNLIKELY_FAILURES = 1e-4
#: The same for successes in no time. The question is asked far more often, and of good machines.
UNLIKELY_SPEED = 1e-7
#: A machine that is more than so many times as fast as the others is not believed.
UNBELIEVABLE = 100.0
#: Nothing follows from an attempt that still runs until it has run for so long.
LEAST_SLOW_SECONDS = 1.0
#: The rounds that come back between two checks whether a machine is to be believed.
ROUNDS_PER_LOOK = 32
#: Rounds are remembered of at most twice as many accounts as there are workers and this together.
SPARE_ACCOUNTS = 100
#: A worker may give any reason why it cannot start a task; so much of it is kept.
MOST_REASON_CHARACTERS = 200


def note_failure(
    state: State, worker: Worker, job: Job, sent_at: float, result: Result, now: float
) -> None:
    """Counts a failure against a worker; many fast ones in a row put it in quarantine.

    Args:
        sent_at: when the attempt was handed out; 0 if it was adopted.
    """
    config = state.config
    took_seconds = result.held_seconds() if result.stages else result.wall_seconds
    if took_seconds > config.quarantine_fast_seconds:
        worker.streak = 0
        return
    worker.streak += 1
    fresh = _note(worker, job, sent_at, took_seconds, took_seconds, now, failed=True)
    # At a neighbour, one machine may fail a row of tasks while the others do well.
    side_by_side = worker.running if worker.cls.distance_seconds else 0
    if worker.streak < config.quarantine_failures + side_by_side or not fresh:
        return
    found = _recent(job).failures_of(worker.account)
    if found is None or found.chance() > UNLIKELY_FAILURES:
        return
    last = how_it_ended(result.reason, result.signal, result.exit_code)
    text = f"{worker.streak} failures in a row where others succeed, last: {last}"
    quarantine(state, worker, "failures", text, now, job)


def note_successes(
    state: State,
    worker: Worker,
    job: Job,
    sent_at: float,
    seconds: list[float],
    ahead_seconds: float,
) -> None:
    """Doubts a worker all of whose tasks of a job take next to no time, if others' do not.

    Args:
        sent_at: when the first of the attempts was handed out; 0 if it was adopted.
        seconds: their run times, as the worker has it.
        ahead_seconds: how much longer one of them ran than there was time; not above 0 if none did.
    """
    now = state.at
    shortest, longest = min(seconds), max(seconds)
    if job.latest_account != worker.account:
        job.before_seconds = job.latest_seconds
        job.latest_account = worker.account
    job.latest_seconds = shortest
    if ahead_seconds > 0.0:
        longest = max(longest - ahead_seconds, 0.0)
        shortest = min(shortest, longest)
    if not _note(worker, job, sent_at, shortest, longest, now, failed=False):
        return
    # Rounds count for the account: a session that is soon followed by another one hides nothing.
    rounds = state.rounds[worker.account] = state.rounds.get(worker.account, 0) + 1
    if rounds == 1 and len(state.rounds) > 2 * (len(state.workers) + SPARE_ACCOUNTS):
        known = {each.account for each in state.workers.values()}
        state.rounds = {name: n for name, n in state.rounds.items() if name in known}
    if rounds % ROUNDS_PER_LOOK:
        return
    recent = _recent(job)
    own = recent.successes_of(worker.account)
    if own is None:
        return
    rounds, since, longest = own
    slow_seconds = longest * UNBELIEVABLE
    found = recent.speeds(worker.account, rounds, since, slow_seconds)
    if found.alike >= found.mine:
        return
    still = _still_running(state, worker, job, since, max(slow_seconds, LEAST_SLOW_SECONDS))
    if msgspec.structs.replace(found, unlike=found.unlike + still).chance() <= UNLIKELY_SPEED:
        text = f"its tasks of job {job.id} take at most {longest:.3g} s, those of others 100 times"
        quarantine(state, worker, "speed", text + " as long", now, job)


def _note(
    worker: Worker,
    job: Job,
    sent_at: float,
    shortest: float,
    longest: float,
    now: float,
    *,
    failed: bool,
) -> bool:
    """Remembers what came back; returns whether it was a round of its own."""
    if not sent_at:
        return False
    fresh = sent_at >= worker.round_at
    if fresh:
        worker.round_at = now
    if job.spec.count > 1:  # with a single task, there are no others to compare
        _recent(job).add(worker.account, sent_at, shortest, longest, failed=failed, fresh=fresh)
    return fresh


def _recent(job: Job) -> Recent:
    if job.recent is None:
        job.recent = Recent()
    return job.recent


def _still_running(state: State, worker: Worker, job: Job, since: float, seconds: float) -> int:
    """Counts the attempts of other accounts that have already run for longer than that.

    Their time counts until the worker last spoke: nobody knows what has ended at a silent one.
    """
    found = 0
    beside = (w for w in state.workers.values() if w.account != worker.account)
    for other in beside:
        if job not in other.running_of:
            continue
        for task in other.held.values():
            attempt = task.attempt
            if attempt is None or attempt.phase is not Phase.RUNNING:
                break  # the attempts behind it wait, too
            runs = other.heard_at - attempt.sent_at
            meanwhile = attempt.sent_at >= since - LEAST_SLOW_SECONDS
            found += task.job is job and runs > seconds and meanwhile
    return found


def note_lapse(state: State, worker: Worker, now: float) -> None:
    """Counts a loss against a worker that had work; one that is lost too often is quarantined."""
    config = state.config
    recent = now - config.quarantine_losses_seconds
    worker.lapses = [at for at in worker.lapses if at > recent] + [now]
    if len(worker.lapses) >= config.quarantine_losses:
        text = f"lost {len(worker.lapses)} times within {config.quarantine_losses_seconds:g} s"
        quarantine(state, worker, "losses", text, now)


def note_unable(state: State, worker: Worker, why: str, now: float) -> None:
    """Lets a worker rest that cannot start anything, however much it is needed."""
    if not quarantine(state, worker, "unable", why, now) and worker.quarantined_until <= now:
        _set_aside(state, worker, state.config.unable_pause_seconds, why, now)


def quarantine(
    state: State, worker: Worker, cause: str, why: str, now: float, job: Job | None = None
) -> bool:
    """Sends a worker nothing for a while, longer each time; not if too many are out already.

    Args:
        cause: one of `totals.QUARANTINE_CAUSES`.
        why: the same for people.
        job: where it showed, if it did in one; its story tells it.

    Returns:
        Whether it went out just now.
    """
    if worker.quarantined_until > now or not _dispensable(state, worker, now):
        return False
    config = state.config
    since = now - worker.quarantine_ended_at
    forgiven = int(since / config.quarantine_forgiven_seconds)
    worker.quarantines = max(0, worker.quarantines - forgiven)
    pause = doubled_seconds(
        config.quarantine_seconds, worker.quarantines, config.max_quarantine_seconds
    )
    worker.quarantines += 1
    worker.quarantine_ended_at = now + pause
    state.totals.quarantines[cause] += 1
    _set_aside(state, worker, pause, why, now)
    if job is not None:
        state.tell(job, -1, "quarantined", worker=worker.jid, detail=f"for {pause:g} s: {why}")
    return True


def _dispensable(state: State, worker: Worker, now: float) -> bool:
    """Whether the pool can do without a worker: others are there, and not too many are out.

    It can do without what a neighbour lends as long as it has anybody else. Neighbours count for
    nothing here: what they lend may be gone soon.
    """
    if worker.cls.distance_seconds:
        return state.online > worker.online
    own = [other for other in state.workers.values() if not other.cls.distance_seconds]
    out = sum(other.quarantined_until > now for other in own)
    online = sum(other.online for other in own) + (not worker.online)
    return online > 1 and out < max(1, online // state.config.workers_per_quarantine)


def _set_aside(state: State, worker: Worker, seconds: float, why: str, now: float) -> None:
    worker.quarantined_until = now + seconds
    worker.quarantined_for = why[:MOST_REASON_CHARACTERS]
    for account in [
        name for name, each in state.set_aside.items() if each.quarantined_until <= now
    ]:
        del state.set_aside[account]  # its quarantine is over, and it may be gone
    state.set_aside[worker.account] = worker
    state.touch(worker)
    state.tell_member(worker, "quarantine", worker.quarantined_for)
    text = f"is in quarantine for {seconds:g} s: {worker.quarantined_for}"
    state.note("warning", f"worker {worker.jid} {text}")


def take_over(state: State, worker: Worker, now: float) -> None:
    """Keeps a new worker in the quarantine from which another session of its account has gone."""
    old = state.set_aside.get(worker.account)
    if old is None or old.online or old.quarantined_until <= now:
        return
    worker.quarantined_until, worker.quarantines = old.quarantined_until, old.quarantines
    worker.quarantined_for = old.quarantined_for
    worker.quarantine_ended_at = old.quarantine_ended_at
    state.set_aside[worker.account] = worker
    state.tell_member(worker, "quarantine", worker.quarantined_for)


def release(state: State, worker: Worker, why: str = "its time is over") -> None:
    """Ends a quarantine; failures and losses are counted anew."""
    if worker.quarantined_until:
        state.tell_member(worker, "quarantine-end", why)
    worker.quarantined_until = 0.0
    worker.quarantined_for = ""
    worker.streak = 0
    worker.lapses = []
    state.touch(worker)
