"""The flock as users are shown it."""

from __future__ import annotations

import msgspec


class LentClassView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machines of a pool that are alike, and what is free of them for other pools.

    Attributes:
        id: tells the class from the pool's others.
        machines: how many there are.
        free: of them together, in natural units: processors, bytes.
        tags: of each of them.
    """

    id: str
    machines: int
    free: dict[str, float] = {}
    tags: list[str] = []


class LoanView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one pool lends another of one class.

    Attributes:
        pool: the other one.
        loan: the class, at the lender.
        amounts: how much it is now, in natural units.
        running: how many tasks run on it.
        since, until: in seconds since the epoch; `until` moves on while the borrower wants it.
    """

    pool: str
    loan: str
    amounts: dict[str, float] = {}
    running: int = 0
    since: float
    until: float


class FlockView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a pool stands in its flock.

    Attributes:
        pool: its own domain.
        member: whether it is in the flock.
        joined_through: the pools that it joined through, and joins through again after a restart.
        known: how many other pools it knows.
        routing_table, leaf_set: to how many it sends announcements, and how many are next to it by
            their ids.
        willing: whether it lends anything to anybody now.
        why_unwilling: if not, why.
        free: what it has free for others.
        given, taken: its loans, at most a thousand of each, those with the most tasks first.
        guests_today, guests_total: how many tasks of others have run here since midnight (UTC), and
            since the manager started.
        sent, received: announcements since the manager started.
        dropped: of those received: how many were dropped, by reason.
    """

    pool: str
    member: bool
    joined_through: list[str] = []
    known: int = 0
    routing_table: int = 0
    leaf_set: int = 0
    willing: bool = False
    why_unwilling: str = ""
    free: list[LentClassView] = []
    given: list[LoanView] = []
    taken: list[LoanView] = []
    guests_today: int = 0
    guests_total: int = 0
    sent: int = 0
    received: int = 0
    dropped: dict[str, int] = {}


#: What `NeighbourView.state` may be.
#:
#: - `free`: it has said that something is free there.
#: - `full`: it lends, and has nothing free.
#: - `unwilling`: it has said that it lends nothing.
#: - `silent`: it has said nothing that still holds.
#: - `unreachable`: a message to it came back.
NEIGHBOUR_STATES = ("free", "full", "unwilling", "silent", "unreachable")


class NeighbourView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another pool of the flock.

    Attributes:
        pool: its domain.
        state: one of `NEIGHBOUR_STATES`.
        round_trip_seconds: of a message there and back; None if that was not measured.
        heard_ago_seconds: since its last announcement; None if there was none.
        classes: what it has said that it has free.
        may_borrow: whether tasks of this pool may run there, as far as both pools have said.
        why_not_borrow: if not, why: a rule of this pool, or what the other one has said.
        may_lend: whether its tasks may run here.
        why_not_lend: if not, why.
    """

    pool: str
    state: str
    round_trip_seconds: float | None = None
    heard_ago_seconds: float | None = None
    classes: list[LentClassView] = []
    may_borrow: bool = True
    why_not_borrow: str = ""
    may_lend: bool = True
    why_not_lend: str = ""


class NeighbourAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a neighbour does not run a task that waits.

    Attributes:
        reason: a word: one of `core.model.refusal.Reason`, of `protocol.flock.REASONS`, or of
            `NEIGHBOUR_STATES`; `asked` if it may come to run it there.
        detail: in words; may be empty.
    """

    pool: str
    reason: str
    detail: str = ""
