"""Messages between pools of a flock, from `flock@ONE` to `flock@OTHER`. `docs/protocol.md` shows
one of each.

The tasks themselves travel in the messages of workers (`protocol.workers`), between
`flock@LENDER/LOAN` and `pool@BORROWER`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from kestrelctl.core.model.numbers import Count
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol.message import Message

#: Classes of workers that one announcement may name: the largest come first.
MOST_CLASSES = 32
#: Pools between the one that announces and the last that hears of it.
MOST_TTL = 4
#: No announcement holds longer, and no loan is asked for longer at a time.
MOST_SECONDS = 86_400.0

#: It holds nothing that would make another address of `flock@DOMAIN`.
Domain = Annotated[str, msgspec.Meta(max_length=255, pattern=r"^[^\s\x00-\x1f\"&'/:<>@]+\Z")]
ClassId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{12}\Z")]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
#: Amounts of assets, in natural units.
Amounts = Annotated[dict[str, Amount], msgspec.Meta(max_length=64)]
Address = Annotated[str, msgspec.Meta(max_length=4000)]
Duration = Annotated[float, msgspec.Meta(ge=0, le=MOST_SECONDS)]


class LentClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Workers of a pool that are alike, as others are told of them.

    Attributes:
        id: tells the class from the pool's others, for as long as it has such workers.
        ad: that of one worker: no task of another pool is charged more than one worker has.
        machines: how many there are.
        free: what they have free together, for other pools.
    """

    id: ClassId
    ad: WorkerAd
    machines: Count
    free: Amounts = {}


class PoolAnnouncement(Message, frozen=True, kw_only=True, tag="announce"):
    """Tells what a pool has free: after changes, and again before the last one expires.

    Attributes:
        pool: the pool that it is about; those who forward it do not change that.
        seq: a later announcement of the pool has a higher one, also after a restart.
        ttl: how far it may still go: 1 for no further.
        expires_seconds: how long it holds.
        willing: whether it lends anything to anybody.
        denied: why rules keep it from lending the receiver anything; empty if they do not.
    """

    pool: Domain
    seq: Count
    ttl: Annotated[int, msgspec.Meta(ge=1, le=MOST_TTL)] = 1
    expires_seconds: Duration
    willing: bool = True
    denied: Annotated[str, msgspec.Meta(max_length=500)] = ""
    classes: Annotated[tuple[LentClass, ...], msgspec.Meta(max_length=MOST_CLASSES)] = ()


class Borrow(Message, frozen=True, kw_only=True, tag="borrow"):
    """A pool has tasks for workers of a class: it takes up to so much, now or when it is free.

    Sent again, it replaces the earlier message, and holds anew.

    Attributes:
        loan: the class.
        at_most: together with what it has of that already.
        seconds: how long it holds, and what is lent on it.
    """

    loan: ClassId
    at_most: Amounts
    seconds: Duration


class Repay(Message, frozen=True, kw_only=True, tag="repay"):
    """The pool wants no more of a class; what runs there may end."""

    loan: ClassId


class NotLent(Message, frozen=True, kw_only=True, tag="not_lent"):
    """Nothing is lent to the pool of that class, and that will not change by itself soon.

    Attributes:
        reason: one of `REASONS`.
        detail: in words.
        seconds: it makes no sense to ask again before.
    """

    loan: ClassId
    reason: str
    detail: Annotated[str, msgspec.Meta(max_length=500)] = ""
    seconds: Duration = 0.0


class AskAround(Message, frozen=True, kw_only=True, tag="ask_around"):
    """Tasks of the pool wait, and nobody that it has heard of lends it anything.

    Answered by announcements of others that hold, as if their TTL had been one more.
    """


class WantSlot(Message, frozen=True, kw_only=True, tag="want_slot"):
    """A lender asks for a place for a file that a task of the pool has left.

    Attributes:
        request: the answer repeats it.
        size_bytes: the size of the piece that is to be sent.
    """

    request: Annotated[str, msgspec.Meta(max_length=64)]
    size_bytes: Count
    filename: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class GivenSlot(Message, frozen=True, kw_only=True, tag="slot"):
    """A place for one upload in the pool's file share (answers `want_slot`).

    Attributes:
        put_url, get_url, headers: as in XEP-0363.
        problem: why there is none; empty if there is one.
        code: that of the problem, one of those in `docs/exit-codes.md`.
        most_bytes: the share takes no larger pieces; 0 if that is not the problem.
    """

    request: Annotated[str, msgspec.Meta(max_length=64)]
    put_url: Address = ""
    get_url: Address = ""
    headers: Annotated[
        dict[str, Annotated[str, msgspec.Meta(max_length=2000)]], msgspec.Meta(max_length=8)
    ] = {}
    problem: Annotated[str, msgspec.Meta(max_length=500)] = ""
    code: Annotated[str, msgspec.Meta(max_length=64)] = ""
    most_bytes: Count = 0


#: The messages by which pools lend each other machines.
LendingMessage = PoolAnnouncement | AskAround | Borrow | Repay | NotLent | WantSlot | GivenSlot

#: Reasons to lend nothing: a policy says no; there is no such class (any more); it asks too often.
DENIED = "denied"
NO_SUCH_CLASS = "no-such-class"
TOO_OFTEN = "too-often"
REASONS = (DENIED, NO_SUCH_CLASS, TOO_OFTEN)


#: Digits of an id, and so rows of a routing table; as a row it means none.
DIGITS = 32
#: Pools in a leaf set: half of them on each side.
LEAVES = 16
#: Pools that one answer names beside its leaves.
MOST_POOLS = 64
#: The most pools that one question may name because they did not answer.
MOST_WITHOUT = 8

#: A random number; an answer repeats it, so that nobody can answer before he was asked.
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Pools = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=MOST_POOLS)]
Leaves = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=LEAVES)]
Without = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=MOST_WITHOUT)]


class PoolPing(Message, frozen=True, kw_only=True, tag="ping", gc=False):
    """Asks whether a pool is there; one that does not know the sender learns of it this way."""

    token: Token


class PoolPong(Message, frozen=True, kw_only=True, tag="pong", gc=False):
    """Answers a ping, at once: the time in between is how far away the pool is."""

    token: Token


class AskPools(Message, frozen=True, kw_only=True, tag="ask_pools"):
    """Asks for the pools on the way to the sender's own id.

    Attributes:
        row: pools are wanted from this row of the routing table on; `DIGITS` for leaves only.
        without: pools that did not answer the sender; they are not named, and are looked at.
    """

    token: Token
    row: Annotated[int, msgspec.Meta(ge=0, le=DIGITS)] = 0
    without: Without = ()


class TellPools(Message, frozen=True, kw_only=True, tag="pools"):
    """Answers `ask_pools`.

    Attributes:
        next: the next pool on the way; none if nobody known is nearer than the one that answers.
        pools: those of the rows that suit the one that asked.
        leaves: the pools whose ids are nearest to that of the one that answers.
    """

    token: Token
    next: Domain | None = None
    pools: Pools = ()
    leaves: Leaves = ()


class FlockLeft(Message, frozen=True, kw_only=True, tag="leave_flock", gc=False):
    """The sender is in the flock no more; it is forgotten."""


OverlayMessage = PoolPing | PoolPong | AskPools | TellPools | FlockLeft


FlockMessage: TypeAlias = OverlayMessage | LendingMessage
