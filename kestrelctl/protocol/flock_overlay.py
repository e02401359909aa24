"""Messages by which the pools of a flock find each other. `docs/protocol.md` shows one of each.

None of them speaks for anybody but its sender, for whom the server vouches. Pools that a message
names are hearsay: whoever hears of them asks them themselves.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from kestrelctl.protocol.flock import Domain
from kestrelctl.protocol.work import Message

#: Digits of an id, and so rows of a routing table; as a row it means none.
DIGITS = 32
#: Pools in a leaf set: half of them on each side.
LEAVES = 16
#: Pools that one answer names beside its leaves.
MOST_POOLS = 64
#: Pools of which one question says that they did not answer.
MOST_WITHOUT = 8

#: Random; an answer repeats it, so that nobody can answer before he was asked.
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Pools = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=MOST_POOLS)]
Leaves = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=LEAVES)]
Without = Annotated[tuple[Domain, ...], msgspec.Meta(max_length=MOST_WITHOUT)]


class PoolPing(Message, frozen=True, kw_only=True, tag="ping", gc=False):
    """Are you there? Whoever does not know the sender learns of it so."""

    token: Token


class PoolPong(Message, frozen=True, kw_only=True, tag="pong", gc=False):
    """Answers a ping, at once: the time in between is how far away the pool is."""

    token: Token


class AskPools(Message, frozen=True, kw_only=True, tag="ask_pools"):
    """Whom do you know on the way to the sender's own id?

    Attributes:
        row: of the routing table, from which on pools are wanted; `DIGITS` if only leaves are.
        without: pools that did not answer the sender; they are not named, and are looked at.
    """

    token: Token
    row: Annotated[int, msgspec.Meta(ge=0, le=DIGITS)] = 0
    without: Without = ()


class TellPools(Message, frozen=True, kw_only=True, tag="pools"):
    """Answers `ask_pools`.

    Attributes:
        next: the next pool on the way; none if nobody known is nearer than the one that answers.
        pools: of those rows that suit the one that asked.
        leaves: the pools whose ids are nearest to that of the one that answers.
    """

    token: Token
    next: Domain | None = None
    pools: Pools = ()
    leaves: Leaves = ()


class FlockLeft(Message, frozen=True, kw_only=True, tag="leave_flock", gc=False):
    """The sender is in the flock no more; it is forgotten."""


OverlayMessage = PoolPing | PoolPong | AskPools | TellPools | FlockLeft
