"""A pool in its flock: carries messages between the rules and the others, and looks after it all.

It looks whenever the own pool has handed out work, at most every `look_seconds`: what falls idle is
lent, and what waits is asked for, within milliseconds. What is only to be repeated has its times.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from random import Random

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.scheduling.unmet import Unmet
from kestrelctl.errors import KestrelError
from kestrelctl.flock.overlay.overlay import Overlay
from kestrelctl.flock.overlay.overlay_settings import OverlaySettings
from kestrelctl.flock.rules.announcing import Announcer, whole_of
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.rules.willing import NEW, HeardPool, WillingList
from kestrelctl.flock.service.borrowing import BorrowingService
from kestrelctl.flock.service.files_home import Carrier, NoCarrier
from kestrelctl.flock.service.home_slots import HomeSlots, OwnSlots, SlotGiver
from kestrelctl.flock.service.loan_addresses import flock_of, pool_and_loan
from kestrelctl.flock.service.loans import LoanKeeper, Spools
from kestrelctl.manager.outputs import Outputs
from kestrelctl.manager.service import Service
from kestrelctl.protocol import codec, directions
from kestrelctl.protocol.job_answers import NeighbourAnswer
from kestrelctl.protocol.pools import (
    DENIED,
    AskAround,
    AskPools,
    Borrow,
    FlockMessage,
    GivenSlot,
    LentClass,
    NotLent,
    PoolAnnouncement,
    PoolPing,
    PoolPong,
    Repay,
    WantSlot,
)
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: The least time between two looks, however much happens and however short the flock's minute is.
LEAST_LOOK_SECONDS = 0.002
#: The time between two looks if nothing happens at all, in flock minutes.
IDLE_MINUTES = 1 / 60
#: A flock of so many pools or fewer needs no table: each tells all it knows.
FEW_POOLS = 16
#: The most pools, the latest ones, of which it is known that messages to them come back.
MOST_UNREACHABLE = 1_000
#: The first token of a ping that a person has asked for: it is above all of the overlay's.
_FIRST_TOKEN = 1 << 47

#: The reasons why messages are dropped.
UNREADABLE, UNASKED, STRANGER = "unreadable", "unasked", "stranger"


class FlockService:
    """The flock of one manager.

    Args:
        outputs: of the manager, to fetch what guests print.
        spools: where results of loans wait.
        random: shuffles equals, and spreads over time what is done regularly.
        policy: the rules in force.
        own_slots: asks the own file share for a place; None where there is none.
        carrier: makes what brings the files of guests home.
        any_workdir: guests may start in any directory: all pools are of one user and one machine.
    """

    def __init__(
        self,
        service: Service,
        outputs: Outputs,
        settings: FlockSettings,
        spools: Spools,
        random: Random,
        policy: Policy,
        *,
        own_slots: OwnSlots | None = None,
        carrier: Callable[[HomeSlots], Carrier] = lambda slots: NoCarrier(),
        any_workdir: bool = False,
    ) -> None:
        self.settings = settings
        self.member = False
        self.counts: Counter[str] = Counter()
        self.last_classes: list[LentClass] = []
        self.policy = policy
        self._service = service
        self._domain = service.domain
        self._random = random
        self.overlay = Overlay(
            service.domain, random, OverlaySettings(minute_seconds=settings.minute_seconds)
        )
        self.willing = WillingList(service.domain, random)
        self._announcer = Announcer(service.domain, service.pool.epoch, settings)
        #: The pools that have heard the latest announcement: others need not wait for the next one.
        self._told: frozenset[str] = frozenset()
        #: Pools to which rules lend nothing, and when each is told so again.
        self._deny_at: dict[str, float] = {}
        self._slots = HomeSlots(self._send)
        self.keeper = LoanKeeper(
            service,
            outputs,
            settings,
            lambda: self.policy,
            spools,
            random,
            carrier(self._slots),
            any_workdir=any_workdir,
        )
        self.desk = BorrowingService(
            service, settings, lambda: self.policy, self.overlay.proximity_seconds
        )
        self._giver = SlotGiver(own_slots, self.desk.holders, self._send, service.now)
        #: In the order in which messages to them came back last.
        self.unreachable: dict[str, None] = {}
        self._loop = asyncio.get_running_loop()
        self._looked_at = 0.0
        self._asked_around_at = 0.0
        self._pace_seconds = max(LEAST_LOOK_SECONDS, settings.look_seconds)
        self._timer = Timer(self._look)
        #: By the pool that is to answer, and the token.
        self._pings: dict[tuple[str, int], asyncio.Future[None]] = {}
        self._next_token = _FIRST_TOKEN
        self._restored = False
        self._has_left = False
        service.after_schedule.append(self._look_soon)

    # -- in and out --------------------------------------------------------------------------------

    def begin(self, through: Callable[[], list[str]] | list[str]) -> None:
        """Makes the pool a member, and joins through these pools; through none it is the first."""
        domains = through() if callable(through) else through
        self.member, self._has_left = True, False
        moment = self._service.now()
        for domain in domains:
            if domain != self._domain and not self.settings.fixed:
                self.overlay.join(domain, moment)
        self._look_soon()

    def end(self) -> None:
        """Leaves: tells the others, lends nothing any more, and asks for nothing."""
        if not self.member:
            return
        self._send_to(self._targets(), self._announcer.farewell())
        self.overlay.leave(self._service.now())
        self._flush_overlay()
        self.member, self._has_left = False, True
        for borrower, loan in list(self.keeper.loans):
            self.keeper.repaid(borrower, loan)
        for pool, loan in list(self.desk.borrower.wishes):
            self._send(pool, Repay(loan=loan))
        self.desk.borrower.wishes.clear()

    def set_rules(self, policy: Policy) -> None:
        """Puts other rules in force.

        Pools that may not borrow any more are told: they would take what they heard last for true.
        """
        before, self.policy = self._may_hear(), policy
        denied = [pool for pool in before if not policy.may_lend_to(pool).allowed]
        if self.member:
            self._send_to(denied, self._announcer.farewell())
        self.desk.refresh(anew=True)
        for heard in self.willing.holding(self._service.now()):
            pool = heard.said.pool
            if not policy.may_borrow_from(pool).allowed:
                for loan in self.desk.borrower.forget(pool):
                    self._send(pool, Repay(loan=loan))
        self._look_soon()

    async def ping(self, domain: str) -> float:
        """The round trip to a pool's manager in seconds; waits for ever."""
        self._next_token += 1
        token = self._next_token
        answered: asyncio.Future[None] = self._loop.create_future()
        self._pings[domain, token] = answered
        began = self._service.now()
        try:
            self._send(domain, PoolPing(token=token))
            await answered
            return self._service.now() - began
        finally:
            del self._pings[domain, token]

    async def close(self) -> None:
        """Stops, because the manager does."""
        self._timer.stop()
        self.member = False
        await self.keeper.close()

    # -- OtherPools --------------------------------------------------------------------------------

    def on_online(self) -> None:
        """Notes that the manager has a session with the server."""
        self._restore()
        self.unreachable.clear()
        self.keeper.on_online()
        self._look_soon()

    def _restore(self) -> None:
        """Goes on with what an earlier process of the manager has lent, once that can be read."""
        if self._restored:
            return
        try:
            self.keeper.look()
            self.keeper.restore(self._service.now())
        except KestrelError as error:  # such as a database that is away for a while
            log.warning("what was lent before cannot be read yet: %s (%s)", error, error.cause)
        else:
            self._restored = True

    def on_offline(self) -> None:
        """Notes that the manager has no session."""
        self.keeper.on_offline()

    def is_ours(self, address: str) -> bool:
        """Whether the flock answers for an address of the pool's domain."""
        return address.partition("/")[0] == flock_of(self._domain)

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """Takes in a message to the flock, or to a loan."""
        pool, loan = pool_and_loan(to)
        if loan:
            if not self.keeper.on_payload(sender, loan, payload):
                self._drop(STRANGER, sender, "there is no such loan of it")
            return
        pool, resource = pool_and_loan(sender)
        if sender != flock_of(pool) or resource or pool == self._domain:
            self._drop(STRANGER, sender, "it is no pool's flock")
            return
        try:
            message = directions.flock.decode(payload)
        except codec.BadMessage as error:
            self._drop(UNREADABLE, sender, str(error))
            return
        self._service.stanzas.received(type(message), len(payload))
        self.unreachable.pop(pool, None)
        self._hear(pool, message)

    def on_bounce(self, sender: str, condition: str) -> None:
        """Notes that a message to another domain could not be delivered."""
        pool, _ = pool_and_loan(sender)
        if sender.partition("@")[0] == "pool":
            self.keeper.on_bounce(pool, condition)
        else:
            self.unreachable.pop(pool, None)
            self.unreachable[pool] = None
            if len(self.unreachable) > MOST_UNREACHABLE:
                del self.unreachable[next(iter(self.unreachable))]
            self.overlay.unreachable(pool, self._service.now())
            self._look_soon()

    def may_work(self, jid: str) -> bool:
        """Whether another pool may offer itself as a worker."""
        return self.desk.may_work(jid)

    def admitted(self, jid: str, ad: WorkerAd) -> WorkerAd:
        """Limits what such a worker offers to what counts of it."""
        return self.desk.admitted(jid, ad)

    def explain(self, job: Job) -> list[NeighbourAnswer]:
        """Tells why each known pool does not take what waits of a job."""
        moment = self._service.now()
        waiting = Unmet(job.shape, job.owner, job.sharer.record.group, 1)
        found: list[NeighbourAnswer] = []
        for heard in self.willing.nearest_first(self.overlay.proximity_seconds, moment):
            pool = heard.said.pool
            reason, detail = self._why_not(waiting, pool, heard.said)
            found.append(NeighbourAnswer(pool=pool, reason=reason, detail=detail))
        for heard in self.willing.holding(moment):
            if heard.said.denied:
                said = heard.said
                found.append(NeighbourAnswer(pool=said.pool, reason=DENIED, detail=said.denied))
        return found

    def _why_not(self, waiting: Unmet, pool: str, said: PoolAnnouncement) -> tuple[str, str]:
        verdict = self.policy.may_borrow_from(pool)
        if not verdict.allowed:
            return "policy", verdict.why
        whys = [self.desk.why_not(waiting, pool, cls, self.policy) for cls in said.classes]
        fitting = [cls for cls, why in zip(said.classes, whys, strict=True) if why == ("", "")]
        if not fitting:
            return whys[0] if whys else ("unwilling", "it lends nothing now")
        moment = self._service.now()
        refused = [self.desk.borrower.refusal(pool, cls.id, moment) for cls in fitting]
        if refused[0] is not None and all(refused):
            return refused[0].reason, refused[0].detail
        if any(cls.free.get("cpus", 0.0) > 0 for cls in fitting):
            return "asked", "it has some free"
        return "full", ""

    # -- messages ----------------------------------------------------------------------------------

    def _hear(self, pool: str, message: FlockMessage) -> None:
        moment = self._service.now()
        if isinstance(message, PoolPong) and (pool, message.token) in self._pings:
            answered = self._pings[pool, message.token]
            if not answered.done():
                answered.set_result(None)
        elif isinstance(message, PoolPing) and message.token >= _FIRST_TOKEN and not self.member:
            self._send(pool, PoolPong(token=message.token))  # a person asks
        elif isinstance(message, PoolPing | AskPools) and self._has_left:
            self.overlay.hear(pool, message, moment)  # it has missed that
            self._flush_overlay()
        elif not self.member:
            self.counts[UNASKED] += 1
        elif isinstance(message, PoolAnnouncement):
            self._heard_announcement(pool, message, moment)
        elif isinstance(message, Borrow):
            refusal = self.keeper.hear(pool, message, moment)
            if refusal is not None:
                self._send(pool, refusal)
            self._look_soon()
        elif isinstance(message, Repay):
            self.keeper.repaid(pool, message.loan)
            self._look_soon()
        elif isinstance(message, AskAround):
            for said in self.willing.to_pass_on(pool, moment):
                self._send(pool, said)
        elif isinstance(message, WantSlot):
            self._giver.give(pool, message)
        elif isinstance(message, GivenSlot):
            if not self._slots.hear(pool, message):
                self.counts[UNASKED] += 1
        elif isinstance(message, NotLent):
            if not self.desk.refused(pool, message):
                self.counts[UNASKED] += 1
        else:
            self.overlay.hear(pool, message, moment)
            self._flush_overlay()

    def _heard_announcement(self, sender: str, said: PoolAnnouncement, moment: float) -> None:
        self.counts["received"] += 1
        if self.willing.hear(said, sender, moment) != NEW:
            return
        if not said.willing and sender == said.pool:
            self.desk.borrower.forget(said.pool)
        if said.ttl > 1:
            further = [pool for pool in self._targets() if pool not in (sender, said.pool)]
            self._send_to(further, _with_less_ttl(said))
        self._look_soon()

    def _drop(self, why: str, sender: str, detail: str) -> None:
        self.counts[why] += 1
        log.warning("ignored a message of %s: %.200s", sender, detail)

    def _send(self, pool: str, message: FlockMessage) -> None:
        text = codec.encode(message)
        self._service.stanzas.sent(type(message), len(text))
        self._service.session.send(text, flock_of(pool), flock_of(self._domain))

    def _send_to(self, pools: list[str], message: PoolAnnouncement) -> None:
        for pool in pools:
            self.counts["sent"] += 1
            self._send(pool, message)

    def _flush_overlay(self) -> None:
        for pool, message in self.overlay.take_sends():
            self._send(pool, message)

    def _targets(self) -> list[str]:
        """The pools to which announcements go."""
        if self.settings.fixed:
            return [pool for pool in self.settings.fixed if pool != self._domain]
        known = list(self.overlay.known())
        return known if len(known) <= FEW_POOLS else list(self.overlay.table())

    def _tell_denied(self, whys: dict[str, str], moment: float) -> None:
        """Tells pools to which rules lend nothing that this is so, and why."""
        self._deny_at = {pool: self._deny_at.get(pool, moment) for pool in whys}
        for pool, why in whys.items():
            if self._deny_at[pool] <= moment:
                self._deny_at[pool] = moment + self.settings.announce_seconds
                self._send_to([pool], self._announcer.denial(why))

    def _may_hear(self) -> list[str]:
        """The targets of announcements to which something may be lent."""
        return [pool for pool in self._targets() if self.policy.may_lend_to(pool).allowed]

    def willingness(self) -> tuple[bool, str]:
        """Whether the pool lends anything to anybody now; if not, why."""
        if not self.member:
            return False, "it is in no flock"
        if not self.last_classes:
            return False, "no worker of its own may take tasks"
        if not self._targets():
            return False, "it knows no other pool yet"
        if not self._may_hear():
            return False, "its rules let it lend to none of the pools that it knows"
        return True, ""

    def dropped(self) -> dict[str, int]:
        """Counts the messages that were dropped, by reason."""
        found = Counter({why: self.counts[why] for why in (UNREADABLE, UNASKED, STRANGER)})
        return dict(found + Counter(self.willing.dropped()) + self.overlay.dropped)

    # -- looking -----------------------------------------------------------------------------------

    def _look_soon(self) -> None:
        """Looks in the next turn of the loop, or as soon as the pace allows."""
        if not self.member and not self.keeper.loans:
            return
        due = max(self._looked_at + self._pace_seconds, self._service.now())
        self._set_timer(due)

    def _set_timer(self, moment: float) -> None:
        self._timer.set_by(self._loop.time() + max(0.0, moment - self._service.now()))

    def _look(self) -> None:
        moment = self._looked_at = self._service.now()
        if not self._service.session.online:
            return
        self._restore()
        if not self._restored:
            self._plan(moment)
            return
        classes = self.keeper.look()
        self.last_classes = classes
        self.keeper.share(moment)
        if self.member:
            self._borrow(moment)
            self._announce(classes, moment)
            self.overlay.tick(moment)
            self._flush_overlay()
        self._plan(moment)

    def _borrow(self, moment: float) -> None:
        self.willing.expire(moment)
        for pool, asked in self.desk.look(self._nearest_first, moment):
            self._send(pool, asked)
        self._ask_around(moment)

    def _ask_around(self, moment: float) -> None:
        """Asks whom the neighbours know, when nobody known lends anything."""
        since = self.desk.borrower.starved_since
        pause = self.settings.starved_seconds
        if since is None or moment - max(since, self._asked_around_at) < pause:
            return
        self._asked_around_at = moment
        for pool in self._targets():
            self._send(pool, AskAround())

    def _nearest_first(self, moment: float) -> list[HeardPool]:
        return self.willing.nearest_first(self.overlay.proximity_seconds, moment)

    def _announce(self, classes: list[LentClass], moment: float) -> None:
        verdicts = {pool: self.policy.may_lend_to(pool) for pool in self._targets()}
        targets = [pool for pool, verdict in verdicts.items() if verdict.allowed]
        classes = [each for each in classes if not self.keeper.is_busy(each.id, moment)]
        willing = bool(classes) and bool(targets)
        said = self._announcer.next(
            moment,
            [whole_of(each) for each in classes] if self.settings.fixed else classes,
            willing=willing,
            ttl=self.settings.ttl,
        )
        newcomers = [pool for pool in targets if pool not in self._told]
        self._told = frozenset(targets)
        denied = {pool: found.why for pool, found in verdicts.items() if not found.allowed}
        self._tell_denied(denied, moment)
        if said is not None:
            self._send_to(targets, said)
        elif newcomers and self._announcer.latest is not None:
            self._send_to(newcomers, self._announcer.latest)

    def _plan(self, moment: float) -> None:
        """Plans the next look, if nothing happens before."""
        moments = [moment + IDLE_MINUTES * self.settings.minute_seconds, self._announcer.wake_at]
        due = (self.keeper.wake_at(), self.overlay.wake_at() if self.member else None)
        moments += [at for at in due if at is not None]
        self._set_timer(max(moment + self._pace_seconds, min(moments)))


def _with_less_ttl(said: PoolAnnouncement) -> PoolAnnouncement:
    return PoolAnnouncement(
        pool=said.pool,
        seq=said.seq,
        ttl=said.ttl - 1,
        expires_seconds=said.expires_seconds,
        willing=said.willing,
        classes=said.classes,
    )
