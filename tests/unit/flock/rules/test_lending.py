"""What a pool lends of what it has free, and to whom."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from flockruleskit import LARGE, MINUTE, SMALL

from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.lending import (
    BURST,
    MOST_ASKING,
    RATE_PER_MINUTE,
    ClassToLend,
    Grant,
    Lender,
    LentKey,
    LoanLimit,
)
from kestrelctl.protocol.pools import DENIED, NO_SUCH_CLASS, TOO_OFTEN, Borrow, NotLent

SETTINGS = FlockSettings()
LEASE = SETTINGS.lease_seconds
UNUSED = SETTINGS.unused_seconds


class Bank:
    """A lender, what of its machines is free, and what its guests use."""

    def __init__(self) -> None:
        self.limits: dict[str, LoanLimit] = {}
        self.lender = Lender(SETTINGS, lambda pool: self.limits.get(pool, LoanLimit()))
        self.now = 1000.0
        self.supplies: dict[str, ClassToLend] = {}
        self.used: dict[LentKey, dict[str, float]] = {}
        self.has(0)

    def has(
        self,
        free: float,
        cls: str = SMALL,
        wanted: int = 0,
        overdue: int | None = None,
        cpus: float = 1.0,
        **others: float,
    ) -> None:
        amounts = {"cpus": free, **others}
        machine = {"cpus": cpus, **others}
        self.supplies[cls] = ClassToLend(cls, machine, amounts, wanted, overdue)

    def asks(
        self, pool: str, cpus: float, cls: str = SMALL, seconds: float = LEASE, **others: float
    ) -> NotLent | None:
        wish = Borrow(loan=cls, at_most={"cpus": cpus, **others}, seconds=seconds)
        return self.lender.hear(pool, wish, self.supplies, self.now)

    def uses(self, pool: str, cpus: float, cls: str = SMALL) -> None:
        self.used[pool, cls] = {"cpus": cpus} if cpus else {}

    def grants(self) -> list[Grant]:
        for key, amounts in self.used.items():
            self.lender.note_used(self.now, key, amounts)
        return self.lender.share(self.now, self.supplies)

    def lends(self, seconds: float = 0.0) -> dict[str, float]:
        """What each of those is told that it has that are told anything."""
        self.now += seconds
        return {each.borrower: each.amounts.get("cpus", 0.0) for each in self.grants()}

    def has_lent(self, pool: str, cls: str = SMALL) -> Mapping[str, float]:
        return self.lender.loans[pool, cls].amounts


@pytest.fixture
def bank() -> Bank:
    return Bank()


# -- wishes ----------------------------------------------------------------------------------------


def test_a_wish_is_granted_as_far_as_something_is_free(bank: Bank) -> None:
    bank.has(5)
    assert bank.asks("b", 3) is None
    assert bank.lends() == {"b": 3.0}
    bank.asks("c", 9)
    bank.has(2)
    bank.uses("b", 3)
    assert bank.lends() == {"c": 2.0}


def test_a_wish_stands_and_is_granted_as_soon_as_something_falls_idle(bank: Bank) -> None:
    bank.asks("b", 3)
    assert bank.lends() == {"b": 0.0}
    bank.has(1)
    assert bank.lends(seconds=10.0) == {"b": 1.0}
    bank.uses("b", 1)
    bank.has(0)
    assert bank.lends(seconds=10.0) == {}
    assert bank.has_lent("b") == {"cpus": 1.0}


def test_nobody_is_told_again_what_it_knows(bank: Bank) -> None:
    bank.has(5)
    bank.asks("b", 3)
    assert bank.lends()
    assert bank.lends(seconds=1.0) == {}


def test_a_wish_said_again_replaces_the_one_before(bank: Bank) -> None:
    bank.has(5)
    bank.asks("b", 3)
    bank.lends()
    bank.asks("b", 1)
    assert bank.lends() == {"b": 1.0}


def test_a_class_that_is_not_there_is_refused(bank: Bank) -> None:
    refusal = bank.asks("b", 1, LARGE)
    assert refusal == NotLent(loan=LARGE, reason=NO_SUCH_CLASS, seconds=MINUTE)
    assert bank.lends() == {}


def test_whom_the_policy_lends_nothing_is_refused_and_told_why(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(why="rule eve denies it")
    refusal = bank.asks("b", 1)
    assert refusal is not None
    assert (refusal.reason, refusal.detail) == (DENIED, "rule eve denies it")
    assert refusal.seconds == 10 * MINUTE


def test_a_rule_that_comes_later_ends_what_is_not_used(bank: Bank) -> None:
    bank.has(5)
    bank.asks("b", 5)
    bank.lends()
    bank.uses("b", 2)
    bank.has(3)
    bank.limits["b"] = LoanLimit(why="no more")
    assert bank.lends() == {"b": 2.0}
    bank.asks("b", 5)
    bank.uses("b", 0)
    assert bank.lends() == {"b": 0.0}
    assert bank.lender.loans == {}


def test_who_asks_too_often_is_refused_for_a_while_and_others_are_not(bank: Bank) -> None:
    refusals = [bank.asks("b", 1) for _ in range(int(BURST) + 1)]
    assert refusals[-2] is None
    assert refusals[-1] == NotLent(loan=SMALL, reason=TOO_OFTEN, seconds=MINUTE)
    assert bank.asks("c", 1) is None
    bank.now += 1.5 * MINUTE / RATE_PER_MINUTE
    assert bank.asks("b", 1) is None
    assert bank.asks("b", 1) is not None


def test_how_often_is_not_remembered_of_all_that_ever_asked(bank: Bank) -> None:
    """Who has a domain has any number below it."""
    for number in range(MOST_ASKING + 1):
        bank.asks(f"x{number}.b", 1, cls="none")
    assert len(bank.lender._paces) == 1


# -- leases ----------------------------------------------------------------------------------------


def test_a_loan_ends_with_its_lease_and_what_runs_keeps_what_it_has(bank: Bank) -> None:
    bank.has(5)
    bank.asks("b", 5)
    bank.asks("c", 0)
    bank.lends()
    bank.uses("b", 2)
    bank.has(3)
    assert bank.lends(seconds=LEASE - 0.1) == {}
    assert bank.lends(seconds=0.1) == {"b": 2.0, "c": 0.0}
    assert set(bank.lender.loans) == {("b", SMALL)}
    bank.uses("b", 0)
    (end,) = bank.grants()
    assert end == Grant("b", SMALL, {}, bank.now)
    assert bank.lender.loans == {}


def test_what_came_after_the_loan_was_over_counts_when_it_asks_again(bank: Bank) -> None:
    bank.lender.note_used(bank.now, ("b", SMALL), {"cpus": 2.0})
    bank.has(5)
    assert bank.lends() == {}
    bank.asks("b", 3)
    bank.asks("c", 9)
    assert bank.lends() == {"b": 3.0, "c": 4.0}


def test_a_renewal_is_told_with_the_new_end(bank: Bank) -> None:
    bank.has(5)
    bank.asks("b", 5)
    bank.lends()
    bank.now += LEASE / 2
    bank.asks("b", 5)
    (grant,) = bank.grants()
    assert grant == Grant("b", SMALL, {"cpus": 5.0}, bank.now + LEASE)


def test_a_renewal_by_little_is_not_told(bank: Bank) -> None:
    bank.has(5)
    bank.asks("b", 5)
    bank.lends()
    bank.now += LEASE / 20
    bank.asks("b", 5)
    assert bank.grants() == []


@pytest.mark.parametrize(
    ("asked", "limit", "seconds"),
    [(30.0, None, 30.0), (LEASE, 20.0, 20.0), (86_400.0, None, 60 * MINUTE)],
    ids=["as asked for", "no longer than the rule says", "an hour at most"],
)
def test_how_long_a_lease_is(bank: Bank, asked: float, limit: float | None, seconds: float) -> None:
    bank.limits["b"] = LoanLimit(lease_seconds=limit)
    bank.has(5)
    bank.asks("b", 5, seconds=asked)
    (grant,) = bank.grants()
    assert grant.until == bank.now + seconds


def test_the_lease_of_a_wish_begins_when_something_is_lent(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(lease_seconds=20.0)
    bank.asks("b", 5)
    bank.grants()
    bank.now += 50.0
    bank.has(5)
    (grant,) = bank.grants()
    assert (grant.amounts, grant.until) == ({"cpus": 5.0}, bank.now + 20.0)
    bank.now += 10.0
    bank.asks("b", 5)
    (grant,) = bank.grants()
    assert grant.until == bank.now + 20.0


def test_of_a_short_lease_little_more_is_told(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(lease_seconds=10.0)
    bank.has(5)
    bank.asks("b", 5)
    bank.grants()
    bank.now += 5.0
    bank.asks("b", 5)
    (grant,) = bank.grants()
    assert grant.until == bank.now + 10.0


def test_who_repays_has_only_what_it_uses(bank: Bank) -> None:
    bank.has(5)
    bank.has(5, LARGE)
    bank.asks("b", 3)
    bank.asks("b", 3, LARGE)
    bank.asks("c", 2)
    bank.grants()
    bank.uses("b", 1)
    bank.lender.repaid("b", SMALL)
    assert [each for each in bank.grants() if each.loan == SMALL] == [
        Grant("b", SMALL, {"cpus": 1.0}, bank.now + LEASE)
    ]
    assert bank.has_lent("b", LARGE) == {"cpus": 3.0}
    bank.lender.repaid("b")
    assert Grant("b", LARGE, {}, bank.now) in bank.grants()
    assert bank.has_lent("c") == {"cpus": 2.0}


def test_what_an_earlier_process_has_lent_goes_on_while_it_is_used(bank: Bank) -> None:
    bank.lender.adopt("b", SMALL, {"cpus": 2.0}, bank.now)
    bank.uses("b", 2)
    bank.has(8)
    assert bank.lends() == {}
    assert bank.has_lent("b") == {"cpus": 2.0}
    bank.asks("b", 5)
    assert bank.lends() == {"b": 5.0}
    bank.lender.repaid("b")
    bank.uses("b", 0)
    assert bank.lends() == {"b": 0.0}


# -- who gets what ---------------------------------------------------------------------------------


def test_what_is_free_is_divided_in_equal_parts(bank: Bank) -> None:
    bank.has(9)
    for pool in ("b", "c", "d"):
        bank.asks(pool, 9)
    assert bank.lends() == {"b": 3.0, "c": 3.0, "d": 3.0}


def test_who_wants_little_leaves_the_rest_to_others(bank: Bank) -> None:
    bank.has(9)
    bank.asks("b", 1)
    bank.asks("c", 9)
    assert bank.lends() == {"b": 1.0, "c": 8.0}


def test_who_has_the_least_gets_first_what_is_free(bank: Bank) -> None:
    bank.has(2)
    bank.asks("b", 9)
    bank.asks("c", 9)
    bank.uses("b", 4)
    bank.uses("c", 1)
    assert bank.lends() == {"b": 4.0, "c": 3.0}


def test_it_is_dealt_in_pieces_that_a_task_can_use(bank: Bank) -> None:
    bank.has(12, cpus=4)
    bank.asks("b", 12)
    bank.asks("c", 12)
    assert sorted(bank.lends().values()) == [4.0, 8.0]


def test_all_assets_of_a_wish_are_dealt(bank: Bank) -> None:
    bank.has(4, gpus=1)
    bank.asks("b", 4, gpus=2)
    (grant,) = bank.grants()
    assert grant.amounts == {"cpus": 4.0, "gpus": 1.0}


def test_what_one_leaves_unused_goes_to_others_that_wait(bank: Bank) -> None:
    bank.has(4)
    bank.asks("b", 4)
    bank.lends()
    bank.uses("b", 0)
    bank.asks("c", 4)
    assert bank.lends() == {"b": 2.0, "c": 2.0}
    bank.uses("c", 2)
    bank.has(2)
    assert bank.lends(seconds=UNUSED - 0.1) == {}
    assert bank.lends(seconds=0.1) == {"b": 0.0, "c": 4.0}


def test_what_nobody_else_wants_may_stay_unused(bank: Bank) -> None:
    bank.has(4)
    bank.asks("b", 4)
    bank.lends()
    bank.uses("b", 0)
    assert bank.lends(seconds=UNUSED * 5) == {}


def test_who_uses_what_it_has_again_waits_in_line_like_others(bank: Bank) -> None:
    bank.has(4)
    bank.asks("b", 4)
    bank.lends()
    bank.uses("b", 0)
    bank.lends(seconds=UNUSED * 2)
    bank.uses("b", 4)
    bank.has(0)
    bank.lends()
    assert bank.lender.loans["b", SMALL].unused_since is None


# -- limits ----------------------------------------------------------------------------------------


def test_no_borrower_has_more_than_its_limit_of_all_classes_together(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(max_cpus=3)
    bank.has(5)
    bank.has(5, LARGE)
    bank.asks("b", 5)
    bank.asks("b", 5, LARGE)
    assert sum(each.amounts.get("cpus", 0.0) for each in bank.grants()) == 3


def test_what_it_uses_counts_against_its_limit(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(max_cpus=3)
    bank.has(5)
    bank.has(0, LARGE)
    bank.asks("b", 5)
    bank.asks("b", 5, LARGE)
    bank.uses("b", 2, LARGE)
    bank.grants()
    assert bank.has_lent("b") == {"cpus": 1.0}
    assert bank.has_lent("b", LARGE) == {"cpus": 2.0}


def test_a_limit_of_one_is_none_of_others(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(max_cpus=1)
    bank.has(8)
    bank.asks("b", 8)
    bank.asks("c", 8)
    assert bank.lends() == {"b": 1.0, "c": 7.0}


def test_borrowers_that_share_a_rule_share_what_it_grants(bank: Bank) -> None:
    for pool in ("b", "c"):
        bank.limits[pool] = LoanLimit(max_cpus=3, rules={"friends": 3})
    bank.has(8)
    bank.has(8, LARGE)
    bank.asks("b", 8)
    bank.asks("c", 8)
    bank.asks("c", 8, LARGE)
    assert sum(each.amounts.get("cpus", 0.0) for each in bank.grants()) == 3


def test_a_rule_of_its_own_is_left_to_who_shares_another(bank: Bank) -> None:
    bank.limits["b"] = LoanLimit(max_cpus=6, rules={"friends": 2, "near": 4})
    bank.limits["c"] = LoanLimit(max_cpus=12, rules={"friends": 2, "far": 10})
    bank.has(40)
    bank.asks("b", 20)
    bank.asks("c", 20)
    given = bank.lends()
    assert given["b"] >= 4
    assert 10 <= given["c"] <= 12


# -- owners first ----------------------------------------------------------------------------------


def test_a_wish_is_served_though_nothing_else_has_changed(bank: Bank) -> None:
    bank.has(2)
    bank.asks("b", 1)
    assert bank.lends() == {"b": 1.0}
    bank.asks("c", 1)
    assert bank.lends() == {"c": 1.0}
    bank.uses("c", 1)
    bank.has(1)
    assert bank.lends() == {}
    bank.has(5)
    bank.asks("c", 4)
    assert bank.lends() == {"c": 4.0}


def test_what_is_told_of_uses_when_it_changes_is_all_that_a_share_needs(bank: Bank) -> None:
    bank.has(2)
    bank.asks("b", 2)
    assert bank.lends() == {"b": 2.0}
    bank.has(0)
    bank.lender.note_used(bank.now, ("b", SMALL), {"cpus": 1.0})
    [told] = bank.lender.share(bank.now, bank.supplies)
    assert told.amounts == {"cpus": 1.0}
    assert bank.lender.share(bank.now, bank.supplies) == []


def test_while_own_tasks_wait_a_loan_is_what_it_uses(bank: Bank) -> None:
    bank.has(4)
    bank.asks("b", 4)
    bank.lends()
    bank.uses("b", 1)
    bank.has(3, wanted=1)
    assert bank.lends() == {"b": 1.0}
    bank.has(3)
    assert bank.lends() == {"b": 4.0}


def test_own_tasks_of_one_class_take_nothing_of_another(bank: Bank) -> None:
    bank.has(4, wanted=1)
    bank.has(4, LARGE)
    bank.asks("b", 4)
    bank.asks("b", 4, LARGE)
    grants = {each.loan: each.amounts for each in bank.grants()}
    assert grants == {SMALL: {}, LARGE: {"cpus": 4.0}}


def test_guests_may_go_on_for_a_while_before_they_have_to_end(bank: Bank) -> None:
    bank.has(0, wanted=2)
    assert bank.lender.overdue(bank.now, bank.supplies) == {}
    assert bank.lender.overdue_at() == bank.now + SETTINGS.reclaim_seconds
    bank.now += SETTINGS.reclaim_seconds - 0.1
    assert bank.lender.overdue(bank.now, bank.supplies) == {}
    bank.now += 0.1
    bank.has(0, wanted=3)
    assert bank.lender.overdue(bank.now, bank.supplies) == {SMALL: 3}


def test_the_while_begins_anew_when_none_waited_in_between(bank: Bank) -> None:
    for wanted in (1, 0, 1):
        bank.has(0, wanted=wanted)
        bank.lender.overdue(bank.now, bank.supplies)
        bank.now += SETTINGS.reclaim_seconds / 2
    assert bank.lender.overdue(bank.now, bank.supplies) == {}
    bank.has(0)
    bank.lender.overdue(bank.now, bank.supplies)
    assert bank.lender.overdue_at() is None


def test_who_knows_how_many_have_waited_too_long_says_so(bank: Bank) -> None:
    bank.has(0, wanted=5, overdue=2)
    assert bank.lender.overdue(bank.now, bank.supplies) == {SMALL: 2}
    bank.has(0, wanted=5, overdue=0)
    bank.now += SETTINGS.reclaim_seconds * 2
    assert bank.lender.overdue(bank.now, bank.supplies) == {}


def test_a_class_that_has_gone_is_not_waited_for(bank: Bank) -> None:
    bank.has(0, wanted=1)
    bank.lender.overdue(bank.now, bank.supplies)
    del bank.supplies[SMALL]
    assert bank.lender.overdue(bank.now, bank.supplies) == {}
    assert bank.lender.overdue_at() is None


def test_what_runs_on_a_class_that_has_gone_is_all_that_is_lent_of_it(bank: Bank) -> None:
    bank.has(4)
    bank.asks("b", 4)
    bank.lends()
    bank.uses("b", 1)
    del bank.supplies[SMALL]
    assert bank.lends() == {"b": 1.0}
