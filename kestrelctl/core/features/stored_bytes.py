"""`user set --max-stored`: a user who has as much in the file share as is set for him starts
nothing more that stores something, until the share has deleted some of it.
"""

from __future__ import annotations

from kestrelctl.core.features.feature import Feature, Must
from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.jobs.job import Gate, Job
from kestrelctl.core.jobs.stored_bytes import HOUR_SECONDS, hour_of
from kestrelctl.core.model.records import StoredRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.worker.assets import four_digits
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


def _due(state: State, now: float) -> None:
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
        was_full: whether they might not go on before.
    """
    if sharer.stored.is_full == was_full:
        return
    for job in state.jobs.values():
        if job.sharer is sharer and job.stores_files:
            if was_full:
                for line in job.lines():
                    line.waits_since = state.at  # nobody let it starve
            state.touch_job(job)


def _limit(job: Job) -> int | None:
    return 0 if job.stores_files and job.sharer.stored.is_full else None


def _tells(job: Job, now: float) -> Refusal:
    """Tells how much its user has in the file share, of how much, and when less of it counts."""
    stored = job.sharer.stored
    found = f"{_mebibytes(stored.total_bytes)} stored"
    end = stored.first_end()
    if end is not None:
        found += f", less in {max(0.0, end - now) / HOUR_SECONDS:,.1f} h"
    wanted = f"less than {_mebibytes(stored.limit_bytes or 0)}"
    return Refusal(Reason.MAX_STORED, wanted=wanted, found=found)


def _mebibytes(size_bytes: int) -> str:
    return f"{four_digits(size_bytes / (1 << 20))} MiB"


def _violations(state: State, must: Must) -> None:
    until, first = state.stored_until, state.sharers.first_end()
    must(until == first, "what is stored is looked at at %s, and ends at %s", until, first)
    for sharer in state.sharers.users():
        stored = sharer.stored
        adds_up = stored.total_bytes == sum(stored.by_hour.values())
        must(adds_up, "what %s has stored does not add up to %s", sharer.name, stored.total_bytes)


STORED_BYTES = Feature(
    gate=Gate(Reason.MAX_STORED, _limit, _tells),
    due=_due,
    next_due=lambda state: state.stored_until,
    violations=_violations,
)
