"""Lends what is free of each class of a pool's workers, and shares it among the pools that ask.

A borrower keeps what its tasks use while they run. The rest goes to the wishes in turns, machine by
machine, to the borrower that has the least of it; nothing is given while own tasks wait that could
use it. What a borrower was lent and has left unused for a while goes to others who wait.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

from kestrelctl.core.pacing.pace import Pace
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.protocol.pools import DENIED, NO_SUCH_CLASS, TOO_OFTEN, Borrow, NotLent

#: (borrower, class)
LentKey = tuple[str, str]
Amounts = Mapping[str, float]

#: The most wishes of one borrower: in a flock minute on average, and at once.
RATE_PER_MINUTE = 700.0
BURST = 300.0
#: The most pools of which it is remembered how often they have asked.
MOST_ASKING = 4_000
#: An amount smaller than any that somebody means.
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
            the time counts for which there have been any.
    """

    loan: str
    machine: Amounts
    free: Amounts
    wanted: int
    overdue: int | None = None


class Grant(NamedTuple):
    """The amounts of a loan from now on, with what it uses; no amounts end it."""

    borrower: str
    loan: str
    amounts: Amounts
    until: float


class LoanState:
    """The loan of one class to one borrower.

    Attributes:
        key: the borrower, and the class.
        at_most: what the borrower wishes, while its lease lasts.
        used: what its tasks take now.
        amounts: what it was told that it has.
        lease_seconds: the time for which it is lent at a time.
        unused_since: the time since which some of that is not used; None if all is.
    """

    __slots__ = (
        "amounts",
        "at_most",
        "key",
        "lease_seconds",
        "since",
        "told_until",
        "until",
        "unused_since",
        "used",
    )

    def __init__(self, key: LentKey, now: float) -> None:
        self.key = key
        self.at_most: Amounts = _NOTHING
        self.used: Amounts = _NOTHING
        self.amounts: Amounts = _NOTHING
        self.until = self.told_until = now
        self.lease_seconds = 0.0
        self.since = now
        self.unused_since: float | None = None


class LoanLimit(NamedTuple):
    """The most that a policy lets one borrower have.

    Attributes:
        why: the reason why it may have nothing; empty if it may have anything at all.
        max_cpus: the processors of all classes together; None for any number.
        rules: the part of `max_cpus` that each rule leaves it which lets others have some, too, by
            the rule's name: what one of those is given under it, this one cannot have.
        lease_seconds: the longest lease; None for any.
    """

    why: str = ""
    max_cpus: float | None = None
    rules: Mapping[str, float] = {}
    lease_seconds: float | None = None


class GivenCpus:
    """The processors that a round of sharing has given away so far, of all classes."""

    def __init__(self) -> None:
        self._to: dict[str, float] = {}
        self._under: dict[str, float] = {}

    def give(self, borrower: str, limit: LoanLimit, cpus: float) -> None:
        """Notes that a borrower is given some more."""
        if limit.max_cpus is None and not limit.rules:
            return  # nobody asks how many those were
        self._to[borrower] = self._to.get(borrower, 0.0) + cpus
        for rule in limit.rules:
            self._under[rule] = self._under.get(rule, 0.0) + cpus

    def left(self, borrower: str, limit: LoanLimit) -> float | None:
        """Returns what its limit leaves a borrower, with what it uses; None for any number."""
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
        #: The amounts that tasks take which came when their loan was over already.
        self._strays: dict[LentKey, Amounts] = {}
        #: Loans of each class that wish for more than they use, those that are not what was told of
        #: them, and those that have to be looked at for that; the time to look for ended ones.
        self._hungry: defaultdict[str, dict[LoanState, None]] = defaultdict(dict)
        self._unsettled: dict[LoanState, None] = {}
        self._heard_of: dict[LoanState, None] = {}
        self._look_at = inf
        self._wanted_since: dict[str, float] = {}
        self._paces: dict[str, Pace] = {}

    # -- what borrowers say ------------------------------------------------------------------------

    def hear(
        self, borrower: str, asked: Borrow, supplies: Mapping[str, ClassToLend], now: float
    ) -> NotLent | None:
        """Takes a wish in; returns the refusal if it may not stand."""
        minute = self._settings.minute_seconds
        if not self._may_ask(borrower, now):
            return NotLent(loan=asked.loan, reason=TOO_OFTEN, seconds=minute)
        limit = self._limit(borrower)
        if limit.why:
            self.repaid(borrower, asked.loan)
            return NotLent(loan=asked.loan, reason=DENIED, detail=limit.why, seconds=10 * minute)
        if asked.loan not in supplies:
            return NotLent(loan=asked.loan, reason=NO_SUCH_CLASS, seconds=minute)
        key = (borrower, asked.loan)
        loan = self.loans.get(key) or self._begin(key, now)
        loan.at_most = dict(asked.at_most)
        seconds = min(asked.seconds, 60 * minute)
        loan.lease_seconds = min(seconds, limit.lease_seconds or seconds)
        # The lease of what is not lent yet has not begun: its wish stands as long as was asked.
        loan.until = now + (loan.lease_seconds if any(loan.amounts.values()) else seconds)
        self._look_at = min(self._look_at, loan.until)
        self._heard_of[loan] = None
        return None

    def _may_ask(self, borrower: str, now: float) -> bool:
        pace = self._paces.get(borrower)
        if pace is None:
            if len(self._paces) >= MOST_ASKING:
                self._paces.clear()
            rate = RATE_PER_MINUTE / self._settings.minute_seconds
            pace = self._paces[borrower] = Pace(rate, BURST)
        return pace.takes(now)

    def repaid(self, borrower: str, loan: str | None = None) -> None:
        """Notes that a borrower wants no more: of one class, or of any."""
        for key, found in self.loans.items():
            if key[0] == borrower and loan in (None, key[1]):
                found.at_most = _NOTHING
                self._heard_of[found] = None

    def adopt(self, borrower: str, loan: str, amounts: Mapping[str, float], now: float) -> None:
        """Takes over what an earlier process of the manager has lent; tasks of it still run."""
        key = (borrower, loan)
        found = self.loans.get(key) or self._begin(key, now)
        found.amounts = dict(amounts)

    def forget(self, borrower: str, loan: str) -> None:
        """Ends a loan of which nothing is left to be told."""
        found = self.loans.get((borrower, loan))
        if found is not None:
            self._end(found)

    def _begin(self, key: LentKey, now: float) -> LoanState:
        loan = self.loans[key] = LoanState(key, now)
        loan.used = self._strays.pop(key, _NOTHING)
        self._heard_of[loan] = None
        return loan

    def _end(self, loan: LoanState) -> None:
        del self.loans[loan.key]
        self._heard_of.pop(loan, None)
        self._unsettled.pop(loan, None)
        self._hungry[loan.key[1]].pop(loan, None)

    # -- what is free ------------------------------------------------------------------------------

    def share(self, now: float, supplies: Mapping[str, ClassToLend]) -> list[Grant]:
        """Divides what is free.

        Only loans that wish for more than they use, those that are not settled, and those of which
        something was heard since the last time have a turn: the others stay what they are.

        Args:
            supplies: every class by its id.

        Returns:
            The loans that change. One that has ended is not known here any more.
        """
        if now >= self._look_at:
            self._look_at_ended(now)
        for loan in self._heard_of:
            self._look(now, loan)
        self._heard_of.clear()
        shares: dict[LoanState, dict[str, float]] = {}
        given_cpus: GivenCpus | None = None
        for loan_id, loans in self._hungry.items():
            supply = supplies.get(loan_id)
            if loans and supply is not None and not supply.wanted:
                given_cpus = given_cpus or GivenCpus()
                self._deal(now, supply, loans, shares, given_cpus)
        grants: list[Grant] = []
        for loan in {**self._unsettled, **shares}:
            share = shares.get(loan)
            grant = self._settle(now, loan, loan.used if share is None else share)
            if grant is not None:
                grants.append(grant)
            elif share is None:
                del self._unsettled[loan]
        return grants

    def look_at_all(self) -> None:
        """Gives every loan a turn at the next sharing."""
        self._heard_of.update(dict.fromkeys(self.loans.values()))

    def _look_at_ended(self, now: float) -> None:
        """Gives loans whose lease has ended a turn; notes when the next lease ends."""
        self._look_at = inf
        for loan in self.loans.values():
            if loan.until <= now:
                self._heard_of[loan] = None
            elif loan.until < self._look_at:
                self._look_at = loan.until

    def _look(self, now: float, loan: LoanState) -> None:
        """Notes whether a loan wishes for more than it uses: that stays as it is until something is
        heard of it.
        """
        self._unsettled[loan] = None
        if now < loan.until:
            used = loan.used
            for name, most in loan.at_most.items():
                if most - used.get(name, 0.0) > _SOME:
                    self._hungry[loan.key[1]][loan] = None
                    return
        self._hungry[loan.key[1]].pop(loan, None)

    def _deal(
        self,
        now: float,
        supply: ClassToLend,
        loans: Mapping[LoanState, None],
        shares: dict[LoanState, dict[str, float]],
        given_cpus: GivenCpus,
    ) -> None:
        """Gives away what is free, one machine's worth at a time, to the borrower with the least.

        Args:
            loans: those that wish for more than they use.
            shares: takes the new amounts of each loan that is given something, with what it uses.
            given_cpus: takes what each borrower is given.
        """
        free = {name: amount for name, amount in supply.free.items() if amount > _SOME}
        if not free:
            return
        turns = [
            (self._leaves_unused(now, loan), loan.used.get("cpus", 0.0), loan.key, loan)
            for loan in loans
        ]
        heapify(turns)
        while turns and free:
            idle, before, key, loan = turns[0]
            share = shares.get(loan) or dict(loan.used)
            limit = self._limit(key[0])
            piece = self._room(loan, share, limit, given_cpus)
            if len(turns) > 1:  # the last one gets all at once
                machine = supply.machine
                piece = {name: min(more, machine.get(name, 0.0)) for name, more in piece.items()}
            if self._give(piece, free, share):
                cpus = share.get("cpus", 0.0)
                given_cpus.give(key[0], limit, cpus - before)
                shares[loan] = share
                heapreplace(turns, (idle, cpus, key, loan))
            else:
                heappop(turns)

    def _room(
        self,
        loan: LoanState,
        share: Mapping[str, float],
        limit: LoanLimit,
        given_cpus: GivenCpus,
    ) -> dict[str, float]:
        """Returns how much a loan may grow; empty for nothing."""
        if limit.why:
            return {}
        borrower = loan.key[0]
        room = {name: most - share.get(name, 0.0) for name, most in loan.at_most.items()}
        left = given_cpus.left(borrower, limit)
        if left is not None:
            left -= self._cpus_used(borrower)
            room["cpus"] = min(room.get("cpus", 0.0), left)
            if left <= _SOME:
                return {}
        return {name: amount for name, amount in room.items() if amount > _SOME}

    def _cpus_used(self, borrower: str) -> float:
        used = [loan.used for key, loan in self.loans.items() if key[0] == borrower]
        used += [amounts for key, amounts in self._strays.items() if key[0] == borrower]
        return sum(amounts.get("cpus", 0.0) for amounts in used)

    @staticmethod
    def _give(room: Mapping[str, float], free: dict[str, float], share: dict[str, float]) -> bool:
        """Adds to a share what of the room is free; returns whether that was anything."""
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

    def _settle(self, now: float, loan: LoanState, share: Amounts) -> Grant | None:
        """Notes the new amounts of a loan; returns the grant if its borrower is to be told."""
        if (now >= loan.until or not loan.at_most) and not any(loan.used.values()):
            self._end(loan)
            return Grant(*loan.key, _NOTHING, now)
        if loan.told_until >= loan.until and (share is loan.amounts or share == loan.amounts):
            return None
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
        self._heard_of[loan] = None
        return Grant(*loan.key, share, loan.until)

    def note_used(self, now: float, key: LentKey, used: Amounts) -> None:
        """Notes what tasks of a loan take now: others may have what is left unused for long.

        Args:
            used: must not change later.
        """
        loan = self.loans.get(key)
        if loan is None:
            if used:
                self._strays[key] = used
            else:
                self._strays.pop(key, None)
            return
        if used != loan.used:
            loan.used = used
            self._heard_of[loan] = None
        for name, amount in loan.amounts.items():
            if amount - used.get(name, 0.0) > _SOME:
                if loan.unused_since is None:
                    loan.unused_since = now
                return
        loan.unused_since = None

    # -- owners first ------------------------------------------------------------------------------

    def overdue(self, now: float, supplies: Mapping[str, ClassToLend]) -> dict[str, int]:
        """Counts the running guests of each class that are to end now, because own tasks wait for
        their places, and have for `reclaim_seconds`.
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
        """Returns when `overdue` may name some next; None if no own task waits."""
        if not self._wanted_since:
            return None
        return min(self._wanted_since.values()) + self._settings.reclaim_seconds


def _differ(before: Amounts, after: Amounts) -> bool:
    return before != after and any(
        abs(before.get(name, 0.0) - after.get(name, 0.0)) > _SOME
        for name in before.keys() | after.keys()
    )
