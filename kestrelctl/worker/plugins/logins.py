"""Finds out who is logged in at this machine, and who of them sits at it.

systemd's logind knows (loginctl(1)): people at the machine are those with a seat. Where it is not
there, utmp(5) tells: they are those at one of the machine's terminals or with a display of it.
"""

from __future__ import annotations

import json
import platform
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kestrelctl.worker import gpus

UTMP = Path("/run/utmp")
PROC = Path("/proc")
#: The beginning of a record of utmp: what it tells, of which process, line, id, user, host.
_BEGIN = struct.Struct("h2xi32s4s32s256s")
#: A record's bytes: session and time are 64 bits wide where there never were others.
_WIDE = ("aarch64", "riscv64", "loongarch64")
RECORD_BYTES = 400 if platform.machine() in _WIDE else 384
_USER_PROCESS = 7
#: A display of X on this machine, `:0` or `:1.0`; an IPv6 address is none.
_DISPLAY = re.compile(r":\d+(\.\d+)?")


class Login(NamedTuple):
    """A login in utmp: where, and from where."""

    line: str
    host: str

    @property
    def at_console(self) -> bool:
        """Whether somebody sits at the machine."""
        return self.line.startswith("tty") or any(map(_DISPLAY.fullmatch, self))


def count(at_console: bool) -> int | None:
    """Counts who is logged in; None if nothing on this machine tells.

    Args:
        at_console: only those who sit at it.
    """
    said = gpus.output(("loginctl", "list-sessions", "--output=json"))
    if said:  # It fails where there is no logind.
        return _of_logind(said, at_console)
    try:
        records = UTMP.read_bytes()
    except OSError:
        return None
    return sum(login.at_console or not at_console for login in logins(records))


def logins(records: bytes) -> Iterator[Login]:
    """Reads the logins of utmp whose processes have not ended: a crash notes no end there."""
    for first in range(0, len(records) - RECORD_BYTES + 1, RECORD_BYTES):
        kind, pid, line, _, user, host = _BEGIN.unpack_from(records, first)
        if kind == _USER_PROCESS and user.strip(b"\0") and (PROC / str(pid)).exists():
            yield Login(_text(line), _text(host))


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def _of_logind(said: str, at_console: bool) -> int | None:
    if said.startswith("No sessions"):  # versions that say that in words
        return 0
    try:
        sessions = json.loads(said)
        wanted = [
            str(each["session"])
            for each in sessions
            if not at_console or each.get("seat") not in (None, "", "-")
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return sum(map(_is_of_a_person, wanted))


def _is_of_a_person(session: str) -> bool:
    """Whether it is no login screen, no service, and not over."""
    said = gpus.output(("loginctl", "show-session", session, "-p", "Class", "-p", "State"))
    facts = dict(line.partition("=")[::2] for line in said.splitlines())
    return facts.get("Class", "").startswith("user") and facts.get("State") != "closing"
