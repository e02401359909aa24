"""Moves the pool's estimates of assets of unknown capacity; `members.outline` says how far."""

from __future__ import annotations

from kestrelctl.core.attempts import table
from kestrelctl.core.jobs.attempt import Attempt, Phase
from kestrelctl.core.members.outline import exhausted
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.end_reason import ended_by_itself
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.scheduling.match import Terms
from kestrelctl.core.scheduling.supply import ClassSupply
from kestrelctl.core.state import State


def note_success(state: State, worker: Worker, attempt: Attempt) -> None:
    """Notes that an attempt, charged no longer, has ended well: there may be more than thought."""
    if attempt.phase is not Phase.RUNNING:
        return  # nobody knows what ran beside it
    for asset, outline in worker.outlines.items():
        amount = attempt.claim.amounts.get(asset, 0)
        if amount:
            free = worker.free[asset] - amount
            found = outline.after_success(attempt.number, amount, free)
            _move(state, worker, asset, found)


def note_time(state: State, worker: Worker, now: float) -> None:
    """Counts attempts that have run for a while as if they had ended well: they were not refused.

    Also looks again at a worker that is kept for a job, or where nothing of an asset is taken: it
    may rest no more, or less may have waited when it was looked at than waits now.

    Without the first, a pool that runs copies of a service would never find out that there is room
    for more.
    """
    latest = now - state.config.accepted_seconds
    for asset, outline in worker.outlines.items():
        idle = outline.rests_until <= now and worker.free[asset] >= outline.estimate
        if worker.kept_for is not None or (idle and state.demand):
            state.touch(worker)
        for number, task in worker.held.items():
            attempt = task.attempt
            if attempt is None or attempt.phase is not Phase.RUNNING or attempt.sent_at > latest:
                continue
            amount = attempt.claim.amounts.get(asset, 0)
            if amount:
                found = outline.after_success(number, amount, worker.free[asset])
                _move(state, worker, asset, found)


def refused_asset(worker: Worker, attempt: Attempt, result: Result) -> str:
    """Names the asset of which an attempt says that there was no more; empty if it just failed.

    An attempt that a limit or a signal ended says nothing by its exit status.
    """
    by_itself = ended_by_itself(result.reason)
    if result.outcome != Outcome.FAILED or result.signal or not by_itself:
        return ""
    return exhausted(worker.ad.unknown, attempt.claim.amounts, result.exit_code)


def was_alone(worker: Worker, asset: str, attempt: Attempt) -> bool:
    """Whether an attempt was refused more of an asset though nothing else took any of it."""
    return worker.outlines[asset].was_alone(attempt.number, attempt.claim.amounts[asset])


def note_refusal(state: State, worker: Worker, asset: str, attempt: Attempt) -> bool:
    """Notes that there was no more of an asset for an attempt: there is less than thought.

    Returns:
        Whether that was so though nothing else took any of it.
    """
    outline, alone = worker.outlines[asset], was_alone(worker, asset, attempt)
    found = outline.after_refusal(attempt.number, attempt.claim.amounts[asset])
    if not found:
        outline.rests_until = state.at + state.config.unable_pause_seconds
    _move(state, worker, asset, found)
    return alone


def try_one(state: State, now: float) -> None:
    """Lets workers try one task that asks for more than is thought to be there.

    Nothing else would show that there is more. Where nothing of an asset is taken, the task that
    asks for the least of it may go there; where a worker is kept for a job, a task of that job.
    Only workers at which something has changed are looked at: this is called before each plan.
    """
    for supply in state.supply.guessed():
        for asset in supply.cls.unknown if supply.hungry else ():
            amounts = [_amount(supply, shape, asset) for shape in state.demand.waiting_shapes()]
            least = min(filter(None, amounts), default=0)
            for worker in supply.hungry.values():
                kept = worker.kept_for
                amount = least if kept is None else _amount(supply, kept.shape, asset)
                outline = worker.outlines[asset]
                taken = worker.free[asset] < outline.estimate
                if outline.estimate < amount and not taken and outline.rests_until <= now:
                    _move(state, worker, asset, amount)


def _amount(supply: ClassSupply, shape: Shape, asset: str) -> int:
    """The amount of an asset that a task of a shape takes there; 0 if it cannot run there."""
    terms = supply.terms(shape)
    return terms.claim.amounts.get(asset, 0) if isinstance(terms, Terms) else 0


def _move(state: State, worker: Worker, asset: str, estimate: int) -> None:
    outline = worker.outlines[asset]
    if estimate != outline.estimate:
        if estimate < outline.estimate:
            outline.fell = state.next_number
        outline.changed = state.next_number
        table.estimate(worker, asset, estimate)
        state.touch(worker)
