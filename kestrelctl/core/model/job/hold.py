"""A hold on a job: nothing more of it is handed out until somebody releases it."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.pool_moment import PoolMoment

#: Who puts a job on hold whose attempts keep failing.
POOL = "pool"
#: Why a job is on hold that was submitted so.
SUBMITTED_SO = "submitted on hold"
MAX_HOLD_REASON_CHARACTERS = 200
MOST_FAILURES_IN_ROW = 1_000_000


class Hold(msgspec.Struct, frozen=True):
    """Why a job hands nothing out.

    Attributes:
        by: the user who wants it so; `POOL` if the pool does.
        at: since when, in seconds since the epoch.
        reason: his words; may be empty.
    """

    by: str
    at: PoolMoment
    reason: str = ""
