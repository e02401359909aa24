"""What a pool lends: what is free of each class of its workers, shared among those who ask.

What a borrower's tasks use it keeps while they run. What is free beside that goes to the wishes in
turns, machine by machine, to who has the least of it; nothing while own tasks wait that could use
it. What somebody was lent and has left unused for a while goes to others who wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.protocol.flock import (
    DENIED,
    NO_SUCH_CLASS,
    TOO_OFTEN,
    Borrow,
    NotLent,
)

#: (borrower, class)
LentKey = tuple[str, str]
Amounts = Mapping[str, float]

#: A borrower asks so often in a flock minute at the most, on average and at once.
RATE_PER_MINUTE = 700.0
BURST = 300.0
#: Smaller than any amount that somebody means.
_SOME = 1e-6
_NOTHING: Amounts = {}


class ClassToLend(NamedTuple):
    """One class of the pool's own workers.

    Attributes:
        loan: its id.
        machine: what one worker has.
        free: what is free of them together now; running guests have theirs already.
        wanted: own tasks that wait and could run there.
        overdue: how many of these have waited for `reclaim_seconds`; None if nobody knows: then
            that counts for how long there have been any.
    """

    loan: str
    machine: Amounts
    free: Amounts
    wanted: int
    overdue: int | None = None


class Grant(NamedTuple):
    """What a loan is from now on: together with what it uses; nothing at all ends it."""

    borrower: str
    loan: str
    amounts: dict[str, float]
    until: float


class LoanState:
    """What one borrower was lent of one class.

    Attributes:
        at_most: what it wishes, as long as its lease goes.
        amounts: what it was told that it has.
        lease_seconds: for so long it is lent at a time.
        unused_since: since when some of that is not used; None if all is.
    """

    __slots__ = (
        "amounts",
        "at_most",
        "lease_seconds",
        "since",
        "told_until",
        "until",
        "unused_since",
    )

    def __init__(self, now: float) -> None:
        self.at_most: dict[str, float] = {}
        self.amounts: dict[str, float] = {}
        self.until = self.told_until = now
        self.lease_seconds = 0.0
        self.since = now
        self.unused_since: float | None = None


class LoanLimit(NamedTuple):
    """What a policy lets one borrower have.

    Attributes:
        why: empty if it may have anything at all.
        max_cpus: of all classes together; None for any number.
        rules: what of `max_cpus` each rule leaves it that lets others have some, too, by the rule's
            name: what one of those is given under it, this one cannot have.
        lease_seconds: the longest lease; None for any.
    """

    why: str = ""
    max_cpus: float | None = None
    rules: Mapping[str, float] = {}
    lease_seconds: float | None = None


class GivenCpus:
    """How many processors a round of sharing has given away so far, of all classes."""

    def __init__(self) -> None:
        self._to: dict[str, float] = {}
        self._under: dict[str, float] = {}

    def give(self, borrower: str, limit: LoanLimit, cpus: float) -> None:
        """A borrower is given some more."""
        self._to[borrower] = self._to.get(borrower, 0.0) + cpus
        for rule in limit.rules:
            self._under[rule] = self._under.get(rule, 0.0) + cpus

    def left(self, borrower: str, limit: LoanLimit) -> float | None:
        """What its limit leaves a borrower, with what it uses; None for any number."""
        if limit.max_cpus is None:
            return None
        own = self._to.get(borrower, 0.0)
        others = sum(
            min(room, self._under.get(rule, own) - own) for rule, room in limit.rules.items()
        )
        return limit.max_cpus - own - others


class Lender:
    """The loans of one pool.

    Args:
        limit: what the policy lets a borrower have.
    """

    def __init__(self, settings: FlockSettings, limit: Callable[[str], LoanLimit]) -> None:
        self._settings = settings
        self._unused_seconds = settings.unused_seconds
        self._limit = limit
        self.loans: dict[LentKey, LoanState] = {}
        #: What tasks of each loan take, if anything.
        self._used: dict[LentKey, Amounts] = {}
        #: Loans of each class that wish for more than they use, those that are not what was told of
        #: them, and those that have to be looked at for that; all of them at a moment.
        self._hungry: defaultdict[str, dict[LentKey, LoanState]] = defaultdict(dict)
        self._unsettled: dict[LentKey, None] = {}
        self._heard_of: dict[LentKey, None] = {}
        self._look_at = inf
        self._wanted_since: dict[str, float] = {}
        self._budgets: dict[str, tuple[float, float]] = {}

    # -- what borrowers say ------------------------------------------------------------------------

    def hear(
        self, borrower: str, asked: Borrow, supplies: Mapping[str, ClassToLend], now: float
    ) -> NotLent | None:
        """Takes a wish in; returns why not, if so."""
        minute = self._settings.minute_seconds
        if not self._has_budget(borrower, now):
            return NotLent(loan=asked.loan, reason=TOO_OFTEN, seconds=minute)
        limit = self._limit(borrower)
        if limit.why:
            self.repaid(borrower, asked.loan)
            return NotLent(loan=asked.loan, reason=DENIED, detail=limit.why, seconds=10 * minute)
        if asked.loan not in supplies:
            return NotLent(loan=asked.loan, reason=NO_SUCH_CLASS, seconds=minute)
        loan = self.loans.get((borrower, asked.loan))
        if loan is None:
            loan = self.loans[borrower, asked.loan] = LoanState(now)
        loan.at_most = dict(asked.at_most)
        seconds = min(asked.seconds, 60 * minute)
        loan.lease_seconds = min(seconds, limit.lease_seconds or seconds)
        # The lease of what is not lent yet has not begun: its wish stands as long as was asked.
        loan.until = now + (loan.lease_seconds if any(loan.amounts.values()) else seconds)
        self._look_at = min(self._look_at, loan.until)
        self._heard_of[borrower, asked.loan] = None
        return None

    def _has_budget(self, borrower: str, now: float) -> bool:
        rate = RATE_PER_MINUTE / self._settings.minute_seconds
        left, at = self._budgets.get(borrower, (BURST, now))
        left = min(BURST, left + (now - at) * rate)
        enough = left >= 1.0
        self._budgets[borrower] = (left - 1.0 if enough else left, now)
        return enough

    def repaid(self, borrower: str, loan: str | None = None) -> None:
        """It wants no more: of one class, or of anything."""
        for key, found in self.loans.items():
            if key[0] == borrower and loan in (None, key[1]):
                found.at_most = {}
                self._heard_of[key] = None

    def adopt(self, borrower: str, loan: str, amounts: Mapping[str, float], now: float) -> None:
        """An earlier process of the manager has lent this, and tasks of it still run."""
        found = self.loans[borrower, loan] = LoanState(now)
        found.amounts = dict(amounts)
        self._heard_of[borrower, loan] = None

    def forget(self, borrower: str, loan: str) -> None:
        """Nothing of a loan is left to be told."""
        self.loans.pop((borrower, loan), None)
        self._heard_of[borrower, loan] = None

    # -- what is free ------------------------------------------------------------------------------

    def share(
        self,
        now: float,
        supplies: Mapping[str, ClassToLend],
        used: Mapping[LentKey, Amounts] | None = None,
    ) -> list[Grant]:
        """Divides what is free.

        Only loans that wish for more than they use, those that are not settled, and those of which
        something was heard since the last time have a turn: the others stay what they are.

        Args:
            supplies: every class by its id.
            used: what the tasks of each loan take now; None if `note_used` was told whenever that
                changed.

        Returns:
            The loans that change. One that has ended is not known here any more.
        """
        if used is not None:
            for key in self._used.keys() | used.keys():
                amounts = used.get(key, _NOTHING)
                if amounts != self._used.get(key, _NOTHING):
                    self._use(key, amounts)
        if now >= self._look_at:
            self.look_at_all()
            self._look_at = min(
                (loan.until for loan in self.loans.values() if loan.until > now), default=inf
            )
        for key in self._heard_of:
            self._look(now, key)
        self._heard_of.clear()
        used, unsettled = self._used, self._unsettled
        shares: dict[LentKey, dict[str, float]] = {}
        if any(self._hungry.values()):
            given_cpus = GivenCpus()
            for loan_id, loans in self._hungry.items():
                supply = supplies.get(loan_id)
                if supply is not None and not supply.wanted:
                    self._deal(now, supply, loans, used, shares, given_cpus)
        grants: list[Grant] = []
        for key in {**unsettled, **shares}:
            loan = self.loans[key]
            in_use = used.get(key, _NOTHING)
            share = shares.get(key, in_use)
            if (
                share != loan.amounts
                or loan.told_until < loan.until
                or not ((now < loan.until and loan.at_most) or any(in_use.values()))
            ):
                grant = self._settle(now, key, dict(share), in_use)
                if grant is not None:
                    self._heard_of[key] = None
                    grants.append(grant)
                    continue
            if key not in shares:
                del unsettled[key]
        return grants

    def look_at_all(self) -> None:
        """Every loan has a turn at the next sharing."""
        self._heard_of.update(dict.fromkeys(self.loans))

    def _use(self, key: LentKey, used: Amounts) -> None:
        """Tasks of a loan take so much from now on."""
        if used:
            self._used[key] = used
        else:
            self._used.pop(key, None)
        self._heard_of[key] = None

    def _look(self, now: float, key: LentKey) -> None:
        """Notes whether a loan wishes for more than it uses: that stays as it is until something is
        heard of it.
        """
        hungry = self._hungry[key[1]]
        loan = self.loans.get(key)
        if loan is None:
            self._unsettled.pop(key, None)
            hungry.pop(key, None)
            return
        self._unsettled[key] = None
        if now < loan.until:
            in_use = self._used.get(key, _NOTHING)
            for name, most in loan.at_most.items():
                if most - in_use.get(name, 0.0) > _SOME:
                    hungry[key] = loan
                    return
        hungry.pop(key, None)

    def _deal(
        self,
        now: float,
        supply: ClassToLend,
        loans: Mapping[LentKey, LoanState],
        used: Mapping[LentKey, Amounts],
        shares: dict[LentKey, dict[str, float]],
        given_cpus: GivenCpus,
    ) -> None:
        """Gives away what is free, one machine's worth at a time, to who has the least.

        Args:
            loans: those that wish for more than they use.
            shares: takes what each has then that is given something, with what it uses.
            given_cpus: takes what each borrower is given.
        """
        free = {name: amount for name, amount in supply.free.items() if amount > _SOME}
        if not (free and loans):
            return
        turns = [
            (self._leaves_unused(now, loan), used.get(key, _NOTHING).get("cpus", 0.0), key)
            for key, loan in loans.items()
        ]
        heapify(turns)
        while turns and free:
            idle, _, key = turns[0]
            share = shares.get(key) or dict(used.get(key, _NOTHING))
            piece = self._room(key, share, used, given_cpus) or {}
            if len(turns) > 1:  # the last one gets all at once
                machine = supply.machine
                piece = {name: min(more, machine.get(name, 0.0)) for name, more in piece.items()}
            before = share.get("cpus", 0.0)
            if self._give(piece, free, share):
                more = share.get("cpus", 0.0) - before
                given_cpus.give(key[0], self._limit(key[0]), more)
                shares[key] = share
                heapreplace(turns, (idle, share.get("cpus", 0.0), key))
            else:
                heappop(turns)

    def _room(
        self,
        key: LentKey,
        share: Mapping[str, float],
        used: Mapping[LentKey, Amounts],
        given_cpus: GivenCpus,
    ) -> dict[str, float] | None:
        """How much more a loan may become; None for nothing."""
        loan = self.loans[key]
        room = {name: most - share.get(name, 0.0) for name, most in loan.at_most.items()}
        limit = self._limit(key[0])
        if limit.why:
            return None
        left = given_cpus.left(key[0], limit)
        if left is not None:
            in_use = [taken.get("cpus", 0.0) for (pool, _), taken in used.items() if pool == key[0]]
            left -= sum(in_use)
            room["cpus"] = min(room.get("cpus", 0.0), left)
            if left <= _SOME:
                return None
        room = {name: amount for name, amount in room.items() if amount > _SOME}
        return room or None

    @staticmethod
    def _give(room: Mapping[str, float], free: dict[str, float], share: dict[str, float]) -> bool:
        """Gives what is free of that; returns whether that was anything."""
        given = False
        for name, amount in room.items():
            amount = min(amount, free.get(name, 0.0))
            if amount <= _SOME:
                continue
            given = True
            share[name] = share.get(name, 0.0) + amount
            free[name] -= amount
            if free[name] <= _SOME:
                del free[name]
        return given

    def _leaves_unused(self, now: float, loan: LoanState) -> bool:
        since = loan.unused_since
        return since is not None and now - since >= self._unused_seconds

    def _settle(
        self, now: float, key: LentKey, share: dict[str, float], used: Amounts
    ) -> Grant | None:
        """Notes what a loan is now; returns it if its borrower is to be told."""
        loan = self.loans[key]
        is_over = now >= loan.until or not loan.at_most
        if is_over and not any(used.values()):
            del self.loans[key]
            return Grant(*key, {}, now)
        if any(share.values()) and not any(loan.amounts.values()):
            loan.until = min(loan.until, now + loan.lease_seconds)
            self._look_at = min(self._look_at, loan.until)
        renewed = loan.until > loan.told_until and (
            loan.until - loan.told_until > loan.lease_seconds / 10
        )
        if not (renewed or _differ(loan.amounts, share)):
            return None
        loan.amounts = share
        loan.told_until = loan.until
        return Grant(*key, dict(share), loan.until)

    def note_used(self, now: float, key: LentKey, used: Amounts) -> None:
        """Notes what tasks of a loan take now: what is left unused for long, others may have.

        Args:
            used: must not change later.
        """
        self._use(key, used)
        loan = self.loans.get(key)
        if loan is None:
            return
        for name, amount in loan.amounts.items():
            if amount - used.get(name, 0.0) > _SOME:
                if loan.unused_since is None:
                    loan.unused_since = now
                return
        loan.unused_since = None

    # -- owners first ------------------------------------------------------------------------------

    def overdue(self, now: float, supplies: Mapping[str, ClassToLend]) -> dict[str, int]:
        """How many running guests of each class are to end now, because own tasks wait for their
        places, and have for `reclaim_seconds`.
        """
        for loan in [loan for loan in self._wanted_since if loan not in supplies]:
            del self._wanted_since[loan]
        found: dict[str, int] = {}
        for loan, supply in supplies.items():
            if not supply.wanted:
                self._wanted_since.pop(loan, None)
                continue
            since = self._wanted_since.setdefault(loan, now)
            if supply.overdue is not None:
                if supply.overdue:
                    found[loan] = supply.overdue
            elif now - since >= self._settings.reclaim_seconds:
                found[loan] = supply.wanted
        return found

    def overdue_at(self) -> float | None:
        """When `overdue` may name some next; None if no own task waits."""
        if not self._wanted_since:
            return None
        return min(self._wanted_since.values()) + self._settings.reclaim_seconds


def _differ(before: Amounts, after: Amounts) -> bool:
    return before != after and any(
        abs(before.get(name, 0.0) - after.get(name, 0.0)) > _SOME
        for name in before.keys() | after.keys()
    )
