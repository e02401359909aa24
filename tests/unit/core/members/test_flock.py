"""What is durable of the flock: the pools by which it is found again, and rules."""

from __future__ import annotations

from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.members.flock_memory import MAX_REMEMBERED, MAX_THROUGH
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.records import FlockPeer, FlockPeerGone, FlockRecord, TokenRecord
from kestrelctl.core.model.setting import SettingGone
from kestrelctl.manager.commits import latest

EVE = FlockRule(name="eve", direction="lend", action="deny", users=("eve",))


def change(driver: PoolDriver, *records: FlockRecord) -> fx.Answer:
    driver.tell(ev.ChangeFlock(at=driver.now, cause="root", request="r", records=records))
    return driver.of(fx.Answer)[-1]


def through(*names: str) -> tuple[FlockPeer, ...]:
    return tuple(FlockPeer(pool=name, through=True) for name in names)


def test_rules_and_pools_outlast_a_restart_until_they_are_taken_back() -> None:
    driver = PoolDriver()
    assert driver.put(EVE).error is change(driver, *through("b.test")).error is None
    driver.restart()
    assert driver.pool.settings(FlockRule) == [EVE]
    assert driver.pool.flock_peers == [*through("b.test")]
    assert driver.drop(FlockRule, "eve").error is None
    assert change(driver, FlockPeerGone("b.test")).error is None
    assert driver.pool.settings(FlockRule) == driver.pool.flock_peers == []
    driver.restart()
    assert driver.pool.settings(FlockRule) == driver.pool.flock_peers == []


def test_the_answer_comes_after_the_record() -> None:
    driver = PoolDriver()
    change(driver, *through("b.test"))
    kinds = [type(effect) for effect in driver.effects]
    assert kinds.index(fx.Persist) < kinds.index(fx.Answer)
    assert fx.Answer.after_commit


def test_what_nobody_has_asked_for_is_answered_to_nobody() -> None:
    driver = PoolDriver()
    driver.tell(ev.ChangeFlock(at=driver.now, records=(FlockPeer(pool="c.test"),)))
    assert driver.of(fx.Answer) == []
    assert driver.pool.flock_peers == [FlockPeer(pool="c.test")]


def test_of_what_is_refused_nothing_is_done() -> None:
    driver = PoolDriver()
    assert change(driver, *through(*(f"p{n}.test" for n in range(MAX_THROUGH)))).error is None
    refused = change(driver, FlockPeerGone("p0.test"), *through("b.test", "c.test"))
    assert (refused.error, f"at most {MAX_THROUGH}" in refused.message) == ("usage", True)
    assert len(driver.pool.flock_peers) == MAX_THROUGH
    assert change(driver, *through("p0.test")).error is None


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
    assert latest([EVE, SettingGone(FlockRule, "eve")]) == [SettingGone(FlockRule, "eve")]
    assert latest([EVE, TokenRecord("eve", 1)]) == [EVE, TokenRecord("eve", 1)]
