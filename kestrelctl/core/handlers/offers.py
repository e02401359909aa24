"""Limits how much one account may offer: a worker that claims the world must not get it."""

from __future__ import annotations

from kestrelctl.core.effects import AskWho
from kestrelctl.core.events import Joined, Resized
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.worker.ad import WorkerAd, with_cpus
from kestrelctl.core.model.worker.assets import MILLI
from kestrelctl.core.state import State


def admitted(state: State, event: Joined | Resized, worker: Worker | None) -> WorkerAd:
    """The part of a worker's ad that counts: an account has a limit for all its workers together.

    A neighbour has none: it lends no more than the pool has asked it for.

    Args:
        worker: as it was before it said so; None if it is new.
    """
    if is_neighbour(event.worker):
        return event.ad
    account = event.worker.partition("/")[0]
    others = sum(
        other.cls.capacity.get("cpus", 0)
        for jid, other in state.sessions.get(account, {}).items()
        if jid != event.worker
    )
    most = state.config.max_account_cpus
    ad = with_cpus(event.ad, most - others / MILLI)
    if ad is not event.ad and (worker is None or worker.ad != event.ad or not worker.is_cut):
        state.note(
            "warning",
            f"worker {event.worker} offers {event.ad.assets['cpus']:,.10g} cpus, of which "
            f"{ad.assets['cpus']:,.10g} count: one account may offer {most:,.10g}",
        )
    return ad


def ask_for_more(state: State, account: str) -> None:
    """Asks workers for another hello whose ads counted for less while another one was there."""
    for worker in state.sessions.get(account, {}).values():
        if worker.synced and worker.is_cut:
            state.emit(AskWho(worker=worker.jid))
