"""A job has ended, durably: those that wait for it go on, or are cancelled.

Not before: a manager that is killed would run the parent again, and its children had run.
"""

from __future__ import annotations

from collections import deque

from kestrelctl.core.events import JobClosed, JobStored
from kestrelctl.core.handlers import submission
from kestrelctl.core.jobs.job import PARENT, Job
from kestrelctl.core.jobs.parents import Parents
from kestrelctl.core.state import State


def on_job_stored(state: State, event: JobStored) -> None:
    """Lets jobs run that are durable now; of those that wait in vain already, none will."""
    submission.on_job_stored(state, event)
    for job_id in range(event.job_id, event.job_id + event.jobs):
        job = state.jobs.get(job_id)
        if job is not None and job.parents is not None and job.parents.failed:
            _look_at(state, [job.parents])


def on_job_closed(state: State, event: JobClosed) -> None:
    """Drops what was kept about a job until the store had the last word, and settles who waited."""
    ended = state.ending.pop(event.job_id, None)
    state.forgetting.discard(event.job_id)
    if ended is not None and event.job_id in state.dependencies:
        _settle(state, event.job_id, ended.counts.outcome())


def settle_all(state: State) -> None:
    """Does what was left to do when the manager ended: parents had ended, nobody had been told."""
    _look_at(state, state.dependencies.all())


def _settle(state: State, parent: int, outcome: str) -> None:
    found = [each for each in state.dependencies.of(parent) if each.settle(parent, outcome)]
    _look_at(state, found)


def _look_at(state: State, waits: list[Parents]) -> None:
    """Frees or cancels those that wait for no more, and what waits for these in turn.

    What waits for the good end of a cancelled child is cancelled with it: it need not wait until
    each before it is durable, because what ended the first one is.
    """
    to_do = deque(waits)
    while to_do:
        parents = to_do.popleft()
        for child in state.dependencies.children(parents):
            otherwise = child.spec.if_parent_fails
            if parents.let_go(otherwise):
                _free(state, child)
            elif parents.doom(otherwise) and child.stored:
                _cancel(state, child, parents)
                behind = state.dependencies.of(child.id)
                to_do.extend(each for each in behind if each.give_up(child.id))


def _free(state: State, child: Job) -> None:
    state.dependencies.release(child)
    child.freed = True
    for line in child.lines():
        line.waits_since = state.at  # nobody let it starve
    state.record(child.record())
    state.touch_job(child)


def _cancel(state: State, child: Job, parents: Parents) -> None:
    cause, state.cause = state.cause, f"job {next(iter(parents.failed))}"
    child.stopped_by = PARENT
    submission.cancel_all(state, child)
    state.cause = cause
