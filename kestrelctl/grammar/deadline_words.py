"""Deadlines as people write them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import parse_duration


class Deadline(NamedTuple):
    """A moment in seconds since the epoch, or seconds after the submission."""

    at: float | None = None
    seconds: float | None = None


def parse_deadline(text: object) -> Deadline:
    """The deadline in `2h`, `90`, `2030-12-24T18:00` or `2030-12-24T18:00+01:00`.

    A date without a zone is one of the zone of whoever reads it.

    Raises:
        UsageError: it is neither a duration nor a moment.
    """
    if isinstance(text, Deadline):  # as it was parsed already
        return text
    words = str(text).strip()
    try:
        if "-" in words:
            return Deadline(at=datetime.fromisoformat(words).timestamp())
        return Deadline(seconds=parse_duration(words))
    except (UsageError, ValueError, OverflowError, OSError):
        raise UsageError(
            f"not a deadline: {words[:40]!r}", hint="write 2h (from now) or 2030-12-24T18:00"
        ) from None
