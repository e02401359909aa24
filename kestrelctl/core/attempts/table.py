"""The table of who has which attempt: the only writer of what workers hold, run and have free.

An attempt begins here, is charged here and ends here. Whoever ends one decides at once what becomes
of its task (`attempts.endings`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from kestrelctl.core.jobs.attempt import Attempt, Phase
from kestrelctl.core.jobs.fair_share import weight_of
from kestrelctl.core.jobs.job import Standing, Task
from kestrelctl.core.jobs.quota import counted
from kestrelctl.core.members.availability import startable
from kestrelctl.core.members.outline import Outline
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.stage import can_be_in
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts, is_of_workers, resized, whole_uses
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.state import State

# An enumeration looks its members up slowly, and these are needed several times for each task.
RUNNING, QUEUED, UNDER_WAY = Phase.RUNNING, Phase.QUEUED, Standing.UNDER_WAY


def begin(
    state: State,
    worker: Worker,
    tasks: Sequence[Task],
    first_number: int,
    claim: Claim,
    now: float,
    sent_at: float | None = None,
    tokens: Amounts | None = None,
) -> None:
    """Gives ready tasks of one line to a worker, with consecutive numbers, and tokens to each.

    As many as have room are charged at once, if nothing waits before them; the others wait there.

    Args:
        sent_at: when they were handed out; None for now.
        tokens: what each holds of the pool's own; None for what they ask for now.
    """
    if sent_at is None:
        sent_at = now
    room = min(len(tasks), startable(claim, worker.free, worker.queued))
    full_at = first_number + room
    jid, held = worker.jid, worker.held
    number = first_number
    if tokens is None:
        tokens = tasks[0].line.shape.tokens
    if tokens:
        state.tokens.hold(tokens, len(tasks))
    for task in tasks:
        phase = RUNNING if number < full_at else QUEUED
        task.attempt = Attempt(number, jid, claim, sent_at, phase, tokens)
        task.standing = UNDER_WAY
        held[number] = task
        number += 1
    if room < len(tasks):
        if worker.backlog is None:
            worker.backlog = deque()
        worker.backlog.extend(zip(range(full_at, number), tasks[room:], strict=True))
        state.backlogged[jid] = worker
    state.supply.note_use(worker)
    job = tasks[0].job
    job.running += len(tasks)
    weight = weight_of(claim)
    job.sharer.hand(weight, len(tasks))
    for quota in job.sharer.quotas:
        quota.take(counted(claim.amounts, tokens), len(tasks))
    if room:
        if claim.takes_units:
            for number in range(first_number, full_at):
                _attempt(held[number]).claim = claim.bind(worker.free)
        else:
            claim.charge(worker.free, room)
        worker.running += room
        worker.running_of[job] = worker.running_of.get(job, 0) + room
        job.sharer.charge(weight, room, now)


def adopt(
    state: State, worker: Worker, task: Task, number: int, claim: Claim, sent_at: float
) -> None:
    """Enters an attempt that a worker already has, for a task that nobody else has.

    It holds its tokens again, even if all of these have been handed out since, or the pool has no
    such asset just now: when it has some again, these are in use. An asset of unknown capacity is
    enough for it, or it would not be there.

    Args:
        sent_at: when it was handed out; 0 if that was before this start of the manager.
    """
    if task.standing is Standing.READY:
        del task.line.ready[task.index]
    if task.job.pairing is not None:
        task.job.pairing.behind.discard(task.index)
    for asset in worker.outlines:
        _make_room(worker, asset, claim.amounts.get(asset, 0))
    tokens = _held_before(worker, task, claim)
    begin(state, worker, [task], number, claim, state.at, sent_at, tokens)


def _held_before(worker: Worker, task: Task, claim: Claim) -> Amounts:
    """Finds the pool's tokens that an attempt of an earlier start was handed out with: those that
    its task asks for now, and the assets that its worker neither has nor charges.
    """
    shape = task.line.shape
    elsewhere = {
        name: whole_uses(n)
        for name, n in shape.request.items()
        if name not in claim.amounts and name not in worker.cls.capacity and not is_of_workers(name)
    }
    return shape.tokens | elsewhere if elsewhere else shape.tokens


def end(state: State, worker: Worker, task: Task) -> Attempt:
    """Takes an attempt from its worker. The caller decides what becomes of the task.

    Returns:
        The attempt as it was, with the phase that it had.

    Raises:
        ValueError: the task has none.
    """
    attempt, job = task.attempt, task.job
    if attempt is None:
        raise ValueError(f"task {task.index} of job {job.id} has no attempt")
    del worker.held[attempt.number]
    sharer = job.sharer
    for quota in sharer.quotas:
        quota.take(counted(attempt.claim.amounts, attempt.tokens), -1)
        if quota.held_back:
            state.eased[quota] = None
    task.attempt = None
    job.running -= 1
    if attempt.tokens:
        state.touch_tokens(attempt.tokens)
        state.tokens.give_back(attempt.tokens)
    if attempt.phase is RUNNING:
        attempt.claim.release(worker.free)
        sharer.release(weight_of(attempt.claim), state.at)
        worker.running -= 1
        running_of = worker.running_of
        left = running_of[job] - 1
        if left:
            running_of[job] = left
        else:
            del running_of[job]
    state.touched_workers[worker.jid] = worker
    state.touched_jobs[job] = None
    return attempt


def move_away(worker: Worker, numbers: Sequence[int], why: str) -> None:
    """Notes that a worker is asked to stop these attempts, so that others start their tasks.

    Args:
        why: what is the matter with the worker, in words.
    """
    for number in numbers:
        _attempt(worker.held[number]).moved_for = why


def note_stages(worker: Worker, stages: Iterable[tuple[int, str]]) -> None:
    """Notes in which stages attempts are, as far as the worker holds them and their jobs have
    these.

    Args:
        stages: (number, name) of each.
    """
    held = worker.held
    for number, name in stages:
        task = held.get(number)
        if task is not None and can_be_in(task.job.spec.program.stages, name):
            _attempt(task).stage = name


def withdraw(state: State, task: Task) -> Attempt | None:
    """Takes a task out of wherever it stands, leaving only `Job.live`.

    Returns:
        The attempt that was under way, if one was.
    """
    if task.attempt is not None:
        return end(state, state.workers[task.attempt.worker], task)
    if task.standing is Standing.READY:
        del task.line.ready[task.index]
    state.touch_job(task.job)
    return None


def estimate(worker: Worker, asset: str, amount: int) -> None:
    """Sets how much of an asset of unknown capacity the pool thinks that there is."""
    outline = worker.outlines[asset]
    worker.free[asset] += amount - outline.estimate
    outline.estimate = amount
    worker.overdrawn = any(left < 0 for left in worker.free.values())


def _make_room(worker: Worker, asset: str, amount: int) -> None:
    """Raises the estimate of an asset of unknown capacity until so much of it is free."""
    lacks = amount - worker.free[asset]
    if lacks > 0:
        estimate(worker, asset, worker.outlines[asset].estimate + lacks)


def _attempt(task: Task) -> Attempt:
    assert task.attempt is not None
    return task.attempt


def resize(worker: Worker, cls: WorkerClass, ad: WorkerAd) -> None:
    """Gives a worker another capacity. What is charged stays charged, even if it is more.

    If the capacity of an asset is unknown from now on, there is at least as much as is charged.

    Args:
        cls: the class of the part of the ad that counts.
    """
    before, outlines = worker.capacity(), worker.outlines
    worker.cls, worker.ad = cls, ad
    worker.outlines = {asset: outlines.get(asset, Outline()) for asset in ad.unknown}
    worker.free = resized(worker.free, before, worker.capacity())
    worker.overdrawn = any(amount < 0 for amount in worker.free.values())
    for asset in worker.outlines.keys() - outlines.keys():
        _make_room(worker, asset, 0)


def promote(worker: Worker, now: float) -> None:
    """Charges attempts that waited, in order, as far as there is room."""
    backlog, held, free, running_of = worker.backlog, worker.held, worker.free, worker.running_of
    while backlog:
        number, task = backlog[0]
        attempt = task.attempt
        if attempt is not None and held.get(number) is task and attempt.phase is QUEUED:
            claim = attempt.claim
            if not claim.fits(free):
                return
            if claim.takes_units:
                attempt.claim = claim.bind(free)
            else:
                claim.charge(free)
            attempt.phase = RUNNING
            attempt.promoted_at = now
            task.job.sharer.charge(weight_of(claim), 1, now)
            worker.running += 1
            running_of[task.job] = running_of.get(task.job, 0) + 1
        backlog.popleft()
    worker.backlog = None
