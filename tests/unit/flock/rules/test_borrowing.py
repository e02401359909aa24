"""What a pool asks of others for tasks that wait."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from flockruleskit import LARGE, MINUTE, SMALL, machines, says

from kestrelctl.flock.rules.borrowing import MORE_SHARE, Borrower, LoanKey, Need
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.flock.rules.willing import HeardPool
from kestrelctl.protocol.pools import DENIED, LentClass, NotLent

SETTINGS = FlockSettings(spread=2)
LEASE = SETTINGS.lease_seconds


def waiting(tasks: int, only_at: str = "", **request: float) -> Need:
    return Need(
        tasks,
        request or {"cpus": 1.0},
        lambda pool, cls: not only_at or pool == only_at or cls.id == only_at,
    )


class Home:
    """A pool with tasks that wait, and what others have told it, the nearest first."""

    def __init__(self, **free: float) -> None:
        self.borrower = Borrower(SETTINGS)
        self.now = 1000.0
        self.heard: list[HeardPool] = []
        for pool, amount in free.items():
            self.hears(pool, machines(amount, count=100))

    def hears(self, pool: str, *classes: LentClass) -> None:
        known = [each for each in self.heard if each.said.pool != f"{pool}.test"]
        place = next(
            (n for n, each in enumerate(self.heard) if each.said.pool == f"{pool}.test"), len(known)
        )
        said = HeardPool(says(f"{pool}.test", *classes), self.now, direct=True)
        self.heard = [*known[:place], said, *known[place:]]

    def asks(
        self, *needs: Need, used: Mapping[LoanKey, Mapping[str, float]] | None = None
    ) -> dict[str, dict[str, float]]:
        """Whom it asks now, for how much at most."""
        found = self.borrower.decide(self.now, needs, self.heard, used or {})
        assert all(each.seconds == LEASE for _, each in found)
        return {pool.removesuffix(".test"): dict(each.at_most) for pool, each in found}

    def later(
        self,
        seconds: float,
        *needs: Need,
        used: Mapping[LoanKey, Mapping[str, float]] | None = None,
    ) -> dict[str, dict[str, float]]:
        self.now += seconds
        return self.asks(*needs, used=used)

    def allowance(self, pool: str) -> Mapping[str, float] | None:
        return self.borrower.allowance(f"{pool}.test", SMALL, self.now)

    def refused(self, pool: str, seconds: float = 0.0) -> bool:
        said = NotLent(loan=SMALL, reason=DENIED, seconds=seconds)
        return self.borrower.refused(f"{pool}.test", said, self.now)


def test_who_needs_nothing_asks_nobody() -> None:
    assert Home(near=5).asks() == {}


def test_the_nearest_is_asked_for_what_it_has_and_the_next_for_the_rest() -> None:
    home = Home(near=5, middle=5, far=5)
    assert home.asks(waiting(7)) == {"near": {"cpus": 5.0}, "middle": {"cpus": 2.0}}


def test_whole_tasks_are_counted_of_each_asset() -> None:
    home = Home()
    roomy = machines(0, count=10, cpus=4)
    free = {"cpus": 7.0, "gpus": 9.0}
    home.hears("near", LentClass(id=SMALL, ad=roomy.ad, machines=10, free=free))
    assert home.asks(waiting(9, cpus=2.0, gpus=1.0)) == {"near": {"cpus": 6.0, "gpus": 3.0}}


def test_an_asset_that_nobody_there_has_is_not_asked_for() -> None:
    assert Home(near=5).asks(waiting(3, cpus=1.0, gpus=1.0)) == {}


def test_what_one_kind_of_task_takes_the_next_cannot() -> None:
    home = Home(near=5)
    assert home.asks(waiting(2, cpus=2.0), waiting(9)) == {"near": {"cpus": 5.0}}


def test_only_where_tasks_fit_is_anybody_asked() -> None:
    home = Home(near=5, far=5)
    assert home.asks(waiting(3, only_at="far.test")) == {"far": {"cpus": 3.0}}
    home = Home(near=5)
    home.hears("near", machines(5), machines(5, cls=LARGE))
    asked = home.borrower.decide(home.now, [waiting(3, only_at=LARGE)], home.heard, {})
    assert [each.loan for _, each in asked] == [LARGE]


def test_what_is_used_there_already_is_part_of_the_wish() -> None:
    home = Home(near=5)
    used = {("near.test", SMALL): {"cpus": 3.0}}
    assert home.asks(waiting(2), used=used) == {"near": {"cpus": 5.0}}


# -- what nobody has free --------------------------------------------------------------------------


def test_what_is_left_is_asked_of_a_few_that_have_nothing_free() -> None:
    home = Home(near=0, middle=2, far=0, farther=0)
    every = {"middle": {"cpus": 2.0}, "near": {"cpus": 3.0}, "far": {"cpus": 3.0}}
    assert home.asks(waiting(5)) == every


def test_of_those_no_more_is_asked_than_they_have_at_all() -> None:
    home = Home()
    home.hears("near", machines(0, count=3, cpus=2))
    assert home.asks(waiting(50)) == {"near": {"cpus": 6.0}}


def test_if_there_is_enough_none_of_those_is_asked() -> None:
    assert Home(near=0, far=5).asks(waiting(5)) == {"far": {"cpus": 5.0}}


# -- wishes stand ----------------------------------------------------------------------------------


def test_a_wish_stands_and_is_renewed_after_half_of_its_time() -> None:
    home = Home(near=5)
    assert home.asks(waiting(3))
    assert home.later(LEASE / 2, waiting(3)) == {}
    assert home.later(0.1, waiting(3)) == {"near": {"cpus": 3.0}}
    assert home.allowance("near") == {"cpus": 3.0}


def test_a_wish_is_renewed_after_half_of_what_its_lender_lends_it_for() -> None:
    home = Home(b=50.0)
    home.asks(waiting(5))
    home.borrower.lent_until("b.test", SMALL, home.now + 20.0)
    assert home.later(10.0, waiting(5)) == {}
    assert home.later(0.1, waiting(5)) == {"b": {"cpus": 5.0}}
    home.borrower.lent_until("b.test", SMALL, home.now - 0.1)  # said before it was asked
    assert home.later(LEASE / 2 - 0.1, waiting(5)) == {}
    assert home.later(0.2, waiting(5)) == {"b": {"cpus": 5.0}}


def test_a_lender_that_lends_for_longer_is_asked_no_later() -> None:
    home = Home(b=50.0)
    home.asks(waiting(5))
    home.borrower.lent_until("b.test", SMALL, home.now + 9 * LEASE)
    home.borrower.lent_until("b.test", LARGE, home.now + 1.0)  # it was not asked for that
    assert home.later(LEASE / 2 - 0.1, waiting(5)) == {}
    assert home.later(0.2, waiting(5)) == {"b": {"cpus": 5.0}}


def test_a_little_more_waits_for_the_renewal_and_much_more_does_not() -> None:
    home = Home(near=50)
    home.asks(waiting(20))
    little = int(20 * (1 + MORE_SHARE))
    assert home.later(1.0, waiting(little)) == {}
    assert home.later(1.0, waiting(little + 1)) == {"near": {"cpus": little + 1}}


def test_nobody_is_asked_for_more_faster_than_the_pace() -> None:
    home = Home(near=50)
    home.asks(waiting(1))
    assert home.later(SETTINGS.wish_pace_seconds * 0.9, waiting(50)) == {}
    assert home.later(SETTINGS.wish_pace_seconds * 0.2, waiting(50)) == {"near": {"cpus": 50.0}}


def test_a_wish_that_nothing_renews_runs_out() -> None:
    home = Home(near=5)
    home.asks(waiting(3))
    home.later(LEASE - 0.1)
    assert home.allowance("near") == {"cpus": 3.0}
    home.later(0.1)
    assert home.allowance("near") is None
    home.borrower.expire(home.now)
    assert home.borrower.wishes == {}


def test_who_was_not_asked_has_no_allowance() -> None:
    home = Home(near=5)
    home.asks(waiting(3))
    assert home.allowance("stranger") is None
    assert home.borrower.allowance("near.test", LARGE, home.now) is None


# -- what lenders say ------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0.0, 10 * MINUTE])
def test_who_refuses_is_not_asked_before_it_said_and_not_within_a_minute(seconds: float) -> None:
    home = Home(near=5)
    home.asks(waiting(3))
    assert home.refused("near", seconds)
    pause = max(seconds, MINUTE)
    assert home.allowance("near") is None
    assert home.later(pause - 0.1, waiting(3)) == {}
    home.borrower.expire(home.now)
    assert home.later(0.0, waiting(3)) == {}, "the silence outlasts the wish"
    assert home.later(0.1, waiting(3)) == {"near": {"cpus": 3.0}}


def test_what_one_refuses_is_asked_of_the_next_at_once() -> None:
    home = Home(near=5, full=0, far=5)
    home.asks(waiting(3))
    home.refused("near")
    assert home.later(0.1, waiting(3)) == {"far": {"cpus": 3.0}}
    home = Home(full=0)
    home.asks(waiting(3))
    home.refused("full")
    home.hears("idle", machines(0))
    home.hears("idler", machines(0))
    assert set(home.later(0.1, waiting(3))) == {"idle", "idler"}, "it takes none of the few places"


def test_no_refusal_is_for_longer_than_an_hour() -> None:
    home = Home(near=5)
    home.asks(waiting(3))
    home.refused("near", 86_400.0)
    assert home.later(60 * MINUTE, waiting(3)) == {"near": {"cpus": 3.0}}


def test_a_refusal_of_what_was_not_asked_is_nothing() -> None:
    assert not Home(near=5).refused("near")


def test_what_was_asked_of_a_pool_that_leaves_is_forgotten() -> None:
    home = Home(near=5, far=5)
    home.asks(waiting(7))
    assert home.borrower.forget("near.test") == [SMALL]
    assert home.allowance("near") is None
    assert home.allowance("far") == {"cpus": 2.0}


# -- starved ---------------------------------------------------------------------------------------


def test_a_pool_that_nobody_has_anything_for_is_starved_from_then_on() -> None:
    home = Home()
    home.asks(waiting(3))
    began = home.now
    home.later(5.0, waiting(3))
    assert home.borrower.starved_since == began


def test_a_wish_to_one_that_has_nothing_feeds_nobody() -> None:
    home = Home(near=0)
    assert home.asks(waiting(3)) == {"near": {"cpus": 3.0}}
    began = home.now
    home.later(5.0, waiting(3))
    assert home.borrower.starved_since == began


def test_it_is_not_when_somebody_has_something_or_lends_it_or_nothing_waits() -> None:
    for fed in ("has", "lends", "rests"):
        home = Home(near=0)
        home.asks(waiting(3))
        home.now += 1
        if fed == "has":
            home.hears("near", machines(1))
            home.asks(waiting(3))
        elif fed == "lends":
            home.asks(waiting(3), used={("near.test", SMALL): {"cpus": 1.0}})
        else:
            home.asks()
        assert home.borrower.starved_since is None, fed
