"""The only place that decides whether a worker may be sent work, and how much starts there."""

from __future__ import annotations

from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.claim import Claim

WORKER_STATES = ("idle", "busy", "draining", "quarantined", "offline", "unheard")


def closed(worker: Worker, now: float) -> Reason | None:
    """Tells why new attempts may not be sent to a worker; None if they may."""
    if not worker.online:
        return Reason.OFFLINE if worker.incarnation else Reason.UNHEARD
    if worker.draining or worker.leaving:
        return Reason.DRAINING
    if worker.quarantined_until > now:
        return Reason.QUARANTINED
    if not (worker.synced and worker.stored):
        return Reason.UNHEARD
    return None


def startable(claim: Claim, free: Amounts, queued: int) -> int:
    """Counts the attempts that a worker would start at once: none passes those that wait there.

    Args:
        free, queued: what the worker has free, and how many attempts wait there.
    """
    return 0 if queued else claim.times_fitting(free)


def worker_state(worker: Worker, now: float) -> str:
    """The state of a worker in one word: one of `WORKER_STATES`."""
    why = closed(worker, now)
    if why is not None:
        return why.value
    return "busy" if worker.held else "idle"
