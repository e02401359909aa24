"""However wishes, tasks and rules change, no more is lent than there is, and owners come first."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy

from flockruleskit import LARGE, SMALL, machines, says
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kestrelctl.flock.rules.borrowing import Borrower, LoanKey, Need
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import ClassToLend, Lender, LentKey, LoanLimit
from kestrelctl.flock.rules.willing import HeardPool
from kestrelctl.protocol.pools import DENIED, Borrow, NotLent

POOLS = st.sampled_from(["b.test", "c.test", "d.test"])
CLASSES = st.sampled_from([SMALL, LARGE])
ASSETS = ("cpus", "memory")
AMOUNTS = st.fixed_dictionaries(
    {"cpus": st.floats(0, 40), "memory": st.integers(0, 10**12).map(float)}
)
MACHINE = {"cpus": 4.0, "memory": 64e9}
SETTINGS = FlockSettings()


def close(amount: float) -> float:
    """With room for what adding up in another order makes."""
    return amount * (1 + 1e-9) + 1e-5


class Lending(RuleBasedStateMachine):
    """A lender, of whose free machines tasks of borrowers take some now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.limits: dict[str, LoanLimit] = {}
        self.shared: dict[str, float] = {}  # what one rule lets these have together
        self.lender = Lender(SETTINGS, self.limit)
        self.free = {loan: dict.fromkeys(ASSETS, 0.0) for loan in (SMALL, LARGE)}
        self.wanted = dict.fromkeys((SMALL, LARGE), 0)
        self.used: dict[LentKey, dict[str, float]] = {}
        self.wishes: dict[LentKey, tuple[dict[str, float], float]] = {}

    @rule(pool=POOLS, loan=CLASSES, at_most=AMOUNTS, seconds=st.floats(0, 300))
    def asks(self, pool: str, loan: str, at_most: dict[str, float], seconds: float) -> None:
        wish = Borrow(loan=loan, at_most=at_most, seconds=seconds)
        if self.lender.hear(pool, wish, self.supplies(), self.now) is None:
            self.wishes[pool, loan] = at_most, self.now + seconds

    @rule(pool=POOLS, loan=st.none() | CLASSES)
    def repays(self, pool: str, loan: str | None) -> None:
        self.lender.repaid(pool, loan)
        for key in list(self.wishes):
            if key[0] == pool and loan in (None, key[1]):
                del self.wishes[key]

    @rule(pool=POOLS, loan=CLASSES, amounts=AMOUNTS)
    def was_lent_before(self, pool: str, loan: str, amounts: dict[str, float]) -> None:
        if (pool, loan) not in self.lender.loans:
            self.lender.adopt(pool, loan, amounts, self.now)

    @rule(loan=CLASSES, free=AMOUNTS)
    def falls_idle(self, loan: str, free: dict[str, float]) -> None:
        self.free[loan] = free

    @rule(loan=CLASSES, tasks=st.integers(0, 3))
    def own_tasks_wait(self, loan: str, tasks: int) -> None:
        self.wanted[loan] = tasks

    @rule(pool=POOLS, why=st.sampled_from(["", "no"]), most=st.none() | st.floats(0, 20))
    def has_other_rules(self, pool: str, why: str, most: float | None) -> None:
        self.limits[pool] = LoanLimit(why=why, max_cpus=most)
        self.shared.clear()

    @rule(pools=st.sets(POOLS, min_size=2), most=st.floats(0, 20))
    def share_a_rule(self, pools: set[str], most: float) -> None:
        for pool in pools:
            self.limits.pop(pool, None)
        self.shared = dict.fromkeys(sorted(pools), most)

    def limit(self, pool: str) -> LoanLimit:
        if pool not in self.shared:
            return self.limits.get(pool, LoanLimit())
        room = max(0.0, self.shared[pool] - self.cpus_used(self.shared.keys() - {pool}))
        return LoanLimit(max_cpus=room, rules={"friends": room})

    def cpus_used(self, pools: Collection[str]) -> float:
        return sum(used.get("cpus", 0.0) for (pool, _), used in self.used.items() if pool in pools)

    @precondition(lambda self: self.lender.loans)
    @rule(data=st.data(), part=st.floats(0, 1))
    def uses(self, data: st.DataObject, part: float) -> None:
        key = data.draw(st.sampled_from(sorted(self.lender.loans)))
        self.used[key] = {n: a * part for n, a in self.lender.loans[key].amounts.items()}
        self.lender.note_used(self.now, key, self.used[key])

    @rule(seconds=st.floats(0, 100))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds

    def supplies(self) -> dict[str, ClassToLend]:
        return {
            loan: ClassToLend(loan, MACHINE, free, self.wanted[loan])
            for loan, free in self.free.items()
        }

    @invariant()
    def it_lends_what_it_may(self) -> None:
        supplies = self.supplies()
        looks_at_all = deepcopy(self.lender, {id(self): self})
        looks_at_all.look_at_all()
        grants = self.lender.share(self.now, supplies)
        assert sorted(grants) == sorted(looks_at_all.share(self.now, supplies))
        for grant in grants:
            assert all(amount >= 0 for amount in grant.amounts.values())
        given: dict[tuple[str, str], float] = {}
        cpus: dict[str, float] = {}
        for key, loan in self.lender.loans.items():
            used = self.used.get(key, {})
            at_most, until = self.wishes.get(key, ({}, 0.0))
            granted = at_most if self.now < until and not self.wanted[key[1]] else {}
            if self.limit(key[0]).why:
                granted = {}
            for name, amount in loan.amounts.items():
                most = max(granted.get(name, 0.0), used.get(name, 0.0))
                assert amount <= close(most), "no more than the wish, or what is used"
                beyond = max(0.0, amount - used.get(name, 0.0))
                given[key[1], name] = given.get((key[1], name), 0.0) + beyond
            more = loan.amounts.get("cpus", 0.0) - used.get("cpus", 0.0)
            cpus[key[0]] = cpus.get(key[0], 0.0) + max(0.0, more)
        for (loan_id, name), amount in given.items():
            assert amount <= close(supplies[loan_id].free.get(name, 0.0)), "no more than is free"
        for pool, amount in cpus.items():
            most_cpus = self.limit(pool).max_cpus
            if most_cpus is not None:
                left = max(0.0, most_cpus - self.cpus_used({pool}))
                assert amount <= close(left), "no more than the rule says"
        if self.shared:
            left = max(0.0, max(self.shared.values()) - self.cpus_used(self.shared))
            assert sum(cpus.get(pool, 0.0) for pool in self.shared) <= close(left), "together"


class Borrowing(RuleBasedStateMachine):
    """A borrower whose tasks come and go, and what others have free."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.borrower = Borrower(SETTINGS)
        self.free: dict[str, float] = {}
        self.used: dict[LoanKey, dict[str, float]] = {}
        self.silent: dict[str, float] = {}

    @rule(pool=POOLS, free=st.integers(0, 10))
    def hears(self, pool: str, free: int) -> None:
        self.free[pool] = float(free)

    @rule(pool=POOLS, cpus=st.integers(0, 10))
    def uses(self, pool: str, cpus: int) -> None:
        self.used[pool, SMALL] = {"cpus": float(cpus)}

    @rule(pool=POOLS)
    def is_refused(self, pool: str) -> None:
        if self.borrower.refused(pool, NotLent(loan=SMALL, reason=DENIED), self.now):
            self.silent[pool] = self.now + SETTINGS.minute_seconds

    @rule(pool=POOLS)
    def forgets(self, pool: str) -> None:
        self.borrower.forget(pool)
        self.silent.pop(pool, None)
        assert self.borrower.allowance(pool, SMALL, self.now) is None

    @rule(tasks=st.lists(st.tuples(st.integers(1, 20), st.sampled_from([0.5, 1.0, 3.0]))))
    def looks(self, tasks: list[tuple[int, float]]) -> None:
        needs = [Need(n, {"cpus": cpus}, lambda pool, cls: True) for n, cpus in tasks]
        near = [
            HeardPool(says(pool, machines(free, count=10)), self.now, direct=True)
            for pool, free in self.free.items()
        ]
        self.borrower.expire(self.now)
        wanted = sum(n * cpus for n, cpus in tasks)
        for pool, wish in self.borrower.decide(self.now, needs, near, self.used):
            in_use = self.used.get((pool, SMALL), {}).get("cpus", 0.0)
            more = wish.at_most["cpus"] - in_use
            assert 0 <= more <= close(min(wanted, max(self.free[pool], 10.0)))
            assert self.now >= self.silent.get(pool, 0.0), "who has refused is left alone"
            assert self.borrower.allowance(pool, SMALL, self.now) == wish.at_most

    @rule(seconds=st.floats(0, 100))
    def time_goes_on(self, seconds: float) -> None:
        self.now += seconds


TestLending = Lending.TestCase
TestLending.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestBorrowing = Borrowing.TestCase
TestBorrowing.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
