"""A guest: a job of another pool's user that this pool runs beside its own."""

from __future__ import annotations

import msgspec

#: Where all guests come among priorities: behind the lowest of a pool's own jobs.
GUEST_PRECEDENCE = -1


class GuestOf(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whose guest a job is. The pool alone says so, of what a neighbour has handed it.

    Attributes:
        pool: the domain of its home.
        job_id: of the job there.
        user, group: whose it is there: his address without a resource; and his group, if any.
        loan: the id of the class of workers that was lent for it.
        memo: what whoever handed it in keeps with it, for after a restart.
    """

    pool: str
    job_id: int
    user: str
    group: str = ""
    loan: str
    memo: bytes = b""


#: A worker has this tag, which it gives itself, if it runs guests as they are handed in.
TAG = "guests"
