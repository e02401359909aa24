"""Assets of the whole pool: how many tokens of each there are."""

from __future__ import annotations

from kestrelctl.core.model.records import TokenRecord
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import problem_with_tokens
from kestrelctl.core.settings.kind import SettingKind
from kestrelctl.core.state import State
from kestrelctl.errors import UsageError


def _must_make_sense(wanted: TokenRecord) -> None:
    problem = problem_with_tokens(wanted.name, wanted.total)
    if problem:
        raise UsageError(problem)


def _checked(state: State, wanted: TokenRecord) -> TokenRecord:
    name = wanted.name
    if name not in state.tokens:
        offering = [jid for jid, w in state.workers.items() if w.ad.assets.get(name)]
        if offering:
            raise UsageError(
                f"{name} is offered by {plural(len(offering), 'worker')}, such as {offering[0]}",
                hint="an asset is the pool's or the workers': choose another name",
            )
    return wanted


def _put(state: State, tokens: TokenRecord, is_new: bool) -> None:
    """Sets how many there are. Fewer than are held takes none away: nothing new is handed out
    until enough came back.
    """
    state.touch_tokens([tokens.name])
    state.tokens.put(tokens)
    if is_new:
        _reshape(state, tokens.name)


def _removed(state: State, tokens: TokenRecord) -> None:
    """Removes all of a sort. Holders go on; jobs that want some ask workers for them."""
    state.tokens.remove(tokens.name)
    _reshape(state, tokens.name)


def _reshape(state: State, name: str) -> None:
    """Compares jobs that ask for this asset with workers anew."""
    asking = [job for job in state.jobs.values() if job.spec.request.get(name)]
    state.demand.reshape(asking)
    for shape in state.demand.waiting_shapes():
        if name in shape.tokens or name in shape.request:
            state.supply.wake_for(shape)


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


POOL_ASSETS = SettingKind(
    word="asset",
    struct=TokenRecord,
    wanted=TokenRecord,
    most=100,
    one="the pool's {}",
    many="assets of its own",
    missing="the pool has no asset {} of its own",
    listed_by="kestrelctl pool asset list",
    said="the pool has {0.total:,} {0.name}, set",
    must_make_sense=_must_make_sense,
    checked=_checked,
    restore=lambda state, tokens: state.tokens.put(tokens),
    put=_put,
    removed=_removed,
)
