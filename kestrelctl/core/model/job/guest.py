"""A guest: a job of another pool's user that this pool runs beside its own."""

from __future__ import annotations

import re

import msgspec

#: The longest part of an address before or after its `@` (RFC 7622, section 3.1), in characters.
MOST_PART_CHARACTERS = 1023
#: The longest name of a group that a neighbour may say.
MOST_GROUP_CHARACTERS = 255
#: An account: only characters that addresses of accounts may have (RFC 7622, section 3.3.1), and no
#: resource.
_PART = rf"[^\s\x00-\x20\x7f\"&'/:<>@]{{1,{MOST_PART_CHARACTERS}}}"
_ACCOUNT = re.compile(f"{_PART}@{_PART}")
#: Accounts of a pool's users are at its own domain, or below it at this one.
_USERS = "users"

#: The place of all guests among priorities: behind the lowest of a pool's own jobs.
GUEST_PRECEDENCE = -1


class GuestOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of a guest. Only the pool says so, of a job that a neighbour has handed it.

    Attributes:
        pool: the domain of its home.
        job_id: of the job there.
        user, group: its owner there: his address without a resource; and his group, if any.
        loan: the id of the class of workers that was lent for it.
        memo: is kept with it for whoever handed it in, for after a restart.
    """

    pool: str
    job_id: int
    user: str
    group: str = ""
    loan: str
    memo: bytes = b""


#: A worker has this tag, which it gives itself, if it runs guests as they are handed in.
TAG = "guests"


def problem_with_guest(guest: GuestOf) -> str | None:
    """Says what is wrong with the origin of a guest; None if all is well.

    Args:
        guest: as the pool says of what a neighbour has handed it.
    """
    if not _ACCOUNT.fullmatch(guest.user):
        return f"{guest.user[:80]!r} is no account of a user"
    if len(guest.group) > MOST_GROUP_CHARACTERS:
        return f"the name of a group has at most {MOST_GROUP_CHARACTERS} characters"
    return None


def owner_of_guest(guest: GuestOf) -> str:
    """Returns the owner of a guest's job in the pool: always an account of its home's.

    What a home says of its users is its own affair, and nobody else vouches for it. So a name that
    is not of its domain is put below it, escaped as XEP-0106 does: `carol@elsewhere.example` of
    `home.example` is `carol\\40elsewhere.example@home.example`. It is never the name of a user of
    the pool's own, or of another neighbour's, whose inputs it would share.

    Args:
        guest: one without a problem (`problem_with_guest`).
    """
    name, _, domain = guest.user.partition("@")
    if domain in (guest.pool, f"{_USERS}.{guest.pool}"):
        return guest.user
    return f"{name}\\40{domain}@{guest.pool}"
