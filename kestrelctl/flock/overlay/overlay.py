"""One pool's part in the overlay: it joins, answers, looks after its tables, and leaves.

Messages may be lost, repeated or late: a pool is in the tables because it has answered lately, and
whatever is not known yet comes up again. Hearsay of a pool is only a reason to ask it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from kestrelctl.flock.overlay.awaited import Awaited
from kestrelctl.flock.overlay.candidates import Candidates
from kestrelctl.flock.overlay.overlay_settings import OverlaySettings
from kestrelctl.flock.overlay.peers import FEW_SAMPLES
from kestrelctl.flock.overlay.pool_ids import pool_id, shared_digits
from kestrelctl.flock.overlay.tables import Neighbour, Tables
from kestrelctl.flock.overlay.walk import Walk
from kestrelctl.protocol.pools import (
    DIGITS,
    MOST_POOLS,
    AskPools,
    FlockLeft,
    OverlayMessage,
    PoolPing,
    PoolPong,
    TellPools,
)

if TYPE_CHECKING:
    from random import Random

#: Lost pools that are remembered, and pools from which a walk waits to begin.
MOST_MISSING = 64
MOST_STARTS = 4
#: Half of the tokens that there are: the others are for whoever else pings pools.
_TOKEN_BITS = 47

#: The reasons why something is dropped: an answer that nobody waits for, or that comes too late; a
#: message in the pool's own name; a pool that was named and is one too many; a pool that did not
#: answer.
LATE, OWN, TOO_MANY, UNANSWERED = "late", "own", "too-many", "unanswered"


_KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(OverlayMessage)}


class Overlay:
    """One pool's knowledge of the others, and the messages that it sends them.

    Args:
        domain: the pool.
        random: spreads what is done regularly, and makes tokens that nobody can guess.
    """

    def __init__(
        self, domain: str, random: Random, settings: OverlaySettings | None = None
    ) -> None:
        self.domain = domain
        self.id = pool_id(domain)
        self.settings = settings or OverlaySettings()
        self._random = random
        self._sends: list[tuple[str, OverlayMessage]] = []
        #: Messages by kind, and dropped ones by reason.
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._away = False
        self._begin()

    def _begin(self) -> None:
        """Begins anew, and knows no pool."""
        settings = self.settings
        self._tables = Tables(self.domain)
        self._candidates = Candidates()
        self._pings = Awaited(settings.answer_seconds)
        self._asks = Awaited(settings.answer_seconds)
        self._walk: Walk | None = None
        self._starts: dict[str, None] = {}
        #: Pools that are to be met, and since when: lost ones, and those to join through.
        self._missing: dict[str, float] = {}
        self._beat_at: float | None = None
        self._beats = self._random.randrange(settings.walk_minutes * settings.retry_minutes)
        self._pings_left = settings.pings_per_minute
        self._samples_left = settings.young_samples
        self._beats_of_youth = settings.young_minutes
        #: The number of pools asked on the latest walk that came to its end.
        self.hops = 0

    # -- what the pool wants, and what it asks
    # ------------------------------------------------------------------------------

    def join(self, via: str, now: float) -> None:
        """Joins the flock in which a pool is; it is tried again until it answers."""
        if via == self.domain:
            return
        self._away = False
        self._miss(via, now)
        self._walk_from(via, now)
        self._start_beating(now)

    def forget(self, via: str) -> None:
        """Stops trying a pool that has not answered."""
        self._missing.pop(via, None)

    def leave(self, now: float) -> None:
        """Tells all known pools that this one leaves, and forgets them; tells later askers, too."""
        for domain in self.known():
            self._send(domain, FlockLeft())
        self._away = True
        self._begin()

    def table(self) -> list[str]:
        """The pools of the routing table."""
        return self._tables.routing.members()

    def leaves(self) -> list[str]:
        """The pools of the leaf set."""
        return self._tables.leaves.members()

    def known(self) -> list[str]:
        """All pools that have answered lately, those in the tables first."""
        return self._tables.peers.domains()

    def missing(self) -> list[str]:
        """The pools that do not answer and are tried again now and then."""
        return list(self._missing)

    def proximity_seconds(self, domain: str) -> float | None:
        """The round trip to a pool in seconds; None if it was not measured lately."""
        peer = self._tables.peers.get(domain)
        return None if peer is None else peer.round_trip_seconds

    def next_hop(self, key: int) -> str | None:
        """The next pool on the way to the one whose id is nearest to this; None for this pool."""
        return self._tables.next_hop(key)

    def neighbours(self) -> list[Neighbour]:
        """The routing table and the leaf set, for people."""
        return self._tables.neighbours()

    # -- what is said
    # ------------------------------------------------------------------------------

    def take_sends(self) -> list[tuple[str, OverlayMessage]]:
        """Takes out the messages to send since the last call: (pool, message) of each."""
        sends, self._sends = self._sends, []
        return sends

    def _send(self, domain: str, message: OverlayMessage) -> None:
        self.sent[_KINDS[type(message)]] += 1
        self._sends.append((domain, message))

    def _ping(self, domain: str, now: float, tries: int = 1) -> None:
        if domain not in self._pings:
            token = self._random.getrandbits(_TOKEN_BITS)
            self._pings.expect(domain, token, now, tries)
            self._send(domain, PoolPing(token=token))

    def _ask(self, domain: str, row: int, now: float, without: Sequence[str] = ()) -> None:
        if domain not in self._asks:
            token = self._random.getrandbits(_TOKEN_BITS)
            self._asks.expect(domain, token, now)
            self._send(domain, AskPools(token=token, row=row, without=tuple(without)))

    # -- what is heard
    # ------------------------------------------------------------------------------

    def hear(self, sender: str, message: OverlayMessage, now: float) -> None:
        """Takes in a message from a pool, for which the server vouches."""
        self.received[_KINDS[type(message)]] += 1
        if sender == self.domain:
            self.dropped[OWN] += 1
            return
        if self._away:
            if isinstance(message, PoolPing | AskPools):
                self._send(sender, FlockLeft())
            return
        self._start_beating(now)
        peer = self._tables.peers.get(sender)
        if peer is not None:
            peer.heard_at = now
        match message:
            case PoolPing():
                self._send(sender, PoolPong(token=message.token))
                self._consider(sender, sender, now)
            case PoolPong():
                self._hear_pong(sender, message, now)
            case AskPools():
                self._answer(sender, message, now)
                self._consider(sender, sender, now)
            case TellPools():
                self._hear_pools(sender, message, now)
            case FlockLeft():
                self._missing.pop(sender, None)
                self._lose(sender, now)
        self._try_candidates(now)

    def _hear_pong(self, sender: str, message: PoolPong, now: float) -> None:
        asked_at = self._pings.answered(sender, message.token)
        if asked_at is None:
            self.dropped[LATE] += 1
            return
        self._candidates.answered(sender)
        peer = self._tables.peers.meet(sender)
        peer.heard_at = now
        peer.measured(now - asked_at)
        if self._tables.admit(peer):
            self._ask(sender, DIGITS, now)
        if peer.samples < FEW_SAMPLES:
            self._ping(sender, now)
        if self._missing.pop(sender, None) is not None and not self._walks_from(sender):
            self._walk_from(sender, now)  # it may know others that are lost, or were never met

    def _answer(self, sender: str, message: AskPools, now: float) -> None:
        key, without = pool_id(sender), {*message.without, sender}
        tables = self._tables
        pools = tables.routing.rows(message.row, shared_digits(self.id, key))
        self._send(
            sender,
            TellPools(
                token=message.token,
                next=tables.next_hop(key, without),
                pools=tuple([pool for pool in pools if pool not in without][:MOST_POOLS]),
                leaves=tuple([pool for pool in tables.leaves.members() if pool not in without]),
            ),
        )
        for domain in message.without:
            peer = tables.peers.members.get(domain)
            if peer is not None and now - peer.heard_at > self.settings.minute_seconds / 2:
                self._ping(domain, now)

    def _hear_pools(self, sender: str, message: TellPools, now: float) -> None:
        if self._asks.answered(sender, message.token) is None:
            self.dropped[LATE] += 1
            return
        self._consider(sender, sender, now)
        for domain in (*message.leaves, *message.pools):
            self._consider(domain, sender, now)
        walk = self._walk
        if walk is not None and walk.path[-1] == sender:
            if walk.go_on(message.next):
                self._ask(walk.path[-1], walk.row, now, walk.without)
            else:
                self.hops = len(walk.path)
                self._end_walk(now)

    def unreachable(self, domain: str, now: float) -> None:
        """Notes that a message to a pool came back: the pool is not there."""
        self._asks.forget(domain)
        if self._tables.is_placed(domain):
            self._miss(domain, now)
        self._lose(domain, now)
        if self._walk is not None and self._walk.path[-1] == domain:
            self._go_back(self._walk, now)

    # -- whom to try, and whom to forget
    # ------------------------------------------------------------------------------

    def _consider(self, domain: str, teller: str, now: float) -> None:
        """Lines up a pool that was named, to be tried, if it may have a place."""
        tables = self._tables
        if domain == self.domain or tables.is_placed(domain) or domain in self._pings:
            return
        if not tables.is_wanted(domain):
            if self._samples_left <= 0 or not tables.may_be_nearer(domain):
                return
            self._samples_left -= 1
        if not self._candidates.offer(domain, teller, now):
            self.dropped[TOO_MANY] += 1

    def _try_candidates(self, now: float) -> None:
        while self._pings_left > 0 and (domain := self._candidates.take()) is not None:
            if not self._tables.is_placed(domain):
                self._pings_left -= 1
                self._ping(domain, now)

    def _lose(self, domain: str, now: float) -> None:
        """Removes a pool that is not there from the tables, and asks who takes its places."""
        settings = self.settings
        self._pings.forget(domain)
        self._candidates.rest(domain, now + settings.retry_minutes * settings.minute_seconds)
        ask, new_leaves = self._tables.remove(domain)
        for other, row in ask:
            self._ask(other, row, now, (domain,))
        for leaf in new_leaves:
            self._ask(leaf, DIGITS, now)

    def _miss(self, domain: str, now: float) -> None:
        self._missing.pop(domain, None)
        self._missing[domain] = now
        if len(self._missing) > MOST_MISSING:
            del self._missing[next(iter(self._missing))]

    # -- walks
    # ------------------------------------------------------------------------------

    def _walks_from(self, first: str) -> bool:
        return self._walk is not None and self._walk.path[:1] == [first]

    def _walk_from(self, first: str, now: float) -> None:
        if self._walk is None:
            self._walk = Walk(self.id, first)
            self._ask(first, 0, now)
        elif len(self._starts) < MOST_STARTS:
            self._starts[first] = None

    def _go_back(self, walk: Walk, now: float) -> None:
        if walk.go_back():
            self._ask(walk.path[-1], walk.row, now, walk.without)
        else:
            self._end_walk(now)

    def _end_walk(self, now: float) -> None:
        self._walk = None
        if self._starts:
            first = next(iter(self._starts))
            del self._starts[first]
            self._walk_from(first, now)

    # -- time
    # ------------------------------------------------------------------------------

    def wake_at(self) -> float | None:
        """Returns when something is due; None if nothing is before a message comes."""
        times = (self._beat_at, self._pings.due_at(), self._asks.due_at())
        return min((at for at in times if at is not None), default=None)

    def tick(self, now: float) -> None:
        """Does what is due."""
        for domain, tries in self._pings.overdue(now):
            self._hear_nothing(domain, tries, now)
        for domain, _ in self._asks.overdue(now):
            if self._tables.is_placed(domain):
                self._ping(domain, now)
            if self._walk is not None and self._walk.path[-1] == domain:
                self._go_back(self._walk, now)
        if self._beat_at is not None and self._beat_at <= now:
            self._beat_at = None
            self._start_beating(now)
            self._beat(now)
        self._try_candidates(now)

    def _hear_nothing(self, domain: str, tries: int, now: float) -> None:
        settings, is_placed = self.settings, self._tables.is_placed(domain)
        if tries < (settings.tries if is_placed else settings.candidate_tries):
            self._ping(domain, now, tries + 1)
            return
        if is_placed:
            self._miss(domain, now)
        else:
            self.dropped[UNANSWERED] += 1
        self._lose(domain, now)

    def _start_beating(self, now: float) -> None:
        if self._beat_at is None:
            minutes = 0.9 + 0.2 * self._random.random()
            if self._missing and not self._tables.peers.members:
                minutes *= self.settings.lonely_minutes
            self._beat_at = now + self.settings.minute_seconds * minutes

    def _beat(self, now: float) -> None:
        """Does the work of each minute: pings pools that were not heard, and now and then more."""
        settings, draw = self.settings, self._random.choice
        self._beats += 1
        self._pings_left = settings.pings_per_minute
        if self._beats % settings.retry_minutes == 0:
            self._forget_what_is_old(now)
            if self._missing:
                self._ping(draw(list(self._missing)), now)
        if not self._tables.peers.members:
            if self._missing:
                self._walk_from(draw(list(self._missing)), now)
            return
        self._ask_for_signs_of_life(now)
        if self._beats % settings.exchange_minutes == 0:
            self._ask(draw(self._tables.leaves.members()), DIGITS, now)
        self._beats_of_youth -= 1
        if self._beats_of_youth >= 0:
            # A pool near a near pool is near, too: its table is worth more than a stranger's.
            self._samples_left = settings.young_samples
            self._walk_from(draw(self._tables.nearest_few()), now)
            return
        if self._beats % settings.sample_minutes == 0:
            self._samples_left = 1
        if self._beats % settings.walk_minutes == 0:
            near = self._beats // settings.walk_minutes % 2
            self._walk_from(draw(self._tables.nearest_few() if near else self.table()), now)

    def _ask_for_signs_of_life(self, now: float) -> None:
        settings, tables = self.settings, self._tables
        last_minute = now - 0.8 * settings.minute_seconds  # a beat may come a tenth early
        leaves_due = now - settings.leaf_minutes * settings.minute_seconds
        table_due = now - settings.table_minutes * settings.minute_seconds
        for domain, peer in tables.peers.members.items():
            heard_at = peer.heard_at
            if heard_at <= leaves_due and (heard_at <= table_due or domain in tables.leaves):
                self._ping(domain, now)
        for domain in tables.leaves.nearest():
            if tables.peers.members[domain].heard_at <= last_minute:
                self._ping(domain, now)

    def _forget_what_is_old(self, now: float) -> None:
        minute_seconds = self.settings.minute_seconds
        before = now - self.settings.acquaintance_minutes * minute_seconds
        self._tables.peers.forget_acquaintances(before)
        if self._tables.peers.members:  # otherwise they are all that is known
            before = now - self.settings.missing_minutes * minute_seconds
            self._missing = {pool: at for pool, at in self._missing.items() if at > before}
