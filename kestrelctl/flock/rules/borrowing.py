"""Decides which other pools a pool asks for machines that its waiting tasks could use.

A wish stands at its lender for a lease. It says how much the pool could use together with what it
uses there already; the lender lends what is free of that, now or when it falls idle. A pool asks
the nearest first, for as much as they say is free. It asks a few that have nothing free now for
the rest: one of them will be the first to have something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.willing import HeardPool
from kestrelctl.protocol.pools import Borrow, LentClass, NotLent

#: (lender, class)
LoanKey = tuple[str, str]
Amounts = Mapping[str, float]

#: A wish that would grow by less than this share waits for its renewal.
MORE_SHARE = 0.25


class Need(NamedTuple):
    """Tasks of one kind that wait and find no place at home.

    Attributes:
        tasks: how many.
        request: what one asks for, in natural units.
        fits: whether a task of them may run on a class of a pool, as far as both say.
    """

    tasks: int
    request: Amounts
    fits: Callable[[str, LentClass], bool]


class Wish:
    """The wish for machines of one class of a lender.

    Attributes:
        at_most: how much was asked for.
        until: the lender and the pool itself forget it then.
        renew_at: it is said again after that, as long as it is needed.
        silent_until: a lender that has refused is not asked again before this time.
        refusal: its answer; None if it has not refused.
    """

    __slots__ = ("asked_at", "at_most", "refusal", "renew_at", "silent_until", "until")

    def __init__(self) -> None:
        self.at_most: dict[str, float] = {}
        self.asked_at = self.until = self.renew_at = self.silent_until = float("-inf")
        self.refusal: NotLent | None = None


class Borrower:
    """The wishes of one pool."""

    def __init__(self, settings: FlockSettings) -> None:
        self._settings = settings
        self.wishes: dict[LoanKey, Wish] = {}
        #: The time since which needs are left that nobody has anything for; None if there are none.
        self.starved_since: float | None = None

    def decide(
        self,
        now: float,
        needs: Sequence[Need],
        nearest_first: Iterable[HeardPool],
        used: Mapping[LoanKey, Amounts],
    ) -> list[tuple[str, Borrow]]:
        """Decides whom to ask for what now.

        Args:
            needs: all that waits, in the order in which it is to be served.
            nearest_first: the willing pools that the pool's policy lets it borrow from. No more of
                them are looked at than needed.
            used: what tasks of the pool take of each loan.

        Returns:
            (lender, message) of each that is to be sent.
        """
        settings = self._settings
        if not needs:
            self.starved_since = None
            return []
        left = [need.tasks for need in needs]
        total = waiting = sum(left)
        asked: list[tuple[str, Borrow]] = []
        later: list[tuple[str, LentClass]] = []
        for heard in nearest_first:
            if not waiting:
                break
            pool = heard.said.pool
            for cls in heard.said.classes:
                if self._is_silent((pool, cls.id), now):
                    continue  # what it says is free is for others
                wanted, taken = self._share(pool, cls, cls.free, needs, left)
                if taken:
                    waiting -= taken
                    self._ask(asked, now, pool, cls, wanted, used)
                elif len(later) < settings.spread:
                    later.append((pool, cls))
        fed = bool(used) or waiting < total
        if waiting:
            for pool, cls in later:
                whole = {name: amount * cls.machines for name, amount in cls.ad.assets.items()}
                wanted, taken = self._share(pool, cls, whole, needs, list(left))
                if taken:
                    self._ask(asked, now, pool, cls, wanted, used)
        if fed:
            self.starved_since = None
        elif self.starved_since is None:
            self.starved_since = now
        return asked

    def _is_silent(self, key: LoanKey, now: float) -> bool:
        """Whether a lender has refused lately."""
        wish = self.wishes.get(key)
        return wish is not None and now < wish.silent_until

    @staticmethod
    def _share(
        pool: str, cls: LentClass, free: Amounts, needs: Sequence[Need], left: list[int]
    ) -> tuple[dict[str, float], int]:
        """Returns how much of what is free the needs can use, and for how many tasks; takes these
        off `left`.
        """
        rest: dict[str, float] | None = None  # most have nothing that anybody could take
        wanted: dict[str, float] = {}
        taken = 0
        for place, need in enumerate(needs):
            tasks = left[place]
            if not tasks:
                continue
            for name, amount in need.request.items():
                if amount > 0 and amount * tasks > (has := (rest or free).get(name, 0.0)):
                    tasks = min(tasks, int(has / amount + 1e-9))
            if tasks <= 0 or not need.fits(pool, cls):
                continue
            left[place] -= tasks
            taken += tasks
            if rest is None:
                rest = dict(free)
            for name, amount in need.request.items():
                rest[name] = rest.get(name, 0.0) - amount * tasks
                wanted[name] = wanted.get(name, 0.0) + amount * tasks
        return wanted, taken

    def _ask(
        self,
        asked: list[tuple[str, Borrow]],
        now: float,
        pool: str,
        cls: LentClass,
        wanted: dict[str, float],
        used: Mapping[LoanKey, Amounts],
    ) -> None:
        """Asks for what is wanted beyond what is used, unless that was asked for lately."""
        settings = self._settings
        key = (pool, cls.id)
        wish = self.wishes.get(key)
        if wish is None:
            wish = self.wishes[key] = Wish()
        in_use = used.get(key, {})
        at_most = {
            name: in_use.get(name, 0.0) + wanted.get(name, 0.0) for name in {**wanted, **in_use}
        }
        if now <= wish.renew_at:
            more = any(
                amount > wish.at_most.get(name, 0.0) * (1 + MORE_SHARE)
                for name, amount in at_most.items()
            )
            if not more or now - wish.asked_at < settings.wish_pace_seconds:
                return
        wish.at_most = at_most
        wish.asked_at = now
        wish.until = now + settings.lease_seconds
        wish.renew_at = now + settings.lease_seconds / 2
        message = Borrow(loan=cls.id, at_most=at_most, seconds=settings.lease_seconds)
        asked.append((pool, message))

    # -- what lenders say --------------------------------------------------------------------------

    def allowance(self, lender: str, loan: str, now: float) -> Amounts | None:
        """Returns how much a lender may offer as a worker; None if it was not asked."""
        wish = self.wishes.get((lender, loan))
        return wish.at_most if wish is not None and now < wish.until else None

    def lent_until(self, lender: str, loan: str, until: float) -> None:
        """Notes until when a lender lends: a loan shorter than asked for is renewed sooner."""
        wish = self.wishes.get((lender, loan))
        if wish is not None and wish.asked_at < until < wish.until:
            wish.renew_at = wish.asked_at + (until - wish.asked_at) / 2

    def refused(self, lender: str, said: NotLent, now: float) -> bool:
        """Notes a lender's refusal; returns whether it was asked."""
        wish = self.wishes.get((lender, said.loan))
        if wish is None:
            return False
        wish.until = wish.renew_at = now
        wish.refusal = said
        pause = max(said.seconds, self._settings.minute_seconds)
        wish.silent_until = now + min(pause, 60 * self._settings.minute_seconds)
        return True

    def refusal(self, lender: str, loan: str, now: float) -> NotLent | None:
        """Returns a lender's refusal of a class while it is not asked again, else None."""
        wish = self.wishes.get((lender, loan))
        return wish.refusal if wish is not None and now < wish.silent_until else None

    def forget(self, lender: str) -> list[str]:
        """Drops the wishes at a lender that has left or is forbidden; returns their classes."""
        gone = [loan for pool, loan in self.wishes if pool == lender]
        for loan in gone:
            del self.wishes[lender, loan]
        return gone

    def open_wishes(self, now: float) -> int:
        """Counts the loans that are asked for."""
        return sum(now < wish.until for wish in self.wishes.values())

    def starved_seconds(self, now: float) -> float:
        """Returns for how long nobody has had anything for what is left of the needs."""
        return max(0.0, now - self.starved_since) if self.starved_since is not None else 0.0

    def expire(self, now: float) -> None:
        """Forgets wishes that do not hold any more."""
        over = [
            key
            for key, wish in self.wishes.items()
            if wish.until <= now and wish.silent_until <= now
        ]
        for key in over:
            del self.wishes[key]
