"""What tasks have stored is counted for their users, and counts no more when the share drops it."""

from __future__ import annotations

from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.stored_bytes import hour_of
from kestrelctl.core.model.records import StoredRecord
from kestrelctl.core.state import State


def count_stored(state: State, sharer: Sharer, size_bytes: int) -> None:
    """Counts files of a user of which the pool hears now; the sum goes with the next commit."""
    if not size_bytes:
        return
    stored = sharer.stored
    was_full = stored.is_full
    together = stored.add(state.at, size_bytes)
    state.record(StoredRecord(sharer.name, hour_of(state.at), together))
    end = stored.first_end()
    if end is not None and (state.stored_until is None or end < state.stored_until):
        state.stored_until = end
    hold_or_let_go(state, sharer, was_full=was_full)


def end_stored(state: State, now: float) -> None:
    """Forgets what the share has deleted by now. Until something is due, that is one comparison."""
    if state.stored_until is None or now < state.stored_until:
        return
    for sharer in state.sharers.users():
        was_full = sharer.stored.is_full
        for hour in sharer.stored.drop_ended(now):
            state.record(StoredRecord(sharer.name, hour, 0))
        hold_or_let_go(state, sharer, was_full=was_full)
    state.stored_until = state.sharers.first_end()


def hold_or_let_go(state: State, sharer: Sharer, *, was_full: bool) -> None:
    """Looks again at the jobs of a user that store something, if they may, or may not, go on now.

    Args:
        was_full: whether they might not before.
    """
    if sharer.stored.is_full == was_full:
        return
    for job in state.jobs.values():
        if job.sharer is sharer and job.stores_files:
            if was_full:
                for line in job.lines():
                    line.waits_since = state.at  # nobody let it starve
            state.touch_job(job)
