"""A pool's standing in its flock: what people are told of it, and what they change, durably."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kestrelctl.core.effects import SettingChanged
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.names import problem_with_domain
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.errors import NotFound, TimedOut, Unreachable, UsageError
from kestrelctl.flock.service.flock_service import FlockService
from kestrelctl.flock.service.kept_flock import KeptFlock
from kestrelctl.flock.service.loan_addresses import pool_and_loan
from kestrelctl.flock.service.neighbour_states import state_of
from kestrelctl.manager.service import Service
from kestrelctl.protocol.pools import LentClass
from kestrelctl.protocol.views import FlockView, LentClassView, LoanView, NeighbourView
from kestrelctl.timer import Timer

log = logging.getLogger(__name__)

#: A pool that has not answered a ping after this time counts as one that does not answer.
PING_SECONDS = 10.0
#: The time between two looks at which pools are to be remembered, in flock minutes.
REMEMBER_MINUTES = 1.0


class PoolInFlock:
    """The `AnsweredFlock` of a manager.

    Args:
        through: the pool that the manager was started to join through; its own domain for the first
            of a flock; empty for none.
    """

    def __init__(
        self, service: Service, flock: FlockService, kept: KeptFlock, through: str
    ) -> None:
        self._service = service
        self._flock = flock
        self._kept = kept
        self._through = through
        self._remembering = Timer(self._remember)
        #: Nothing is noted that is just being forgotten.
        self._is_leaving = False
        flock.set_rules(kept.policy)
        service.listen(SettingChanged, self._on_setting)

    def _on_setting(self, changed: SettingChanged) -> None:
        """Puts other rules in force when they are durable."""
        if changed.kind is FlockRule:
            self._flock.set_rules(self._kept.policy)

    def begin(self) -> None:
        """Joins the flock in which the pool was before, or that it was told to join."""
        if ways_in := self._ways_in():
            self._flock.begin(ways_in)
            self._remember()

    def _ways_in(self) -> list[str]:
        """The pools through which the flock may be found."""
        return list(dict.fromkeys([*self._named(), *(peer.pool for peer in self._kept.peers())]))

    def _named(self) -> list[str]:
        """The pools through which it was told to join, at its start or since."""
        through = [self._through] if self._through else []
        named = (peer.pool for peer in self._kept.peers() if peer.through)
        return list(dict.fromkeys([*through, *named]))

    def close(self) -> None:
        """Stops, because the manager does."""
        self._remembering.stop()

    def _remember(self) -> None:
        """Notes now and then through which pools the flock could be found again."""
        overlay = self._flock.overlay
        if self._flock.member and not self._is_leaving:
            if not overlay.known():  # all have left, or none was there yet
                self._flock.begin(self._ways_in())
            heard = {each.domain: each.heard_at for each in overlay.neighbours()}
            self._kept.remember(heard)
        pause = REMEMBER_MINUTES * self._flock.settings.minute_seconds
        self._remembering.set(max(1.0, pause))

    # -- what is asked -----------------------------------------------------------------------------

    def status(self) -> FlockView:
        """The standing of the pool in its flock, with all loans."""
        flock, pool = self._flock, self._service.pool
        overlay, keeper = flock.overlay, flock.keeper
        willing, why = flock.willingness()
        given = [
            LoanView(
                pool=borrower,
                loan=loan_id,
                amounts=dict(state.amounts),
                running=keeper.loans[borrower, loan_id].running,
                since=self._wall(state.since),
                until=self._wall(state.until),
            )
            for (borrower, loan_id), state in keeper.lender.loans.items()
            if (borrower, loan_id) in keeper.loans
        ]
        taken = [
            self._taken(jid, worker)
            for jid, worker in pool.workers.items()
            if is_neighbour(jid) and worker.online
        ]
        return FlockView(
            pool=self._service.domain,
            member=flock.member,
            joined_through=[pool for pool in self._named() if pool != self._service.domain],
            known=len(overlay.known()),
            routing_table=len(overlay.table()),
            leaf_set=len(overlay.leaves()),
            willing=willing,
            why_unwilling=why,
            free=[_class_view(each) for each in flock.last_classes],
            given=given,
            taken=taken,
            guests_today=keeper.counts.today(self._service.clock.wall()),
            guests_total=keeper.counts.begun,
            sent=flock.counts["sent"],
            received=flock.counts["received"],
            dropped=flock.dropped(),
        )

    def _taken(self, jid: str, worker: Worker) -> LoanView:
        lender, loan_id = pool_and_loan(jid)
        clock = self._service.clock
        return LoanView(
            pool=lender,
            loan=loan_id,
            amounts=dict(worker.ad.assets),
            running=worker.running,
            since=self._wall(worker.joined_at),
            until=self._wall(clock.now() + (worker.remaining_seconds(clock.now()) or 0.0)),
        )

    def _wall(self, steady: float) -> float:
        """Converts a moment of the steady clock into the machine's time."""
        clock = self._service.clock
        return round(clock.wall() + steady - clock.now(), 3)

    def pools(self) -> Sequence[NeighbourView]:
        """The pools that it knows."""
        flock, moment = self._flock, self._service.now()
        heard = {each.said.pool: each for each in flock.willing.holding(moment)}
        known = dict.fromkeys([*flock.overlay.known(), *heard, *flock.unreachable])
        found: list[NeighbourView] = []
        for pool in known:
            said = heard[pool].said if pool in heard else None
            lend, borrow = flock.policy.may_lend_to(pool), flock.policy.may_borrow_from(pool)
            why = borrow.why
            if borrow.allowed and said is not None and not said.willing:
                why = "it lends nothing to anybody now"
            found.append(
                NeighbourView(
                    pool=pool,
                    state=state_of(pool, said, flock.unreachable),
                    round_trip_seconds=flock.overlay.proximity_seconds(pool),
                    heard_ago_seconds=moment - heard[pool].heard_at if pool in heard else None,
                    classes=[_class_view(each) for each in said.classes] if said else [],
                    may_borrow=not why,
                    why_not_borrow=why,
                    may_lend=lend.allowed,
                    why_not_lend=lend.why,
                )
            )
        return found

    def rules(self) -> Sequence[FlockRule]:
        """The rules in force."""
        return self._kept.rules()

    # -- what is changed ---------------------------------------------------------------------------

    async def join(self, domain: str, by: str) -> None:
        """Joins the flock that a pool is in.

        Raises:
            UsageError: it is the pool itself, or cannot be a domain.
            StoreFull: nothing can be stored now.
        """
        if domain == self._service.domain:
            raise UsageError(
                "a pool cannot join through itself",
                hint="name another pool of the flock; the first one just waits to be joined",
            )
        if (problem := problem_with_domain(domain)) is not None:
            raise UsageError(problem, hint="for example pool.example.org")
        await self._kept.join_through(domain, by)
        log.info("%s has the pool join the flock of %s", by, domain)
        self._flock.begin([domain])
        if not self._remembering.is_set:
            self._remember()

    async def forget(self, domain: str, by: str) -> None:
        """Stops joining through a pool.

        Raises:
            UsageError: the manager was started to join through it.
            NotFound: it does not join through that one.
            StoreFull: nothing can be stored now.
        """
        if domain == self._through:
            raise UsageError(
                f"the manager was started to join through {domain}",
                hint="start it without, or with another pool: `--flock`, or `kestrel_flock_join`",
            )
        if domain not in self._named():
            raise NotFound(
                f"the pool does not join through {domain[:80]}",
                hint="`kestrelctl flock status` says through whom it does",
            )
        await self._kept.forget(domain, by)
        log.info("%s has the pool join through %s no more", by, domain)
        overlay = self._flock.overlay
        overlay.forget(domain)
        if not (overlay.known() or self._ways_in()):
            self._flock.end()

    async def leave(self, by: str) -> None:
        """Leaves the flock.

        Raises:
            StoreFull: nothing can be stored now.
        """
        self._is_leaving = True
        try:
            await self._kept.forget_all(by)
            log.info("%s has the pool leave its flock", by)
            self._flock.end()
        finally:
            self._is_leaving = False

    async def ping(self, domain: str) -> float:
        """Measures the seconds until a pool's manager has answered.

        Raises:
            UsageError: it is the pool itself.
            Unreachable: the pool cannot be reached.
            TimedOut: it does not answer.
        """
        if domain == self._service.domain:
            raise UsageError(
                "a pool cannot ask itself", hint="`kestrelctl flock pools` lists the others"
            )
        known = domain in (*(view.pool for view in self.pools()), *self._ways_in())
        self._flock.unreachable.pop(domain, None)
        pinging = asyncio.ensure_future(self._flock.ping(domain))
        try:
            async with asyncio.timeout(PING_SECONDS):
                while not pinging.done():
                    await asyncio.wait({pinging}, timeout=0.05)
                    if domain in self._flock.unreachable:
                        raise Unreachable(
                            f"{domain} cannot be reached",
                            cause="its server cannot be found, or its manager is not there",
                            hint="`kestrelctl flock pools` lists those that are known; the log of "
                            "this pool's server tells more",
                        )
                return pinging.result()
        except TimeoutError:
            raise TimedOut(f"{domain} did not answer within {PING_SECONDS:g} s") from None
        finally:
            pinging.cancel()
            if not known:  # it may be no pool at all: it is not listed, nor counted in alerts
                self._flock.unreachable.pop(domain, None)


def _class_view(cls: LentClass) -> LentClassView:
    return LentClassView(
        id=cls.id, machines=cls.machines, free=dict(cls.free), tags=list(cls.ad.tags)
    )
