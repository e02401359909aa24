"""Limits on the bytes that one user may have of something, such as of files in the share."""

from __future__ import annotations

from typing import Final, Literal

from kestrelctl.core.model.numbers import Whole

#: Bytes; None for any number; `default` for what holds for everybody for whom nothing is set.
ByteLimit = Whole | Literal["default"] | None

AS_FOR_ALL: Final = "default"
#: No sum of bytes, and no limit on one, is more: stores and messages hold a month of such hours.
MOST_STORED_SUM_BYTES = 1 << 53


def problem_with_byte_limit(name: str, limit: ByteLimit) -> str | None:
    """Says what is wrong with a limit; None if all is well.

    Args:
        name: of the limit, for the words.
    """
    if not isinstance(limit, int) or 0 <= limit <= MOST_STORED_SUM_BYTES:
        return None
    return f"{name} is 0 to {MOST_STORED_SUM_BYTES:,} bytes, or none, not {limit:,}"


def limit_in_force(limit: ByteLimit, of_all: int | None) -> int | None:
    """The bytes that a limit comes to; None for any number.

    Args:
        of_all: the limit for everybody for whom nothing is set.
    """
    return of_all if limit == AS_FOR_ALL else limit
