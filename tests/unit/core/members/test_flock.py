"""What is durable of the flock: rules, and the pools by which it is found again."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.members.flock_memory import MAX_REMEMBERED, MAX_RULES, MAX_THROUGH
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockPeer, FlockPeerGone, FlockRecord, FlockRuleGone
from kestrelctl.manager.commits import latest

EVE = FlockRule(name="eve", direction="lend", action="deny", users=("eve",))


def change(driver: PoolDriver, *records: FlockRecord) -> fx.Answer:
    driver.tell(ev.ChangeFlock(at=driver.now, cause="root", request="r", records=records))
    return driver.of(fx.Answer)[-1]


def through(*names: str) -> tuple[FlockPeer, ...]:
    return tuple(FlockPeer(pool=name, through=True) for name in names)


def test_rules_and_pools_outlast_a_restart_until_they_are_taken_back() -> None:
    driver = PoolDriver()
    assert change(driver, EVE, *through("b.test")).error is None
    driver.restart()
    assert driver.pool.flock_rules == [EVE]
    assert driver.pool.flock_peers == [*through("b.test")]
    assert change(driver, FlockRuleGone("eve"), FlockPeerGone("b.test")).error is None
    assert driver.pool.flock_rules == driver.pool.flock_peers == []
    driver.restart()
    assert driver.pool.flock_rules == driver.pool.flock_peers == []


def test_the_answer_comes_after_the_record() -> None:
    driver = PoolDriver()
    change(driver, EVE)
    kinds = [type(effect) for effect in driver.effects]
    assert kinds.index(fx.Persist) < kinds.index(fx.Answer)
    assert fx.Answer.after_commit


def test_what_nobody_has_asked_for_is_answered_to_nobody() -> None:
    driver = PoolDriver()
    driver.tell(ev.ChangeFlock(at=driver.now, records=(FlockPeer(pool="c.test"),)))
    assert driver.of(fx.Answer) == []
    assert driver.pool.flock_peers == [FlockPeer(pool="c.test")]


def test_to_remove_a_rule_that_is_not_there_is_an_error() -> None:
    answer = change(PoolDriver(), FlockRuleGone("adam"))
    assert (answer.error, answer.message) == ("not-found", "there is no rule 'adam'")
    assert answer.hint == "kestrelctl flock policy list"


def test_of_what_is_refused_nothing_is_done() -> None:
    driver = PoolDriver()
    assert change(driver, EVE, FlockRuleGone("adam")).error == "not-found"
    assert driver.pool.flock_rules == []


@pytest.mark.parametrize(
    ("most", "make"),
    [
        (MAX_RULES, lambda n: FlockRule(name=f"r{n}", direction="lend", action="deny")),
        (MAX_THROUGH, lambda n: FlockPeer(pool=f"p{n}.test", through=True)),
    ],
)
def test_there_is_a_bound_and_what_is_there_can_be_changed(most: int, make) -> None:  # type: ignore[no-untyped-def]
    driver = PoolDriver()
    assert change(driver, *(make(n) for n in range(most))).error is None
    refused = change(driver, make(most))
    assert (refused.error, f"at most {most}" in refused.message) == ("usage", True)
    assert change(driver, make(0)).error is None


def test_of_the_pools_that_are_remembered_those_heard_of_last_stay() -> None:
    driver = PoolDriver()
    change(driver, *through("b.test"))
    many = MAX_REMEMBERED - 1
    for n in range(many):
        change(driver, FlockPeer(pool=f"p{n:03}.test", heard_at=1_000.0 - n))
    assert len(driver.pool.flock_peers) == many + 1
    for n in (1, 2, 3):
        change(driver, FlockPeer(pool=f"q{n}.test", heard_at=2_000.0 + n))
    driver.restart()
    kept = {peer.pool for peer in driver.pool.flock_peers}
    assert len(kept) == MAX_REMEMBERED + 1
    assert {"b.test", "q1.test", "q2.test", "q3.test", "p060.test"} <= kept
    assert kept & {"p061.test", "p062.test"} == set()


def test_of_what_waits_for_a_full_disk_the_last_word_on_each_is_kept() -> None:
    later = FlockRule(name="eve", direction="borrow", action="deny")
    gone = FlockPeerGone("b.test")
    assert latest([EVE, *through("b.test", "c.test"), later, gone]) == [
        *through("c.test"),
        later,
        gone,
    ]
    assert latest([EVE, FlockRuleGone("eve")]) == [FlockRuleGone("eve")]
