"""Lets a machine become a worker without its administrator: names, times, one use.

A temporary account `join-<expiry>-<word>[-<name>]` is the right to join once. As long as it exists,
nobody has used it. Its name, which only the manager makes, says when it expires and as whom it lets
a machine join. So the pool has nothing to remember.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

from kestrelctl.core.model.neighbour import FLOCK
from kestrelctl.errors import NotAllowed, UsageError

DEFAULT_SECONDS = 3600.0
MIN_SECONDS = 60.0
MAX_SECONDS = 30 * 86400.0

PREFIX = "join-"
_TEMPORARY = re.compile(r"join-(\d{1,12})-([0-9a-z]+)(?:-(.+))?")
#: A DNS label's length, and characters that need no escape anywhere (JIDs: RFC 7622, 3.3).
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")


_NOT_IN_ACCOUNTS = frozenset("\"&'/:<>@ ")


class Invitation(msgspec.Struct, frozen=True):
    """The contents of the name of a temporary account.

    Attributes:
        expires_at: seconds since the epoch.
        word: random, so that no two are alike.
        name: the name of the worker that joins with it; empty if the machine may choose.
    """

    expires_at: int
    word: str
    name: str = ""

    @property
    def account(self) -> str:
        """The local part of the account's address."""
        return f"{PREFIX}{self.expires_at}-{self.word}" + (f"-{self.name}" if self.name else "")


def is_temporary(account: str) -> bool:
    """Whether an account of a workers' host may do nothing but join.

    Args:
        account: the local part of its address.
    """
    return account.startswith(PREFIX)


def parse_invitation(account: str) -> Invitation | None:
    """Reads the name of an account; None if it is no temporary one."""
    found = _TEMPORARY.fullmatch(account)
    return Invitation(int(found[1]), found[2], found[3] or "") if found else None


def invite(name: str, valid_seconds: float, now: float, word: str) -> Invitation:
    """An invitation as an admin asks for it.

    Args:
        name: empty to let the machine choose.
        word: random; lower case letters and digits.

    Raises:
        UsageError: it would hold for too short or too long, or the name cannot be a worker's.
    """
    if not MIN_SECONDS <= valid_seconds <= MAX_SECONDS:
        raise UsageError(
            "a token holds for 1 minute to 30 days",
            cause=f"{valid_seconds:.0f} s were asked for",
        )
    if name:
        check_name(name)
    return Invitation(int(now + valid_seconds), word, name)


def admit(invitation: Invitation, wanted: str, now: float) -> str:
    """The name under which a machine joins.

    Args:
        wanted: the name it asks for; empty for the one of the invitation.

    Raises:
        NotAllowed: the invitation has expired, or is for another name.
        UsageError: it cannot be a worker's name.
    """
    if invitation.expires_at <= now:
        raise expired(invitation)
    if invitation.name and wanted not in ("", invitation.name):
        raise NotAllowed(
            f"the token is for a worker called {invitation.name}, not {wanted}",
            hint="leave --name away",
        )
    name = invitation.name or wanted
    check_name(name)
    return name


def expired(invitation: Invitation) -> NotAllowed:
    """The refusal of an invitation that came too late."""
    moment = datetime.fromtimestamp(invitation.expires_at, UTC)
    return NotAllowed(
        f"the token expired at {moment:%Y-%m-%d %H:%M:%S} UTC",
        hint="an admin of the pool makes a new one: kestrelctl worker enroll",
    )


def taken(name: str) -> UsageError:
    """The refusal of a name that another worker has."""
    return UsageError(
        f"there is a worker {name} already",
        hint=f"choose another with --name; or an admin removes it: kestrelctl worker revoke {name}",
    )


def check_name(name: str) -> None:
    """Passes names that a worker can have.

    Raises:
        UsageError: it is none.
    """
    if is_temporary(name):
        raise UsageError(f"the name of a worker cannot begin with {PREFIX}")
    if name == FLOCK:
        raise UsageError(f"no worker can be called {FLOCK}", cause="other pools are met there")
    if not _NAME.fullmatch(name):
        found = as_name(name)
        raise UsageError(
            f"{name!r} cannot be the name of a worker",
            cause="a name has up to 63 of a-z, 0-9, and inside also . _ -",
            hint=f"--name {found}" if found else None,
        )


def check_account(name: str) -> None:
    """Passes names that an account can have (RFC 7622, 3.3), whoever makes it.

    Raises:
        UsageError: it is none.
    """
    if not name or len(name) > 1023 or not name.isprintable() or set(name) & _NOT_IN_ACCOUNTS:
        raise UsageError(f"{name[:80]!r} cannot be the name of an account")


def as_name(hostname: str) -> str:
    """Makes a worker's name from that of its machine; empty if nothing of that can be used.

    One that no worker can have, because it means something else, gets `host-` in front.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", hostname.lower())[:63].strip("._-")
    return as_name(f"host-{name}") if name == FLOCK or is_temporary(name) else name
