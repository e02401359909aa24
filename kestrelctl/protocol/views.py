"""Parts of answers: assets, checkpoints, output, stages, shares, troubles, files and the flock."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.numbers import PoolMomentToCome
from kestrelctl.protocol.request import Reply


class PolicyView(msgspec.Struct, frozen=True, kw_only=True):
    """A consumption policy.

    Attributes:
        workers: an expression that is true of those that it is for.
        in_force: the number of workers for which it is the one that counts.
    """

    name: str
    workers: str
    text: str
    in_force: int = 0


class AssetView(msgspec.Struct, frozen=True, kw_only=True):
    """An asset of the whole pool, in tokens.

    Attributes:
        held: those that attempts hold, from their hand-out to their end.
        waiting: tasks that ask for it and that no worker has.
    """

    name: str
    total: int
    held: int = 0
    waiting: int = 0


class Policies(Reply, frozen=True, kw_only=True, tag="policies"):
    """All policies of the pool, by name: the first of those that are for a worker counts."""

    policies: list[PolicyView]


class Assets(Reply, frozen=True, kw_only=True, tag="assets"):
    """All assets of the whole pool, by name."""

    assets: list[AssetView]


class UserView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a user, and what he has.

    Attributes:
        share: his part of the pool as it is now, 0 to 1; the shares of all who want something come
            to 1.
        running: attempts that are charged at workers.
        waiting: his other tasks without a final state.
        usage_seconds: what he has used lately, each attempt with its weight.
        limits: asset -> amount that may be charged for him at once, in its natural unit.
        mail: where he is sent word when his jobs end; shown to him and to admins.
        stored_bytes: what his tasks have in the file share.
        max_stored_bytes: with so much there, no task that stores more begins; None for any number.
        queued_bytes: how large his jobs that have not ended are together, as encoded.
        max_queued_bytes: the most of that; None for any size.
    """

    user: str
    group: str = ""
    weight: float = 1.0
    share: float = 0.0
    running: int = 0
    waiting: int = 0
    usage_seconds: float = 0.0
    max_running: int | None = None
    max_queued: int | None = None
    limits: dict[str, float] = {}
    mail: str = ""
    stored_bytes: int = 0
    max_stored_bytes: int | None = None
    queued_bytes: int = 0
    max_queued_bytes: int | None = None


class GroupView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a group, and what its members have together, as for a user.

    Attributes:
        members: how many.
        names: their accounts, as far as the asking user may know them, at most a hundred.
    """

    group: str
    members: int = 0
    weight: float = 1.0
    share: float = 0.0
    running: int = 0
    waiting: int = 0
    usage_seconds: float = 0.0
    max_running: int | None = None
    max_queued: int | None = None
    limits: dict[str, float] = {}
    names: list[str] = []


class QuarantineView(msgspec.Struct, frozen=True, array_like=True):
    """A worker that is in quarantine: until when, in seconds since the epoch, and why."""

    worker: str
    until: PoolMomentToCome
    why: str


class UnmetShape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks that ask alike and wait, and would wait even if all were placed anew.

    Attributes:
        shape: what they ask for, in words. A tag that no worker has is not told.
        request: the same in natural units.
    """

    shape: str
    tasks: int
    request: dict[str, float] = {}


class SaturatedClass(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Workers of a kind of which another one would let more of the unmet tasks run.

    Attributes:
        workers: how many there are that may take tasks.
        worker_class: what each of them offers, in words.
        assets: what they are out of.
    """

    worker_class: str
    workers: int
    assets: list[str] = []


class LentClassView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Machines of a pool that are alike, and what is free of them for other pools.

    Attributes:
        id: tells the class from the pool's others.
        machines: how many there are.
        free: what they have free together, in natural units: processors, bytes.
        tags: those of each of them.
    """

    id: str
    machines: int
    free: dict[str, float] = {}
    tags: list[str] = []


class LoanView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A loan of one class from one pool to another.

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
    """The standing of a pool in its flock.

    Attributes:
        pool: its own domain.
        member: whether it is in the flock.
        joined_through: the pools that it joined through, and joins through again after a restart.
        known: how many other pools it knows.
        routing_table, leaf_set: how many it sends announcements to, and how many are next to it by
            their ids.
        willing: whether it lends anything to anybody now.
        why_unwilling: the reason if it does not.
        free: what it has free for others.
        given, taken: its loans, at most a thousand of each, those with the most tasks first.
        guests_today, guests_total: how many tasks of others have run here since midnight (UTC), and
            since the manager started.
        sent, received: announcements since the manager started.
        dropped: how many of those received were dropped, by reason.
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


#: The values of `NeighbourView.state`.
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
        round_trip_seconds: that of a message there and back; None if that was not measured.
        heard_ago_seconds: the time since its last announcement; None if there was none.
        classes: what it has said that it has free.
        may_borrow: whether tasks of this pool may run there, as far as both pools have said.
        why_not_borrow: the reason if not: a rule of this pool, or what the other one has said.
        may_lend: whether its tasks may run here.
        why_not_lend: the reason if not.
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
