"""Operators say how many tokens the whole pool has."""

from __future__ import annotations

from collections.abc import Mapping

from kestrelctl.core.effects import Answer
from kestrelctl.core.events import DropToken, PutToken
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.plural import plural
from kestrelctl.core.model.records import TokenGone, TokenRecord
from kestrelctl.core.model.validate import problem_with_tokens
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.state import State

#: How many sorts of tokens a pool may have.
MAX_SORTS = 100


def on_put_token(state: State, event: PutToken) -> None:
    """Sets how many tokens of one sort there are.

    Fewer than are held takes none away: nothing new is handed out until enough came back.
    """
    name, known = event.name, event.name in state.tokens
    problem = problem_with_tokens(name, event.total)
    if problem:
        return _refuse(state, event.request, "usage", problem)
    if not known and len(state.tokens.names) >= MAX_SORTS:
        text = f"a pool has at most {MAX_SORTS} assets of its own"
        return _refuse(state, event.request, "usage", text, "kestrelctl pool asset list")
    offering = [] if known else _offering(state.workers, name)
    if offering:
        text = f"{name} is offered by {plural(len(offering), 'worker')}, such as {offering[0]}"
        hint = "an asset is the pool's or the workers': choose another name"
        return _refuse(state, event.request, "usage", text, hint)
    record = TokenRecord(name, event.total)
    state.touch_tokens([name])
    state.tokens.put(record)
    state.record(record)
    if not known:
        _reshape(state, name)
    state.note("info", f"the pool has {event.total:,} {name}, set by {event.cause}")
    state.emit(Answer(request=event.request))
    return None


def on_drop_token(state: State, event: DropToken) -> None:
    """Takes all tokens of one sort away. What holds some goes on; who wants some asks workers."""
    name = event.name
    if name not in state.tokens:
        text = f"the pool has no asset {name[:80]} of its own"
        return _refuse(state, event.request, "not-found", text, "kestrelctl pool asset list")
    state.tokens.remove(name)
    state.record(TokenGone(name))
    _reshape(state, name)
    state.note("info", f"the pool's {name} was removed by {event.cause}")
    state.emit(Answer(request=event.request))
    return None


def note_clash(state: State, worker: str, before: WorkerAd | None, ad: WorkerAd) -> None:
    """Warns of what a worker offers in vain, because the pool has tokens of that name.

    Args:
        before: what it offered until now; None if it is new.
    """
    known = before.assets if before is not None else {}
    for name in state.tokens.names:
        if ad.assets.get(name) and not known.get(name):
            state.note(
                "warning",
                f"worker {worker} offers {name}, which the pool has itself: the worker's is not "
                "used",
            )


def _offering(workers: Mapping[str, Worker], name: str) -> list[str]:
    return [jid for jid, worker in workers.items() if worker.ad.assets.get(name)]


def _reshape(state: State, name: str) -> None:
    """Holds jobs that ask for this against workers anew."""
    asking = [job for job in state.jobs.values() if job.spec.request.get(name)]
    state.demand.reshape(asking)
    for shape in state.demand.waiting_shapes():
        if name in shape.tokens or name in shape.request:
            state.supply.wake_for(shape)


def _refuse(state: State, request: str, code: str, message: str, hint: str = "") -> None:
    state.emit(Answer(request=request, error=code, message=message, hint=hint))
