"""The home's side: who is asked for machines, and what counts of what they offer as workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from kestrelctl.core import events as ev
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.worker.ad import WorkerAd, bookable
from kestrelctl.core.model.worker.assets import natural
from kestrelctl.core.model.worker.matching_ads import worker_facts
from kestrelctl.core.scheduling.unmet import Unmet
from kestrelctl.flock.rules.borrowing import Borrower, LoanKey, Need
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.rules.start_text import ALWAYS, NEVER
from kestrelctl.flock.rules.willing import HeardPool
from kestrelctl.flock.service.lent_ad import fits_one
from kestrelctl.flock.service.loan_addresses import loan_of, pool_and_loan
from kestrelctl.manager.service import Service
from kestrelctl.metrics.flock_families import HAND_OUT_BOUNDS
from kestrelctl.protocol.pools import DENIED, Borrow, LentClass, NotLent


class BorrowingService:
    """The loans that a pool asks others for.

    Args:
        policy: the rules in force.
        proximity_seconds: the round trip to a pool; None if it is not known.

    Attributes:
        wanting: own tasks that found no place at home at the last look.
        hand_outs: seconds from asking for a loan to the first task that went there.
    """

    def __init__(
        self,
        service: Service,
        settings: FlockSettings,
        policy: Callable[[], Policy],
        proximity_seconds: Callable[[str], float | None],
    ) -> None:
        self._service = service
        self._policy = policy
        self._proximity = proximity_seconds
        self.borrower = Borrower(settings)
        self.wanting = 0
        self.hand_outs = Histogram(HAND_OUT_BOUNDS)
        self._asked_at: dict[LoanKey, float] = {}
        #: The ad that each loan has offered, before anything was taken off.
        self._offered: dict[str, WorkerAd] = {}
        self._owners: dict[str, str] = {}

    # -- asking ------------------------------------------------------------------------------------

    def look(
        self, nearest_first: Callable[[float], list[HeardPool]], now: float
    ) -> list[tuple[str, Borrow]]:
        """Decides whom to ask for what now."""
        self.borrower.expire(now)
        self._note_hand_outs(now)
        self.refresh()
        waiting = self._service.pool.unmet(now)
        self.wanting = sum(each.tasks for each in waiting)
        if not waiting:
            self._asked_at.clear()
            return self.borrower.decide(now, [], [], {})
        self._note_ends(now)
        policy = self._policy()
        may = [
            heard for heard in nearest_first(now) if policy.may_borrow_from(heard.said.pool).allowed
        ]
        needs = [
            Need(each.tasks, natural(each.shape.request), self._fits(each, policy))
            for each in waiting
        ]
        used = self.used()
        asked = self.borrower.decide(now, needs, may, used)
        for pool, wish in asked:
            if not self._holds_some((pool, wish.loan)):
                self._asked_at.setdefault((pool, wish.loan), now)
        return asked

    def _note_ends(self, now: float) -> None:
        """Tells the wishes until when lenders have lent."""
        for lender, loan in self.borrower.wishes:
            worker = self._service.pool.workers.get(loan_of(lender, loan))
            left = worker.remaining_seconds(now) if worker is not None else None
            if left is not None:
                self.borrower.lent_until(lender, loan, now + left)

    def _note_hand_outs(self, now: float) -> None:
        """Measures the wishes that have led to something since the last look."""
        for key, asked_at in list(self._asked_at.items()):
            if self._holds_some(key):
                self.hand_outs.observe(now - asked_at)
                del self._asked_at[key]
            elif key not in self.borrower.wishes:
                del self._asked_at[key]

    def _holds_some(self, key: LoanKey) -> bool:
        """Whether a loan has been handed tasks."""
        worker = self._service.pool.workers.get(loan_of(*key))
        return worker is not None and bool(worker.held)

    def _fits(self, waiting: Unmet, policy: Policy) -> Callable[[str, LentClass], bool]:
        return lambda pool, cls: self.why_not(waiting, pool, cls, policy) == ("", "")

    def why_not(self, waiting: Unmet, pool: str, cls: LentClass, policy: Policy) -> tuple[str, str]:
        """Tells why a pool's class does not fit what waits: (reason, detail); empty if it does."""
        jid = loan_of(pool, cls.id)
        start = " && ".join(f"({each})" for each in (cls.ad.start, *fits_one(cls.ad)) if each)
        ad = msgspec.structs.replace(cls.ad, start=start)
        refusal = self._service.pool.would_fit(waiting.shape, ad, jid)
        if refusal is not None:
            return str(refusal.reason), refusal.wanted or refusal.found
        offered = self._offered.get(jid)
        if offered is not None and offered.start not in ("", NEVER):
            # What it lends already says more: what its rules ask of tasks.
            ad = msgspec.structs.replace(cls.ad, start=offered.start)
            refusal = self._service.pool.would_fit(waiting.shape, ad, jid)
            if refusal is not None:
                return DENIED, f"its rules ask for {refusal.wanted}"
        verdict = policy.judge_task(
            "borrow",
            pool,
            user=waiting.owner,
            group=waiting.group,
            about=worker_facts(cls.ad, jid),
            seconds=waiting.shape.time_request_seconds or None,
            cpus=natural(waiting.shape.request).get("cpus", 0.0),
        )
        return ("", "") if verdict.allowed else ("policy", verdict.why)

    def used(self) -> Mapping[LoanKey, dict[str, float]]:
        """The amounts that own tasks take of each loan."""
        return {
            pool_and_loan(jid): _used(worker)
            for jid, worker in self._service.pool.workers.items()
            if is_neighbour(jid) and worker.online
        }

    def holders(self) -> set[str]:
        """The pools that hold tasks of this one."""
        return {
            pool_and_loan(jid)[0]
            for jid, worker in self._service.pool.workers.items()
            if is_neighbour(jid) and worker.held
        }

    # -- workers -----------------------------------------------------------------------------------

    def may_work(self, jid: str) -> bool:
        """Whether another pool may offer itself as a worker: it was asked, or is one already."""
        if not is_neighbour(jid):
            return False
        pool, loan = pool_and_loan(jid)
        if not loan:
            return False
        asked = self.borrower.allowance(pool, loan, self._service.now()) is not None
        return asked or jid in self._service.pool.workers

    def admitted(self, jid: str, ad: WorkerAd) -> WorkerAd:
        """Limits what a loan offers: to no more than was asked for, and to what the own rules say.

        After a restart the manager has forgotten what it asked for: then no more counts than did
        before.
        """
        pool, loan = pool_and_loan(jid)
        self._offered[jid] = ad
        most: Mapping[str, float] | None = self.borrower.allowance(pool, loan, self._service.now())
        known = self._service.pool.workers.get(jid)
        if most is None:
            most = known.ad.assets if known is not None else {}
        elif known is not None:
            most = {
                name: max(most.get(name, 0.0), amount)
                for name, amount in {**most, **_used(known)}.items()
            }
        cpus = max(0.001, min(ad.assets.get("cpus", 0.0), most.get("cpus", 0.0)))
        assets = {n: min(a, most.get(n, 0.0)) for n, a in ad.assets.items()} | {"cpus": cpus}
        rules = self._policy().start_expression(
            "borrow", pool, owners=self._owners, machines=worker_facts(ad, jid)
        )
        start = " && ".join(f"({each})" for each in (ad.start, rules) if each not in ("", ALWAYS))
        return msgspec.structs.replace(
            ad,
            assets={name: amount for name, amount in assets.items() if amount > 0.0},
            units={},
            shared=(),
            unknown={},
            start=start,
            distance_seconds=self._proximity(pool) or 0.0,
        )

    def refresh(self, *, anew: bool = False) -> None:
        """Makes loans take the tasks that the rules let go out now, if active users have changed.

        Args:
            anew: the rules have changed.
        """
        sharers = self._service.pool.sharers.users()
        owners = {each.name: each.record.group for each in sharers if each.is_active}
        if owners == self._owners and not anew:
            return
        self._owners = owners
        workers = self._service.pool.workers
        for jid in [jid for jid in self._offered if jid not in workers]:
            del self._offered[jid]
        for jid, offered in list(self._offered.items()):
            ad = self.admitted(jid, offered)
            if workers[jid].online and ad != workers[jid].ad:
                self._service.handle(
                    ev.Resized(at=self._service.now(), cause="rules", worker=jid, ad=ad)
                )

    def refused(self, pool: str, said: NotLent) -> bool:
        """Notes a lender's refusal; returns whether it was asked."""
        return self.borrower.refused(pool, said, self._service.now())


def _used(worker: Worker) -> dict[str, float]:
    whole = natural({n: a for n, a in worker.cls.capacity.items() if n in bookable(worker.ad)})
    free = natural(worker.free)
    return {name: max(0.0, amount - free.get(name, 0.0)) for name, amount in whole.items()}
