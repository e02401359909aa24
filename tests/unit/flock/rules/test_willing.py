"""What a pool has heard of others, and whom it believes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from flockruleskit import SMALL, machines, says

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.flock.rules import willing
from kestrelctl.flock.rules.willing import (
    ABSURD,
    BURST,
    FLOOD,
    HEARSAY,
    NEW,
    OLD,
    OWN,
    RATE,
    WillingList,
)
from kestrelctl.protocol.pools import LentClass

NOW = 1000.0


@pytest.fixture
def heard() -> WillingList:
    return WillingList("a.test", Random(1))


def free_at(heard: WillingList, pool: str, now: float = NOW) -> float | None:
    """What is believed to be free there."""
    found = heard.get(pool, now)
    return found.said.classes[0].free["cpus"] if found is not None else None


def test_what_a_pool_says_of_itself_holds_until_it_expires(heard: WillingList) -> None:
    assert heard.hear(says("b.test", machines(4), seconds=10.0), "b.test", NOW) == NEW
    assert free_at(heard, "b.test", NOW + 9.9) == 4
    assert free_at(heard, "b.test", NOW + 10) is None
    assert heard.holding(NOW + 10) == []
    assert heard.nearest_first(lambda pool: 0.1, NOW + 10) == []


def test_a_later_one_replaces_an_earlier_one(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4), seq=1), "b.test", NOW)
    assert heard.hear(says("b.test", machines(5), seq=2), "b.test", NOW + 1) == NEW
    assert free_at(heard, "b.test") == 5


@pytest.mark.parametrize("seq", [3, 4])
def test_what_was_said_is_not_heard_again(heard: WillingList, seq: int) -> None:
    heard.hear(says("b.test", machines(4), seq=4), "b.test", NOW)
    assert heard.hear(says("b.test", machines(9), seq=seq), "b.test", NOW + 1) == OLD
    assert free_at(heard, "b.test") == 4
    assert heard.dropped() == {OLD: 1}


@pytest.mark.parametrize("sender", ["b.test", "c.test"])
def test_nor_when_it_has_expired_or_the_pool_was_forgotten(heard: WillingList, sender: str) -> None:
    heard.hear(says("b.test", machines(4), seq=4, seconds=1.0), "b.test", NOW)
    heard.expire(NOW + 2)
    assert heard.hear(says("b.test", machines(4), seq=4), sender, NOW + 2) == OLD
    heard.forget("b.test")
    assert heard.hear(says("b.test", machines(4), seq=4), sender, NOW + 2) == OLD


def test_a_farewell_ends_what_was_said_and_no_forwarded_word_brings_it_back(
    heard: WillingList,
) -> None:
    heard.hear(says("b.test", machines(4), seq=1), "b.test", NOW)
    heard.hear(says("b.test", seq=3, willing=False, seconds=0.0), "b.test", NOW)
    assert heard.get("b.test", NOW) is None
    assert heard.hear(says("b.test", machines(4), seq=2), "c.test", NOW + 1) == OLD


def test_what_others_say_of_a_pool_is_taken_while_it_says_nothing_itself(
    heard: WillingList,
) -> None:
    assert heard.hear(says("b.test", machines(4), seq=7), "c.test", NOW) == NEW
    found = heard.get("b.test", NOW)
    assert found is not None
    assert not found.direct


def test_hearsay_never_replaces_what_a_pool_says_of_itself(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4), seq=1), "b.test", NOW)
    assert heard.hear(says("b.test", machines(9), seq=99), "c.test", NOW + 1) == HEARSAY
    assert free_at(heard, "b.test") == 4


def test_and_is_taken_again_when_that_has_expired(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4), seq=1, seconds=10.0), "b.test", NOW)
    assert heard.hear(says("b.test", machines(9), seq=2), "c.test", NOW + 11) == NEW


def test_a_number_that_somebody_made_up_does_not_silence_the_pool_itself(
    heard: WillingList,
) -> None:
    heard.hear(says("b.test", machines(9), seq=1 << 60), "c.test", NOW)
    assert heard.hear(says("b.test", machines(4), seq=1), "b.test", NOW + 1) == NEW
    assert free_at(heard, "b.test") == 4


def test_one_announcement_that_comes_over_two_pools_is_new_once(heard: WillingList) -> None:
    assert heard.hear(says("b.test", machines(4)), "c.test", NOW) == NEW
    assert heard.hear(says("b.test", machines(4)), "d.test", NOW) == OLD


def test_nobody_tells_a_pool_of_itself(heard: WillingList) -> None:
    assert heard.hear(says("a.test", machines(4)), "b.test", NOW) == OWN
    assert heard.get("a.test", NOW) is None


@pytest.mark.parametrize(
    "absurd",
    [
        machines(10.1, count=10),
        LentClass(id=SMALL, ad=WorkerAd(), machines=1, free={"cpus": 2.0}),
        LentClass(id=SMALL, ad=WorkerAd(assets={"cpus": 1.0}), machines=1, free={"gold": 1.0}),
    ],
    ids=["more than all machines have", "of no machine", "of what no machine has"],
)
def test_more_free_than_there_is_is_absurd(heard: WillingList, absurd: LentClass) -> None:
    assert heard.hear(says("b.test", absurd), "b.test", NOW) == ABSURD
    assert heard.get("b.test", NOW) is None


@pytest.mark.parametrize(
    "nonsense",
    [
        {"start": "((("},
        {"cpus": -1.0},
        {"distance_seconds": -1.0},
        {"host": "x" * 100_000},
    ],
    ids=lambda each: next(iter(each)),
)
def test_machines_that_could_be_no_worker_are_absurd(
    heard: WillingList, nonsense: dict[str, Any]
) -> None:
    assert heard.hear(says("b.test", machines(0, **nonsense)), "b.test", NOW) == ABSURD


def test_what_is_absurd_does_not_end_what_held_before(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4), seq=1), "b.test", NOW)
    heard.hear(says("b.test", machines(99), seq=2), "b.test", NOW)
    assert free_at(heard, "b.test") == 4


def test_one_that_floods_is_not_heard_until_it_pauses_and_others_are(heard: WillingList) -> None:
    found = Counter(
        heard.hear(says("b.test", seq=seq), "b.test", NOW) for seq in range(int(BURST) + 50)
    )
    assert found == {NEW: int(BURST), FLOOD: 50}
    assert heard.hear(says("c.test"), "c.test", NOW) == NEW
    assert heard.hear(says("b.test", seq=10_000), "b.test", NOW + 1.5 / RATE) == NEW
    assert heard.hear(says("b.test", seq=10_001), "b.test", NOW + 1.5 / RATE) == FLOOD


def test_only_so_many_pools_are_remembered_and_hearsay_goes_first(
    heard: WillingList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(willing, "MOST_POOLS", 3)
    heard.hear(says("b.test"), "b.test", NOW)
    heard.hear(says("made-up-1.test"), "liar.test", NOW)
    heard.hear(says("made-up-2.test"), "liar.test", NOW)
    assert heard.hear(says("c.test"), "c.test", NOW) == NEW
    assert heard.hear(says("d.test"), "d.test", NOW) == NEW
    assert heard.hear(says("e.test"), "e.test", NOW) == FLOOD
    assert {each.said.pool for each in heard.holding(NOW)} == {"b.test", "c.test", "d.test"}


def test_the_nearest_comes_first_and_one_of_unknown_distance_last(heard: WillingList) -> None:
    away = {"far.test": 0.2, "near.test": 0.002, "middle.test": 0.02}
    for pool in ("nowhere.test", *away):
        heard.hear(says(pool, machines(1)), pool, NOW)
    order = [each.said.pool for each in heard.nearest_first(away.get, NOW)]
    assert order == ["near.test", "middle.test", "far.test", "nowhere.test"]


def test_a_pool_that_lends_nothing_is_not_among_them(heard: WillingList) -> None:
    heard.hear(says("b.test", willing=False), "b.test", NOW)
    assert heard.nearest_first(lambda pool: 0.1, NOW) == []
    assert heard.get("b.test", NOW) is not None


def test_equals_take_turns_at_being_first(heard: WillingList) -> None:
    away = {"b.test": 0.0001, "c.test": 0.0004, "d.test": 0.3}
    for pool in away:
        heard.hear(says(pool, machines(1)), pool, NOW)
    orders = [[each.said.pool for each in heard.nearest_first(away.get, NOW)] for _ in range(50)]
    assert {order[0] for order in orders} == {"b.test", "c.test"}
    assert {order[2] for order in orders} == {"d.test"}


def test_who_asks_around_is_told_of_those_that_have_something_free(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4), seconds=60.0, seq=7), "b.test", NOW)
    heard.hear(says("full.test", machines(0)), "full.test", NOW)
    heard.hear(says("rumour.test", machines(4)), "b.test", NOW)
    heard.hear(says("asker.test", machines(4)), "asker.test", NOW)
    [told] = heard.to_pass_on("asker.test", NOW + 20)
    assert (told.pool, told.seq, told.ttl, told.expires_seconds) == ("b.test", 7, 1, 40.0)


def test_who_asks_around_again_at_once_is_told_nothing(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4)), "b.test", NOW)
    assert len(heard.to_pass_on("asker.test", NOW)) == 1
    assert heard.to_pass_on("asker.test", NOW + willing.ANSWER_PAUSE_SECONDS / 2) == []
    assert len(heard.to_pass_on("other.test", NOW)) == 1
    assert len(heard.to_pass_on("asker.test", NOW + willing.ANSWER_PAUSE_SECONDS)) == 1


def test_who_asks_around_is_told_of_a_few(heard: WillingList) -> None:
    for number in range(40):
        heard.hear(says(f"p{number}.test", machines(4)), f"p{number}.test", NOW)
    assert len(heard.to_pass_on("asker.test", NOW)) == willing.MOST_PASSED_ON


def test_another_ad_is_looked_at_also_after_a_pool_has_lent_nothing(heard: WillingList) -> None:
    heard.hear(says("b.test", machines(4), seq=1), "b.test", NOW)
    heard.hear(says("b.test", seq=2, willing=False), "b.test", NOW)
    assert heard.hear(says("b.test", machines(0, start="((("), seq=3), "b.test", NOW) == ABSURD
    assert heard.hear(says("b.test", machines(4), seq=4), "b.test", NOW) == NEW
