"""One pool of a simulated flock: the production rules of flocking around a pool.

The rules are those of `kestrelctl.flock.rules`. Only the pool itself and the travel of messages are
simulated. To be fast with a thousand pools, a member asks its rules only when they could have
something to say, and takes announcements in when it has to decide something: until then nobody can
tell whether it has heard them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil, floor
from typing import TYPE_CHECKING

from kestrel_experiments.flock_simulation.agenda import Agenda
from kestrel_experiments.flock_simulation.simulated_pool import Neighbourhood, SimulatedPool
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.flock.overlay.overlay import Overlay
from kestrelctl.flock.rules.announcing import NEWS_SHARE, Announcer
from kestrelctl.flock.rules.borrowing import Borrower, Need
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import ClassToLend, Lender, LoanLimit
from kestrelctl.flock.rules.willing import (
    HeardPool,
    WillingList,
    nearest_rings_first,
    rings_of,
)
from kestrelctl.protocol.pools import Borrow, LentClass, NotLent, OverlayMessage, PoolAnnouncement

if TYPE_CHECKING:
    from random import Random

#: All machines are alike: one class of workers with one processor each.
CLASS = "00000000c1a5"
MACHINE = WorkerAd(assets={"cpus": 1.0})
_ONE = {"cpus": 1.0}
_NOTHING: dict[str, float] = {}
_NO_LIMIT = LoanLimit()
#: The time after which others have noticed that a pool is gone.
NOTICE_SECONDS = 15.0
#: The most pools of a flock that needs no table: each tells all it knows.
FEW_POOLS = 16
#: A pool whose tasks wait looks around again after this part of a flock minute: at least once in
#: the second half of each lease, which is a minute long, and renews the wish then.
_LOOK_AGAIN = 0.95
#: It looks sooner if this many times more tasks wait.
_MORE_WAIT = 1.25


def domain_of(number: int) -> str:
    """Returns the domain of a pool."""
    return f"pool{number:04d}.flock"


#: The number in each domain, and the amounts for each number of machines, as far as needed so far.
_NUMBERS: dict[str, int] = {}
_CPUS: list[dict[str, float]] = []


def number_of(domain: str) -> int:
    """Returns the number of the pool with a domain."""
    found = _NUMBERS.get(domain)
    if found is None:
        found = _NUMBERS[domain] = int(domain[4:8])
    return found


def cpus(machines: int) -> dict[str, float]:
    """Returns machines as amounts for the rules; always the same object, which nobody changes."""
    while machines >= len(_CPUS):
        _CPUS.append({"cpus": float(len(_CPUS))})
    return _CPUS[machines]


def _no_limit(_borrower: str) -> LoanLimit:
    return _NO_LIMIT


class LatestWords:
    """The last two announcements of a pool, with their moments."""

    __slots__ = ("at", "before", "before_at", "last")

    def __init__(self) -> None:
        self.last: PoolAnnouncement | None = None
        self.before: PoolAnnouncement | None = None
        self.at = self.before_at = float("-inf")

    def add(self, said: PoolAnnouncement, now: float) -> None:
        """Notes a new announcement."""
        self.before, self.before_at = self.last, self.at
        self.last, self.at = said, now


class HeardSource:
    """A pool whose announcements reach another one.

    Attributes:
        sender: the domain that brings them: the pool itself, or one that forwards them.
        far_seconds: how long they are on their way.
        heard: the last announcement that was taken in.
    """

    __slots__ = ("far_seconds", "heard", "member", "sender")

    def __init__(self, member: Member, sender: str, far_seconds: float) -> None:
        self.member = member
        self.sender = sender
        self.far_seconds = far_seconds
        self.heard: PoolAnnouncement | None = None


class LentTo:
    """The number of machines lent to another pool, and the number that its tasks use."""

    __slots__ = ("lent", "used")

    def __init__(self) -> None:
        self.lent = self.used = 0

    @property
    def unused(self) -> int:
        """The number of machines that it was promised and does not use."""
        return max(0, self.lent - self.used)


class Member(Neighbourhood):
    """A pool that flocks.

    Attributes:
        hearers: the pools that its announcements reach.
        copies: how many messages one announcement takes, including those that forward it.
        sent: how many messages all its announcements took.
        member: whether it is in the flock now.
        loan_key: the name that the rules of others give to what it lends them, or they lend it.
        keeps_up: whether the overlay looks after itself as time goes by.
        told: how many messages of the overlay it has sent.
        announcements: how many announcements it has made.
        asked: how many wishes it has sent; `granted`: how often it has told what it lends.
        decisions: how often it has looked around for somebody who lends.
    """

    def __init__(
        self,
        model: SimulatedPool,
        members: list[Member],
        far: Sequence[float],
        agenda: Agenda,
        settings: FlockSettings,
        random: Random,
    ) -> None:
        self.model = model
        self.domain = domain_of(model.number)
        self.loan_key = (self.domain, CLASS)
        self.hearers: list[Member] = []
        self._rings: list[list[HeardSource]] = []
        self.said = LatestWords()
        self.announcements = self.asked = self.granted = self.decisions = self.told = 0
        self.keeps_up = True
        self.copies = self.sent = 0
        self._members, self._far, self._agenda = members, far, agenda
        self._settings, self._random = settings, random
        self._pace_seconds, self._look_seconds = settings.pace_seconds, settings.look_seconds
        self.member = False
        self._starts = 0
        self._forget()

    def _forget(self) -> None:
        """Forgets all others: the pool has just started."""
        settings = self._settings
        self._starts += 1
        self.willing = WillingList(self.domain, self._random)
        self.lender = Lender(settings, _no_limit)
        self.borrower = Borrower(settings)
        self.overlay = Overlay(self.domain, self._random)
        self._announcer = Announcer(self.domain, self._starts, settings)
        self._tick_at = float("inf")
        for source in self.sources:
            source.heard = None
        # What is used of loans, as the rules write it, and what others have, by their numbers.
        self._in_use: dict[tuple[str, str], dict[str, float]] = {}
        self._lent: dict[int, LentTo] = {}
        self._unused = 0
        self._is_wanted = False
        # Until the idle machines are fewer or more than these, there is no news of them; and once
        # news are planned, no more of them matter.
        self._fewest, self._most = 1, 0
        self._has_news = False
        self._decided_at = self._announce_at = float("-inf")
        self._decide_at: float | None = None
        self._decided_for = 0.0
        self._reclaims = False
        self._shared_at = float("-inf")
        self._share_at: float | None = None
        self._hush()

    # -- coming and going --------------------------------------------------------------------------

    def join(self, via: Member | None) -> None:
        """Joins the flock through a member; None for the first pool."""
        self.member = True
        if via is not None:
            self.overlay.join(via.domain, self._agenda.now)
            self._flush()

    def leave(self) -> None:
        """Leaves the flock for a while, and forgets all that the manager knew of others."""
        self.member = False
        self._forget()

    # -- the overlay -------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Sends what the overlay has to say, and plans when it is asked again."""
        now = self._agenda.now
        for domain, message in self.overlay.take_sends():
            self.told += 1
            number = number_of(domain)
            member = self._members[number]
            self._agenda.at(now + self._far[number], member._hear_overlay, self, message)
        at = self.overlay.wake_at()
        if at is not None and at != self._tick_at:
            self._tick_at = at
            self._agenda.at(max(at, now), self._tick, at, None)

    def _hear_overlay(self, sender: Member, message: OverlayMessage) -> None:
        now = self._agenda.now
        if self.member:
            self.overlay.hear(sender.domain, message, now)
            self._flush()
        else:
            back = now + self._far[sender.model.number]
            self._agenda.at(back, sender._unreachable, self.domain, None)

    def _tick(self, at: float, _b: None) -> None:
        if self.member and self.keeps_up and at == self._tick_at:
            self._tick_at = float("inf")
            self.overlay.tick(self._agenda.now)
            self._flush()

    @property
    def sources(self) -> list[HeardSource]:
        """The pools whose announcements reach it, the nearest first."""
        return [source for ring in self._rings for source in ring]

    def hears_of(self, sources: Iterable[HeardSource]) -> None:
        """Makes these the sources of its willing list."""
        far = self._far
        self._rings = rings_of((2 * far[each.member.model.number], each) for each in sources)

    def targets(self) -> list[int]:
        """Returns the pools to which its announcements go."""
        known = self.overlay.known()
        pools = known if len(known) <= FEW_POOLS else self.overlay.table()
        return [number_of(domain) for domain in pools]

    # -- time --------------------------------------------------------------------------------------

    def start(self, phase: float) -> None:
        """Begins to take part: tells what is idle, and from then on once a minute.

        Args:
            phase: how many seconds later than others that start now.
        """
        now = self._agenda.now
        self._wake(now + phase)
        self._agenda.at(now + phase, self._each_minute, None, None)

    def _each_minute(self, _a: None, _b: None) -> None:
        """Ends leases that are over. What others have said expires when it is looked at."""
        if not self.member:
            return
        now = self._agenda.now
        if self.lender.loans:
            self._share()
        self._agenda.at(now + self._settings.minute_seconds, self._each_minute, None, None)

    # -- announcing --------------------------------------------------------------------------------

    def _wake(self, at: float) -> None:
        self._announce_at = at
        self._agenda.at(at, self._announce, at, None)

    def _announce(self, at: float, _b: None) -> None:
        """Tells the neighbours what is idle, if the rules find it due."""
        model, settings = self.model, self._settings
        if at != self._announce_at or not self.member:
            return
        now, since = self._agenda.now, model.waits_since
        willing = since is None or now - since < settings.busy_seconds
        free = max(0, model.free - self._unused) if since is None else 0
        cls = LentClass(id=CLASS, ad=MACHINE, machines=model.machines, free=cpus(free))
        said = self._announcer.next(now, (cls,), willing=willing, ttl=settings.ttl)
        if said is not None:
            self.announcements += 1
            self.sent += self.copies
            self.said.add(said, now)
            self._fewest = ceil(free * (1 - NEWS_SHARE))
            self._most = floor(free * (1 + NEWS_SHARE))
            if free:
                for member in self.hearers:
                    if member.model.waits_since is not None:
                        member._look_around(now + self._far[member.model.number])
        self._wake(self._announcer.wake_at)
        self._has_news = False
        self._hush()

    # -- what the pool says ------------------------------------------------------------------------

    def waits(self) -> None:
        """Looks around for lenders: an own task has found no place."""
        if self.model.waiting > self._decided_for:
            self._look_around(self._agenda.now)

    def changed(self) -> None:
        """Reacts to machines that have become idle or busy, or to own tasks that wait for them."""
        model = self.model
        free, unused = model.free, self._unused
        if self.lender.loans:
            if model.waits_since is not None:
                if unused:
                    self._share()
                if model.guests_of and not self._reclaims:
                    self._reclaims = True
                    due = model.waits_since + self._settings.reclaim_seconds
                    self._agenda.at(max(due, self._agenda.now), self._reclaim, None, None)
            elif free < unused:  # the pool that was promised it must not send anything
                self._share()
            elif self._is_wanted and free > unused:
                self._share_soon()
        idle = free - self._unused
        if idle > self._most or idle < self._fewest:
            at = max(self._agenda.now, self.said.at + self._pace_seconds)
            if at < self._announce_at:
                self._wake(at)
            self._has_news = True
            self._hush()

    def _hush(self) -> None:
        """Tells the pool for which numbers of idle machines nothing has to be done."""
        unused, most = self._unused, self.model.machines
        fewest = unused if self._has_news else unused + self._fewest
        if self._is_wanted and self._share_at is None:
            most = unused
        elif not self._has_news:
            most = unused + self._most
        self.model.quiet_for(fewest, most)

    def uses(self, lender: int, running: int) -> None:
        """Notes how many own tasks are now at a lender."""
        self._in_use[self._members[lender].loan_key] = cpus(running)

    def used(self, borrower: int, running: int) -> None:
        """Notes how many tasks of another pool run here now."""
        found = self._lent.get(borrower)
        if found is None:
            found = self._lent[borrower] = LentTo()
        before = found.unused
        found.used = running
        self._unused += found.unused - before
        if not (running or found.lent):
            del self._lent[borrower]
        if found.unused != before:
            self._hush()
        used = cpus(running) if running else _NOTHING
        self.lender.note_used(self._agenda.now, self._members[borrower].loan_key, used)

    # -- borrowing ---------------------------------------------------------------------------------

    def _look_around(self, at: float) -> None:
        """Asks for a decision at a moment, but not too soon after the last one."""
        at = max(at, self._decided_at + self._pace_seconds)
        if self._decide_at is None or at < self._decide_at:
            self._decide_at = at
            self._agenda.at(at, self._decide, at, None)

    def _decide(self, at: float, _b: None) -> None:
        """Asks others for machines, if own tasks wait."""
        if at != self._decide_at:
            return
        self._decide_at = None
        model, now, settings = self.model, self._agenda.now, self._settings
        self._decided_at = now
        waiting = model.waiting if self.member else 0
        self._decided_for = _MORE_WAIT * waiting
        model.tell_beyond(self._decided_for)
        if not waiting:
            return
        self.decisions += 1
        asked = self.borrower.decide(
            now,
            (Need(waiting, _ONE, model.fits),),
            self._nearest_first(now),
            self._in_use,
        )
        for lender, message in asked:
            self.asked += 1
            number = number_of(lender)
            member = self._members[number]
            self._agenda.at(now + self._far[number], member._hear, self, message)
        self._look_around(now + _LOOK_AGAIN * settings.minute_seconds)

    def _nearest_first(self, now: float) -> Iterator[HeardPool]:
        """Yields the willing pools; takes in the announcement of each when it is its turn."""
        for source in nearest_rings_first(self._rings, self._random):
            self._take_in(source, now)
            heard = self.willing.get(source.member.domain, now)
            if heard is not None and heard.said.willing:
                yield heard

    def _take_in(self, source: HeardSource, now: float) -> None:
        """Takes in what a pool has announced since the last time: only its last word counts."""
        said = source.member.said
        at, last = said.at + source.far_seconds, said.last
        if at > now:
            at, last = said.before_at + source.far_seconds, said.before
        if last is None or last is source.heard or at > now:
            return
        before, source.heard = source.heard, last
        if last.willing or before is None or before.willing:
            self.willing.hear(last, source.sender, at)

    def _refused(self, lender: str, said: NotLent) -> None:
        self.borrower.refused(lender, said, self._agenda.now)

    def _unreachable(self, lender: str, _b: None) -> None:
        """Forgets a lender from which a message has come back: there is nobody."""
        if not self.member:
            return
        self.overlay.unreachable(lender, self._agenda.now)
        self._flush()
        self.willing.forget(lender)
        self.borrower.forget(lender)

    # -- lending -----------------------------------------------------------------------------------

    def _hear(self, borrower: Member, message: Borrow) -> None:
        """Hears the wish of a pool for machines."""
        now, number = self._agenda.now, borrower.model.number
        back = now + self._far[number]
        if not self.member:
            self._agenda.at(back, borrower._unreachable, self.domain, None)
            return
        refused = self.lender.hear(borrower.domain, message, self._supplies(), now)
        if refused is not None:
            self._agenda.at(back, borrower._refused, self.domain, refused)
            return
        self._is_wanted = True
        self._hush()
        if self.model.free:
            self._share_soon()

    def _supplies(self) -> dict[str, ClassToLend]:
        model = self.model
        return {CLASS: ClassToLend(CLASS, _ONE, cpus(model.free), model.waiting)}

    def _share_soon(self) -> None:
        """Shares now, or when the pool may look again."""
        due, now = self._shared_at + self._look_seconds, self._agenda.now
        if due <= now:
            self._share()
        elif self._share_at is None:
            self._share_at = due
            self._hush()
            self._agenda.at(due, self._share_late, due, None)

    def _share_late(self, due: float, _b: None) -> None:
        if due != self._share_at:
            return
        self._share_at = None
        if self._is_wanted:
            self._share_soon()
        self._hush()

    def _share(self) -> None:
        """Divides what is idle among those who wish for it, and tells them."""
        now = self._shared_at = self._agenda.now
        for grant in self.lender.share(now, self._supplies()):
            number = number_of(grant.borrower)
            machines = round(grant.amounts.get("cpus", 0.0))
            found = self._lent.get(number)
            if found is None:
                if not machines:
                    continue
                found = self._lent[number] = LentTo()
            if machines == found.lent:
                continue
            self.granted += 1
            before = found.unused
            found.lent = machines
            self._unused += found.unused - before
            if not (machines or found.used):
                del self._lent[number]
            borrower = self._members[number].model
            self._agenda.at(now + self._far[number], borrower.offered, self.model.number, machines)
        self._is_wanted = self.model.free == self._unused
        self._hush()

    def _reclaim(self, _a: None, _b: None) -> None:
        """Ends guests if own tasks have waited too long for their places."""
        self._reclaims = False
        model, now = self.model, self._agenda.now
        if model.waits_since is None or not model.guests_of or not self.member:
            return
        overdue = model.waiting_since(now - self._settings.reclaim_seconds)
        supply = self._supplies()[CLASS]._replace(overdue=overdue)
        ends = self.lender.overdue(now, {CLASS: supply}).get(CLASS, 0)
        if ends:
            model.reclaim(ends)
        if model.guests_of and not self._reclaims and (oldest := model.oldest) is not None:
            self._reclaims = True
            due = max(oldest + self._settings.reclaim_seconds, now + 1.0)
            self._agenda.at(due, self._reclaim, None, None)
