"""The entries that services of many hosts wrote to their journals (journalctl(1))."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence

import msgspec

from kestrelctl.fleet.units import service

#: A day before the year 10000, which no calendar here has, in any time zone.
_LATEST = 253402214400.0
_NUMBER = re.compile(r"\d{1,18}")
_FIELDS = "MESSAGE,PRIORITY,_SYSTEMD_UNIT,UNIT,_PID"


class Entry(msgspec.Struct, frozen=True):
    """A journal entry.

    Attributes:
        at: seconds since 1970, by the host's clock.
        priority: as in syslog(3), 0 (emergency) to 7 (debug).
        message: may have several lines.
    """

    host: str
    at: float
    unit: str
    pid: int | None
    priority: int
    message: str


def journal_command(
    units: Sequence[str], *, lines: int | None, since: str | None, follow: bool
) -> str:
    """The command whose lines `read_entry` reads.

    Args:
        lines: how many of the newest; None for all since `since`.
        since: a time as in systemd.time(7).
    """
    words = ["journalctl", "--no-pager", "--quiet", "--output=json", f"--output-fields={_FIELDS}"]
    words += [f"--unit={service(unit)}" for unit in units]
    words += ["--lines=all" if lines is None else f"--lines={lines}"]
    words += [f"--since={since}"] if since else []
    return shlex.join(words + (["--follow"] if follow else []))


def read_entry(host: str, line: str) -> Entry | None:
    """Reads an entry from a line of JSON; None if the line is not one."""
    try:
        found = json.loads(line)
        at = int(found["__REALTIME_TIMESTAMP"]) / 1e6
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    if not 0 <= at <= _LATEST:
        return None
    pid, priority = str(found.get("_PID", "")), str(found.get("PRIORITY", ""))
    unit = str(found.get("UNIT") or found.get("_SYSTEMD_UNIT") or "")
    return Entry(
        host=host,
        at=at,
        unit=unit.removesuffix(".service"),
        pid=int(pid) if _NUMBER.fullmatch(pid) else None,
        priority=int(priority) if _NUMBER.fullmatch(priority) else 6,
        message=_text(found.get("MESSAGE")),
    )


def _text(message: object) -> str:
    """Decodes a message: a text, an array of bytes if it is none, or null if it was too long."""
    if isinstance(message, list):
        if all(isinstance(each, int) and 0 <= each < 256 for each in message):
            return bytes(message).decode(errors="replace")
        return "\n".join(_text(each) for each in message)
    return "(too long for journalctl)" if message is None else str(message)
