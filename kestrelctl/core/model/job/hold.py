"""A hold on a job: nothing more of it is handed out until somebody releases it."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.numbers import PoolMoment

#: Stands for the pool, which puts a job on hold whose attempts keep failing.
POOL = "pool"
#: The reason of a job that was submitted on hold.
SUBMITTED_SO = "submitted on hold"
MAX_HOLD_REASON_CHARACTERS = 200
MOST_FAILURES_IN_ROW = 1_000_000


class Hold(msgspec.Struct, frozen=True):
    """A hold in force: whose it is, since when, and why.

    Attributes:
        by: the user who wants it so; `POOL` if the pool does.
        at: since when, in seconds since the epoch.
        reason: his words; may be empty.
    """

    by: str
    at: PoolMoment
    reason: str = ""
