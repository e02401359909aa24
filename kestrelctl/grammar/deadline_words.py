"""Moments as people write them: deadlines, and beginnings of periods."""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from kestrelctl.core.model.job.spec import Begin
from kestrelctl.errors import UsageError
from kestrelctl.grammar.quantities import parse_duration, with_short_units

#: The beginning of a date, as no duration begins.
_DATE = re.compile(r"\d{4}-\d")
#: A year, a date, or seconds since 1970 as `date +%s` prints them.
_MAY_BE_A_DATE = re.compile(r"20\d\d|20\d\d[01]\d[0-3]\d|[12]\d{9}")


class Deadline(NamedTuple):
    """A moment in seconds since the epoch, or seconds after the submission."""

    at: float | None = None
    seconds: float | None = None


def parse_deadline(text: object) -> Deadline:
    """The deadline in `2h`, `90`, `now+2hours`, `2030-12-24T18:00` or `2030-12-24T18:00+01:00`.

    A date without a zone is in the zone of whoever reads it.

    Raises:
        UsageError: it is neither a duration nor a moment.
    """
    if isinstance(text, Deadline):  # as it was parsed already
        return text
    return _moment_ahead(str(text).strip(), "deadline")


def _moment_ahead(words: str, name: str) -> Deadline:
    """The moment that words name, for what is called `name`."""
    if words.startswith("now+"):  # as in Slurm
        return Deadline(seconds=parse_duration(with_short_units(words.removeprefix("now+"))))
    found = _moment_or_seconds(words)
    if found is None:
        raise UsageError(
            f"not a {name}: {words[:40]!r}", hint="write 2h (from now) or 2030-12-24T18:00"
        )
    if _MAY_BE_A_DATE.fullmatch(words):
        raise UsageError(
            f"{words} may be a moment or seconds from now",
            hint=f"write {words}s, or a moment as 2030-12-24T18:00",
        )
    at, seconds = found
    return Deadline(at=at, seconds=seconds)


def parse_begin(text: object) -> Begin:
    """The moment before which nothing starts, as a deadline, or `now`.

    Raises:
        UsageError: it is none.
    """
    if isinstance(text, Begin):  # as it was parsed already
        return text
    words = str(text).strip()
    if words == "now":
        return Begin(seconds=0.0)
    found = _moment_ahead(words, "time to begin")
    return Begin(at=found.at, seconds=found.seconds)


class Since(NamedTuple):
    """A moment in seconds since the epoch, or seconds back from now."""

    at: float | None = None
    seconds: float = 0.0

    def moment(self, now: float) -> float:
        """Computes the moment, in seconds since the epoch.

        Raises:
            UsageError: it lies ahead.
        """
        if self.at is None:
            return max(0.0, now - self.seconds)
        if self.at > now:
            shown = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M")
            raise UsageError(f"{shown} lies ahead", hint="name a moment in the past, or 7d")
        return self.at


def parse_since(text: object) -> Since:
    """Reads the beginning of a period: the last `7d`, `2026-11-01`, `2026-11-01T18:00` or
    `2026-11-01T18:00+01:00`.

    A date without a zone is in the zone of whoever reads it, and begins at midnight.

    Raises:
        UsageError: it is neither a duration nor a moment.
    """
    if isinstance(text, Since):  # as it was parsed already
        return text
    words = str(text).strip()
    found = _moment_or_seconds(words)
    if found is None:
        raise UsageError(
            f"neither a time back from now nor a date: {words[:40]!r}",
            hint="write 7d, 2026-11-01 or 2026-11-01T18:00",
        )
    at, seconds = found
    return Since(at=at, seconds=seconds or 0.0)


def _moment_or_seconds(words: str) -> tuple[float | None, float | None] | None:
    """A moment in seconds since the epoch, or a duration in seconds; None if it is neither."""
    try:
        if is_date(words):
            return datetime.fromisoformat(words).timestamp(), None
        return None, parse_duration(words)
    except (UsageError, ValueError, OverflowError, OSError):
        return None


def is_date(words: str) -> bool:
    """Whether somebody means a moment, though he may have written it wrong."""
    return _DATE.match(words) is not None
