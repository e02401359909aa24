"""How much the tasks of one user may have in the file share: what may be set."""

from __future__ import annotations

from typing import Final, Literal

from kestrelctl.core.model.result import Whole

#: Bytes; None for any number; or what holds for everybody of whom nothing is set.
StoredLimit = Whole | Literal["default"] | None

AS_FOR_ALL: Final = "default"
#: No sum of bytes, and no limit on one, is more: stores and messages hold a month of such hours.
MOST_STORED_SUM_BYTES = 1 << 53


def problem_with_stored_limit(limit: StoredLimit) -> str | None:
    """What is wrong with a limit; None if all is well."""
    if not isinstance(limit, int) or 0 <= limit <= MOST_STORED_SUM_BYTES:
        return None
    return f"max_stored is 0 to {MOST_STORED_SUM_BYTES:,} bytes, or none, not {limit:,}"
