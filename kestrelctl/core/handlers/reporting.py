"""Attempts that ended: accepted once, counted, retried or given up. The hot path of the pool.

How running attempts fare is kept in memory alone, until the next word of their worker.
"""

from __future__ import annotations

import msgspec

from kestrelctl.core.attempts.adoption import reach, stop
from kestrelctl.core.attempts.endings import (
    DONE,
    ask_for_more,
    cannot_start,
    finish,
    outlast,
    pause,
    put_back,
    remember,
    was_refused,
)
from kestrelctl.core.attempts.estimates import note_refusal, note_success, refused_asset
from kestrelctl.core.attempts.table import end, note_stages, withdraw
from kestrelctl.core.effects import Acknowledge
from kestrelctl.core.events import Reported, Returned, Staged, Using
from kestrelctl.core.handlers.checkpoints import go_on, keep_checkpoint
from kestrelctl.core.handlers.health import note_failure, note_successes, note_unable
from kestrelctl.core.handlers.holds import hold_if_failing
from kestrelctl.core.handlers.presence import spoke
from kestrelctl.core.handlers.stored_sums import count_stored
from kestrelctl.core.jobs.attempt import Attempt
from kestrelctl.core.jobs.job import Job, Standing, Task
from kestrelctl.core.jobs.stored_bytes import stored_by
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.end_reason import EndKind, EndReason
from kestrelctl.core.model.job.ending_rules import asks_for_more_memory, may_be_retried
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.records import UserGone
from kestrelctl.core.model.result import CLOCK_SLACK_SECONDS, Outcome, Result, bounded, how_it_ended
from kestrelctl.core.model.seal import Proof, Seal
from kestrelctl.core.model.worker.assets import describe
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.use import possible_use
from kestrelctl.core.state import State

#: A job goes to the end of the queue of its priority with each so many failures in a row.
LETS_OTHERS_BY = 10


def on_reported(state: State, event: Reported) -> None:
    """Accepts results, frees what they took, and acknowledges every one, accepted or not.

    A result that no longer counts, or of an attempt that the worker cannot show to have been
    handed, is acknowledged too: the worker need not keep it. While the store fails none is taken
    in: the worker keeps them in its spool, and the manager would in memory.
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
    if had_work:  # who has nothing to do has nothing to report, and is not silent
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
        jid: of the worker.
        seals: that it has shown with them.
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
            # Whoever reports it, it is held against the worker that had it.
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
            if attempt.sent_at:
                added = at - attempt.sent_at - wall_seconds - result.waited_seconds
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
            # A member that ends well after another has not is as good as the others.
            to = TaskState.CANCELLED if job.cancelling and job.spec.span > 1 else DONE
            known = bounded(result, job.submitted_at, at)
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
            _failed(state, worker, task, attempt, known)
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

    The first success of a task without a final state is accepted whichever attempt it comes from
    that was given up or is under way elsewhere, and a later attempt under way is stopped. A failure
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


def _failed(
    state: State, worker: Worker | None, task: Task, attempt: Attempt, result: Result
) -> None:
    job = task.job
    if task.is_unwanted:
        if job.stopped_by and result.outcome == Outcome.KILLED:
            result = msgspec.structs.replace(result, reason=job.stopped_by)
        result = msgspec.structs.replace(result, checkpoint=None)
        finish(state, task, TaskState.CANCELLED, attempt.worker, result)
        return
    task.concluded = max(task.concluded, result.number)
    if result.outcome == Outcome.GOES_ON:
        if result.checkpoint is not None and job.spec.program.checkpoint_exit is not None:
            keep_checkpoint(state, task, result.number, result.checkpoint)
            go_on(state, task, attempt, msgspec.structs.replace(result, checkpoint=None))
            return
        reason = EndKind.CHECKPOINT_FAILED.text("what its worker says of it cannot be")
        result = msgspec.structs.replace(result, outcome=Outcome.FAILED, reason=reason)
    if result.outcome == Outcome.KILLED:
        # Nobody wants it killed any more: the task runs again, and no failure is counted.
        state.tell(
            task.job,
            task.index,
            "moved" if attempt.moved_for else "killed",
            number=result.number,
            worker=attempt.worker,
            detail=attempt.moved_for,
        )
        put_back(state, task, attempt.worker)
        return
    why = EndReason.of(result.reason)
    if why.kind is EndKind.LENT_TIME and is_neighbour(attempt.worker):
        outlast(state, task, attempt, result)
        return
    computed = bool(job.spec.program.stages) and why.has_computed
    if result.outcome == Outcome.UNABLE and not computed:
        cannot_start(state, task, attempt, result.reason)
        # A neighbour that does not run this task may well run others.
        if worker is not None and not worker.cls.distance_seconds:
            note_unable(state, worker, result.reason, state.at)
        return
    if worker is not None and (asset := refused_asset(worker, attempt, result)):
        task.lone_refusals += note_refusal(state, worker, asset, attempt)
        if job.spec.service or task.lone_refusals < state.config.lone_refusals:
            was_refused(state, task, attempt, f"no more {asset}: exit code {result.exit_code}")
            return
        task.lone_refusals = 0  # It is the task, not the asset: that is a failure of it.
    if asks_for_more_memory(job.spec, task.memory_step, result):
        _ask_for_more(state, task, attempt, result)
        return
    if job.spec.service:
        _start_again(state, task, attempt, result)
        return
    state.totals.attempts_failed += 1
    if job.spec.program.stages:
        state.totals.stage_failures[why.stage or RUN] += 1
    task.failures += 1
    job.failed_in_row += 1
    if job.failed_in_row % LETS_OTHERS_BY == 0:
        job.line = state.next_job_id
    if worker is not None:
        worker.tasks_failed += 1
        note_failure(state, worker, job, attempt.sent_at, result, state.at)
    _give_up_or_retry(state, task, attempt, result)
    hold_if_failing(state, job, result)


def _give_up_or_retry(state: State, task: Task, attempt: Attempt, result: Result) -> None:
    """Ends a task that has failed, or lets it pause before its next attempt, as its job says."""
    job = task.job
    if task.failures >= job.spec.max_failures or not may_be_retried(job.spec, result):
        finish(state, task, TaskState.FAILED, attempt.worker, result)
        return
    state.totals.retries["failure"] += 1
    state.tell(
        task.job,
        task.index,
        "failed",
        number=result.number,
        worker=attempt.worker,
        detail=f"ran {result.wall_seconds:,.3f} s; "
        + how_it_ended(result.reason, result.signal, result.exit_code),
    )
    remember(state, task, TaskState.WAITING, attempt.worker, result)
    pause(state, task, task.failures - 1)


def _start_again(state: State, task: Task, attempt: Attempt, result: Result) -> None:
    """Lets a copy of a service pause that has ended, however it did. It counts as no failure."""
    config = state.config
    if result.wall_seconds >= config.service_settled_seconds:
        task.quick_ends = 0
    task.restarts += 1
    state.totals.retries["service"] += 1
    how = how_it_ended(result.reason, result.signal, result.exit_code)
    state.tell(
        task.job,
        task.index,
        "restarted",
        number=result.number,
        worker=attempt.worker,
        detail=f"ran {result.wall_seconds:,.3f} s; {how}",
    )
    remember(state, task, TaskState.WAITING, attempt.worker, result)
    pause(state, task, task.quick_ends)
    task.quick_ends += 1


def _ask_for_more(state: State, task: Task, attempt: Attempt, result: Result) -> None:
    """Lets a task run again, at once, with more memory. It counts as no failure."""
    ask_for_more(state, task, task.memory_step + 1)
    state.totals.retries["memory"] += 1
    wanted = describe("memory", task.line.shape.request["memory"])
    state.tell(
        task.job,
        task.index,
        "more-memory",
        number=result.number,
        worker=attempt.worker,
        detail=f"{result.reason}; asks for {wanted}",
    )
    remember(state, task, TaskState.WAITING, attempt.worker, result)
    put_back(state, task, "")


def on_returned(state: State, event: Returned) -> None:
    """Makes ready what a worker gave back."""
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
        if not makes_room:  # that goes on as long as users come, and says nothing of the task
            state.tell(task.job, task.index, what, number=number, worker=worker.jid)
        put_back(state, task, worker.jid)
        state.totals.tasks_recalled += 1
    state.touch(worker)


def on_used(state: State, event: Using) -> None:
    """Notes what attempts have used that the worker holds; what it says of others does not count.

    What was noted of attempts that are over goes now, and not when they end: that would be a cost
    for each task, however short.
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
    """Has the usage of each user recorded who has used something since his last record."""
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
