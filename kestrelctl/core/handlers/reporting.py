"""Attempts that ended: accepted once, counted, retried or given up. The hot path of the pool.

The state of running attempts is kept in memory alone, until the next word of their worker.
"""

from __future__ import annotations

from kestrelctl.core.attempts.adoption import reach, stop
from kestrelctl.core.attempts.endings import (
    DONE,
    finish,
    put_back,
)
from kestrelctl.core.attempts.estimates import note_success
from kestrelctl.core.attempts.table import end, note_stages, withdraw
from kestrelctl.core.effects import Acknowledge
from kestrelctl.core.events import Reported, Returned, Staged, Using
from kestrelctl.core.features.stored_bytes import count_stored
from kestrelctl.core.handlers.health import note_successes
from kestrelctl.core.handlers.presence import spoke
from kestrelctl.core.handlers.verdict import conclude
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.jobs.stored_bytes import stored_by
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import UserGone
from kestrelctl.core.model.result import CLOCK_SLACK_SECONDS, Outcome, Result, bounded
from kestrelctl.core.model.seal import Proof, Seal
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.use import possible_use
from kestrelctl.core.state import State


def on_reported(state: State, event: Reported) -> None:
    """Accepts results, frees what they took, and acknowledges every one, accepted or not.

    A result that no longer counts, or of an attempt that the worker cannot show to have been
    handed, is acknowledged too: the worker need not keep it. While the store fails, none is taken
    in: the worker keeps them in its spool, while the manager would keep them in memory.
    """
    worker = state.workers.get(event.worker)
    if state.store_error:
        if spoke(state, event.worker, event.at) is not None:
            state.unread[event.worker] = None
        return
    had_work = worker is not None and bool(worker.held)
    results = event.results
    if state.demand.spanning and worker is not None:
        results = [result for result in results if not _is_early(state, worker, result)]
    accept(state, event.worker, results, event.seals, event.at)
    worker = spoke(state, event.worker, event.at)
    if worker is None:
        return
    if had_work:  # a worker with nothing to do has nothing to report, and is not silent
        longest_seconds = max([0.0, *(result.wall_seconds for result in event.results)])
        worker.silence.end(event.at, longest_seconds)
    if event.results:
        last = event.results[-1]
        worker.skew.learn(last.started_at + last.wall_seconds, event.at)
    state.touch(worker)


def _is_early(state: State, worker: Worker, result: Result) -> bool:
    """Whether a member of a job that spans workers has ended well; if so, that is noted.

    It is not accepted before the others have: if one of them fails, all run again. Until then the
    worker keeps the result, and the pool its place, which programs that the first member has
    started there may still use.
    """
    task = worker.held.get(result.number)
    if task is None or task.job.spec.span == 1:
        return False
    if (task.job.id, task.index) != (result.job_id, result.index):
        return False
    if result.outcome != Outcome.DONE or task.is_unwanted or task.attempt is None:
        return False
    task.attempt.early = result
    state.touch_job(task.job)
    return True


def accept(state: State, jid: str, results: list[Result], seals: list[Seal], at: float) -> None:
    """Accepts results that a worker has, frees what they took, and acknowledges every one.

    Args:
        jid: the address of the worker.
        seals: those that it has shown with them.
        at: when it reported them.
    """
    worker = state.workers.get(jid)
    had: Worker | None
    held = worker.held if worker is not None else {}
    totals = state.totals
    ran: list[float] = []
    dispatched: list[float] = []
    walls: dict[Job, list[float]] = {}
    proof: Proof | None = None  # made when it is needed, which is rare
    sent: dict[Job, float] = {}
    for result in results:
        task = held.get(result.number)
        if (
            task is not None
            and worker is not None
            and task.index == result.index
            and task.job.id == result.job_id
        ):
            attempt, had = end(state, worker, task), worker
        else:
            if proof is None:
                proof = state.seals.proven(jid, seals)
            if not proof.covers(result.number, result.job_id, result.index):
                totals.attempts_unproven += 1
                continue
            late = _late(state, result, jid)
            if late is None:
                totals.reports_refused += 1
                continue
            task, attempt = late
            # It is held against the worker that had it, whichever worker reports it.
            had = state.workers.get(attempt.worker, worker)
        job = task.job
        if result.stages:
            result = bounded(result, job.submitted_at, at)
            totals.count_stages(result.stages)
        if result.outcome == Outcome.DONE and not job.spec.service:
            job.failed_in_row = 0
            ran.append(result.wall_seconds)
            wall_seconds = result.wall_seconds + result.stored_seconds  # it had its place so long
            if result.stages:
                wall_seconds = result.held_seconds()
            known = bounded(result, job.submitted_at, at)
            if attempt.sent_at:
                added = at - attempt.sent_at - wall_seconds - known.waited_seconds
                dispatched.append(added)
                job.note_latency(added)
            if had is not worker:
                job.learn(wall_seconds, 1)
                if had is not None:
                    note_successes(state, had, job, attempt.sent_at, [wall_seconds], 0.0)
            elif (of_job := walls.get(job)) is None:
                walls[job] = [wall_seconds]
                sent[job] = attempt.sent_at
            else:
                of_job.append(wall_seconds)
            # A member that ends well after another has not is worth no more than the others.
            to = TaskState.CANCELLED if job.cancelling and job.spec.span > 1 else DONE
            finish(state, task, to, jid, known)
            if worker is not None:
                worker.streak = 0
                worker.tasks_done += 1
                if worker.outlines:
                    note_success(state, worker, attempt)
        else:
            # Its job does not learn from its time: a machine that fails at once is not a fast one.
            if result.outcome == Outcome.FAILED:
                ran.append(result.wall_seconds)
            known = bounded(result, job.submitted_at, at)
            conclude(state, worker, task, attempt, known)
        if known.stored_seconds:
            keep_logs = job.spec.program.keep_logs or state.config.keep_logs
            totals.stored.count(known, keep_logs=keep_logs)
            count_stored(state, job.sharer, stored_by(known))
    totals.runs.observe_all(ran)
    totals.dispatches.observe_all(dispatched)
    for job, seconds in walls.items():
        job.learn(sum(seconds, 0.0), len(seconds))
        if worker is not None:
            ahead_seconds = -min(dispatched, default=0.0)
            note_successes(state, worker, job, sent[job], seconds, ahead_seconds)
    if results:
        state.emit(Acknowledge(worker=jid, numbers=[result.number for result in results]))


def _late(state: State, result: Result, jid: str) -> tuple[Task, Attempt] | None:
    """The task of a result whose attempt the pool had given up or, after a restart, never knew.

    The first success of a task without a final state is accepted from any attempt that was given up
    or is under way elsewhere, and a later attempt under way is stopped. A failure
    of an attempt already given up is not held against the task a second time. An attempt that its
    worker gave back, or whose end it has reported, is over: it cannot end the task after all.
    So is one from before a user's retry.
    """
    job = state.jobs.get(result.job_id)
    if job is None:
        return None
    if result.index >= job.cursor:
        if job.cancelling:
            return None
        reach(state, job, result.index)
    task = job.live.get(result.index)
    if task is None:
        return None
    spans = job.spec.span > 1  # it counts with those of the other members or not at all
    if result.outcome != Outcome.DONE or job.spec.service or spans:
        if task.is_over(result.number):
            return None
        if spans or (task.standing is not Standing.UNHEARD and not job.cancelling):
            # It is acknowledged, so the worker forgets it: a hello under way must not revive it.
            task.refuse(result.number)
            return None
    elif result.number == task.concluded or result.number <= task.retried_after:
        return None  # it was reported as something else, or is from before a user's retry
    found = Attempt(result.number, jid, Claim(job.shape.request), 0.0)
    under_way = task.attempt
    if result.number >= state.first_number:
        if under_way is not None and under_way.number == result.number:
            found = under_way
        elif (given_up := task.hear_of(result.number)) is not None:
            found = given_up
        else:
            return None
    if under_way is not None:
        stop(state, task)
    else:
        withdraw(state, task)
    return task, found


def on_returned(state: State, event: Returned) -> None:
    """Makes tasks ready whose attempts a worker gave back."""
    spoke(state, event.worker, event.at)
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    what = "recalled" if worker.recalls else "given-back"
    makes_room = any(worker.recalls[:1])
    worker.recalls = worker.recalls[1:]
    for number in reversed(event.numbers):
        task = worker.held.get(number)
        if task is None:
            continue
        end(state, worker, task)
        if not makes_room:  # such recalls go on as long as users come, and say nothing of the task
            state.tell(task.job, task.index, what, number=number, worker=worker.jid)
        put_back(state, task, worker.jid)
        state.totals.tasks_recalled += 1
    state.touch(worker)


def on_used(state: State, event: Using) -> None:
    """Notes what attempts have used that the worker holds; what it says of others does not count.

    Notes of attempts that are over are dropped now, and not when they end: that would be a cost for
    each task, however short.
    """
    worker = spoke(state, event.worker, event.at)
    if worker is None:
        return
    held = worker.held
    uses = {number: found for number, found in worker.uses.items() if number in held}
    for use in event.uses:
        task = held.get(use.number)
        if task is not None and task.attempt is not None:
            since = task.attempt.sent_at or task.job.submitted_at
            longest_seconds = max(0.0, event.at - since) + CLOCK_SLACK_SECONDS
            uses[use.number] = (event.at, possible_use(use, longest_seconds))
    worker.uses = uses


def on_staged(state: State, event: Staged) -> None:
    """Notes which stages attempts have begun that the worker holds."""
    worker = spoke(state, event.worker, event.at)
    if worker is not None:
        note_stages(worker, event.stages)


#: Pause between two records of a user: a manager that dies forgets no more than so much.
USAGE_RECORD_SECONDS = 60.0
#: Less than so many weighted seconds is nothing but rounding.
LEAST_RECORDED_SECONDS = 0.001


def record_usage(state: State, now: float) -> None:
    """Records the usage of each user who has used something since his last record."""
    if now - state.usage_recorded_at < USAGE_RECORD_SECONDS:
        return
    state.usage_recorded_at = now
    half_life_seconds = state.config.usage_half_life_seconds
    for sharer in state.sharers.users():
        if sharer.used_since_record(now, half_life_seconds) > LEAST_RECORDED_SECONDS:
            sharer.fold(now, half_life_seconds)
            sharer.record = sharer.recorded(now, half_life_seconds)
            state.record(sharer.record)
    if state.sharers.too_many:
        with_jobs = {job.sharer for job in state.jobs.values()}
        for sharer in state.sharers.forget_idle(with_jobs, now):
            if sharer.record.usage_at:  # it was recorded
                state.record(UserGone(sharer.name))
