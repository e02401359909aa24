"""Reconciles what a worker that says hello still holds with what the pool believes.

The earlier surviving attempt of a task wins: work that was begun is kept, a repetition is stopped.
"""

from __future__ import annotations

from kestrelctl.core.attempts import table
from kestrelctl.core.attempts.endings import find_again, lose, put_back, write_passed
from kestrelctl.core.attempts.suspects import note
from kestrelctl.core.effects import Acknowledge, Kill
from kestrelctl.core.events import Joined
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.records import Progress
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import unit_ids
from kestrelctl.core.model.worker.assets import with_units
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.unit_claim import claim_of
from kestrelctl.core.state import State


def end_unnamed(state: State, worker: Worker, event: Joined, *, reborn: bool) -> None:
    """Ends the attempts that a worker should have but did not name.

    Args:
        worker: as it was before it said hello.
        reborn: the worker's process was restarted, so what it no longer holds died with it.
    """
    said = {number for number, *_ in event.holds}
    for number, task in reversed(list(worker.held.items())):
        if number in said:
            continue
        # The attempt died with the process, or came too late: before the welcome nothing counts.
        attempt = table.end(state, worker, task)
        if reborn:
            lose(state, task, attempt, "restarted")
        else:
            put_back(state, task, worker.jid)


def adopt(state: State, worker: Worker, event: Joined) -> list[int]:
    """Gives a worker the attempts that it named, as far as it was handed them and they count.

    Returns:
        The numbers of attempts that the worker shall kill: their tasks are over or run elsewhere,
        or nobody handed it these attempts.
    """
    kill: list[int] = []
    jobs: dict[Job, None] = {}
    indexed = worker.cls.indexed
    claims = [
        claim_of({name: n for name, n in told.items() if n > 0}, indexed) for told in event.claims
    ]
    whole = with_units(worker.cls.capacity, unit_ids(worker.ad))
    proof = state.seals.proven(event.worker, event.seals)
    unproven = 0
    for number, job_id, index, place in event.holds:
        if not proof.covers(number, job_id, index):
            unproven += 1
            kill.append(number)
            continue
        job = state.jobs.get(job_id)
        if job is None:
            kill.append(number)
            continue
        if index >= job.cursor and not job.cancelling:
            reach(state, job, index)
        found = job.live.get(index)
        claim = claims[place] if 0 <= place < len(claims) else Claim(job.shape.request)
        if not claim.fits(whole):  # nobody charged it that: its user would have too much
            claim = Claim(job.shape.request)
        if found is None or not _keep(state, worker, number, found, claim):
            kill.append(number)
        jobs[job] = None
    if unproven:
        state.totals.attempts_unproven += unproven
        state.note(
            "warning",
            f"worker {worker.jid} holds {plural(unproven, 'attempt')} that it was not handed here",
        )
    for job in jobs:
        state.touch_job(job)
        kill.extend(
            number
            for number, task in worker.held.items()
            if task.job is job and task.attempt is not None
            if task.is_unwanted or (task.attempt.moved_for and not task.goes_on)
        )
    return kill


def _keep(state: State, worker: Worker, number: int, task: Task, claim: Claim) -> bool:
    """Gives the task to this attempt unless an earlier one has it, or this one is over."""
    if task.is_over(number):
        return False
    if number in worker.held:
        return True
    other = task.attempt
    if other is not None and other.number <= number:
        return False
    sent_at = 0.0
    if number >= state.first_number:
        # This start sent it: unless it was given up, it was given back or its end was reported.
        given_up = task.hear_of(number)
        if given_up is None:
            return False
        sent_at = given_up.sent_at
    if other is not None:
        stop(state, task)
    table.adopt(state, worker, task, number, claim, sent_at)
    note(worker, task)
    find_again(state, task)
    return True


def stop(state: State, task: Task) -> None:
    """Ends a task's attempt, also at its worker, because an earlier one has survived."""
    attempt = table.withdraw(state, task)
    if attempt is None:
        return
    task.give_up(attempt)
    state.tell(task.job, task.index, "superseded", number=attempt.number, worker=attempt.worker)
    if attempt.early is not None:  # It has ended, and its worker waits for somebody to say so.
        state.emit(Acknowledge(worker=attempt.worker, numbers=[attempt.number]))
    elif state.workers[attempt.worker].online:
        state.emit(Kill(worker=attempt.worker, numbers=[attempt.number]))


def reach(state: State, job: Job, index: int) -> None:
    """Moves a job's cursor past an attempt that an earlier start of the manager sent.

    The durable cursor may lag behind what had been dispatched; other workers may come with the
    tasks that it passes over, so these wait as long as all others that are unheard of.
    """
    passed = job.reach(index)
    if state.connected and state.reconcile_until is None:
        for task in reversed(passed):
            job.line_up(task)
    write_passed(state, job)
    state.touch_job(job)
    state.record(Progress(job.id, job.cursor))
