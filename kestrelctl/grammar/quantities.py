"""Values as people write and read them: sizes, durations, counts, tags."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable

from kestrelctl.core.model.neighbour import FLOCK
from kestrelctl.core.model.objection import LEAST_CAPACITY_BYTES
from kestrelctl.errors import UsageError

#: The largest number in a message.
MOST_WHOLE = (1 << 63) - 1


def parse_digits(text: str, most: int = MOST_WHOLE) -> int | None:
    """A number that is written in digits alone; None if it is none, or more than `most`.

    `int` itself fails for more than a few thousand digits.
    """
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(MOST_WHOLE))):
        return None
    number = int(text)
    return number if number <= most else None


#: Hundreds of digits make an infinite float.
_SIZE = re.compile(r"(\d{1,20}(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SIZE_UNITS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_DURATION = re.compile(
    r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?"
)
_DURATION_UNITS = (86400, 3600, 60, 1)
#: Days, then hours, minutes and seconds: `1-02:03:04`, `1-02:03`, `1-02`; without days `02:03:04`.
_CLOCK = re.compile(
    r"(\d{1,6})-(\d{1,2})(?::(\d{2}))?(?::(\d{2}))?|(\d{1,6}):(\d{2}):(\d{2})", re.ASCII
)
_TWO_PARTS = re.compile(r"(\d{1,6}):(\d{2})", re.ASCII)
#: Longer names of units, as other programs take them.
_UNIT_NAMES = (
    (re.compile(r"\s+"), ""),
    (re.compile(r"days?"), "d"),
    (re.compile(r"hours?|hrs?"), "h"),
    (re.compile(r"minutes?|mins?"), "m"),
    (re.compile(r"seconds?|secs?"), "s"),
)


def parse_size(text: object) -> int:
    """Bytes in `512M`, `2G`, `1.5GiB`, `100B` or `1048576`; every unit is a power of 1024.

    Raises:
        UsageError: it is no size, or a number below 1 MiB that lacks its unit.
    """
    return round(_exact_bytes(str(text).strip()))


def parse_capacity(text: object) -> int:
    """Bytes of memory or disk that somebody is to have, written as a size; 0 is none.

    Raises:
        UsageError: it is no size, or less than 1 MiB.
    """
    words = str(text).strip()
    exact = _exact_bytes(words)
    if 0 < exact < LEAST_CAPACITY_BYTES:
        raise UsageError(
            f"{words} is less than 1 MiB",
            cause=f"it is {exact:,.10g} bytes, and no program runs in that",
            hint="write 512M, 2G or 1.5GiB",
        )
    return round(exact)


def _exact_bytes(words: str) -> float:
    match = _SIZE.fullmatch(words)
    if match is None:
        raise UsageError(f"not a size: {words!r}", hint="write 512M, 2G or 1.5GiB")
    number, unit = match.groups()
    exact: float = float(number) * 1024 ** _SIZE_UNITS[unit.upper()]
    if words == number and 0 < exact < LEAST_CAPACITY_BYTES:
        raise UsageError(
            f"{words} lacks its unit",
            cause=f"without a unit it is {exact:,.10g} bytes",
            hint=f"did you mean {words}MiB or {words}GiB? {words}B is bytes",
        )
    return exact


def parse_capacities(text: object) -> tuple[int, ...]:
    """Several such amounts in `2G,4G`; none for an empty text.

    Raises:
        UsageError: a part of it is none.
    """
    if isinstance(text, tuple):  # as they were parsed already
        return text
    return tuple(map(parse_capacity, str(text).replace(",", " ").split()))


def parse_duration(text: object) -> float:
    """Seconds in `90`, `0.5`, `15m`, `1h30m` or `2d`, or as a clock shows them: `1-02:03:04`
    (days-hours:minutes:seconds), `02:03:04`.

    Raises:
        UsageError: it is no duration, or none at all.
    """
    words = str(text).strip()
    clock = _CLOCK.fullmatch(words)
    if clock is not None:
        parts = clock.groups()[:4] if clock[1] else ("0", *clock.groups()[4:])
    else:
        match = _DURATION.fullmatch(f"{words}s" if _NUMBER.fullmatch(words) else words)
        parts = match.groups() if match else ()
    seconds = sum(
        float(part) * unit for part, unit in zip(parts, _DURATION_UNITS, strict=False) if part
    )
    if not 0 < seconds < math.inf:
        raise UsageError(f"not a duration: {str(text)[:80]!r}", hint=_hint_for(words))
    return seconds


def _hint_for(words: str) -> str:
    """Suggests how to write what was probably meant by something that is no duration."""
    two = _TWO_PARTS.fullmatch(words)
    if two is not None:
        return f"write {two[1]}h{two[2]}m, or {two[1]}m{two[2]}s"
    short = with_short_units(words)
    if short != words and short and _DURATION.fullmatch(short):
        return f"write {short}"
    return "write 90 (seconds), 15m or 1h30m"


def with_short_units(words: str) -> str:
    """A duration as it is written here: `1h` for `1 hour`."""
    short = words.lower()
    for name, unit in _UNIT_NAMES:
        short = name.sub(unit, short)
    return short


def parse_percent(text: object) -> float:
    """The share, 0 to 1, in `10%` or `10`.

    Raises:
        UsageError: it is no percentage, above 100, or a number below 1 that lacks its `%`.
    """
    words = str(text).strip()
    number = words.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(number) or float(number) > 100:
        raise UsageError(f"not a percentage: {str(text)!r}", hint="write 10% or 2.5%")
    share = float(number)
    if 0 < share < 1 and number == words:
        raise UsageError(
            f"{words} is a percentage or a share", hint=f"write {share * 100:g}% or {share:g}%"
        )
    return share / 100


#: From here on, three digits of a number would be written with an exponent: `1e+03`.
_FOUR_DIGITS = 999.5


def size(n: int) -> str:
    """Writes `1.5 GiB`; empty for 0."""
    if not n:
        return ""
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= _FOUR_DIGITS else f"{value:.3g} {unit}"


def short_number(amount: float) -> str:
    """Writes three digits of an amount, or all before the point: `0.5`, `40`, `1,234`."""
    return f"{amount:,.0f}" if amount >= _FOUR_DIGITS else f"{amount:.3g}"


def duration(seconds: float | None) -> str:
    """Writes `0.4 ms`, `40 ms`, `2.5 s`, `1m 05s`, `2h 10m`, `3d 4h`; empty for None."""
    if seconds is None:
        return ""
    if 0 < seconds < 0.00995:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def ago(then: float | None, now: float) -> str:
    """Writes `3m 20s ago`; empty for None or for a time that was never set."""
    return f"{duration(max(0.0, now - then))} ago" if then else ""


def short_address(address: str) -> str:
    """Makes `w7` of `w7@workers.example.org/k3bW0`; a resource that is a number stays: `w7/2`.

    A worker that another pool lends is named after that pool.
    """
    name, _, rest = address.partition("@")
    domain, _, resource = rest.partition("/")
    if name == FLOCK and domain:
        return domain
    return f"{name}/{resource}" if resource.isdigit() else name


def told_apart(addresses: Iterable[str]) -> dict[str, str]:
    """Shortens each address; those with a short one in common keep resources: `w7/core2`."""
    short = {address: short_address(address) for address in addresses}
    count = Counter(short.values())
    return {
        address: f"{name}/{address.partition('/')[2]}" if count[name] > 1 else name
        for address, name in short.items()
    }


def split_words(given: Iterable[str]) -> tuple[str, ...]:
    """Words of an option that was repeated, or has commas or blanks between them; each once."""
    words = (word for each in given for word in each.replace(",", " ").split())
    return tuple(dict.fromkeys(words))
