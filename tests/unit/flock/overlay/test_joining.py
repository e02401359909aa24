"""Pools join, look after each other, and go: with messages that may be lost."""

from __future__ import annotations

from random import Random

from overlaykit import MINUTE, Network

from kestrelctl.flock.overlay.overlay import Overlay
from kestrelctl.flock.overlay.pool_ids import pool_id
from kestrelctl.protocol.pools import AskPools, FlockLeft, PoolPing


def everybody(network: Network) -> dict[str, set[str]]:
    return {domain: set(pool.known()) for domain, pool in network.pools.items()}


def test_who_knows_one_pool_soon_knows_the_flock_and_is_known() -> None:
    network = Network(1)
    names = network.grow(12)
    network.run(10.0)
    assert everybody(network) == {name: set(names) - {name} for name in names}
    late = network.start("late.example.org", names[3])
    network.run(10.0)
    assert set(late.leaves()) == set(names)
    assert all("late.example.org" in network.pools[name].leaves() for name in names)


def test_the_way_to_a_place_on_the_ring_is_short() -> None:
    network = Network(2)
    network.grow(60)
    network.settle(60)
    joined = network.start("late.example.org", "p0.example.org")
    network.run(10.0)
    assert 1 <= joined.hops <= 4
    assert not network.wrong_leaves()


def test_a_join_is_tried_until_the_pool_answers() -> None:
    network = Network(3)
    alone = network.start("a.example.org", "b.example.org")
    network.run(30 * MINUTE)
    assert alone.known() == []
    network.start("b.example.org")
    network.run(2 * MINUTE)
    assert alone.known() == ["b.example.org"]


def test_who_knows_nobody_finds_the_flock_soon_after_it_can_be_reached() -> None:
    """A pool that joins is to be used within a minute, even if its server opens late."""
    network = Network(3)
    network.bounces = True
    alone = network.start("a.example.org", "b.example.org")
    network.run(5.25 * MINUTE)
    assert alone.known() == []
    network.start("b.example.org")
    network.run(MINUTE / 4)
    assert alone.known() == ["b.example.org"]


def test_a_join_survives_a_network_that_loses_half_of_the_messages() -> None:
    network = Network(4)
    network.loss = 0.5
    network.grow(6)
    network.run(60 * MINUTE)
    network.loss = 0.0
    network.settle(120)
    assert network.is_settled()


def test_nobody_joins_by_himself() -> None:
    pool = Overlay("a.example.org", Random(1))
    pool.join("a.example.org", 0.0)
    assert pool.take_sends() == []
    assert pool.wake_at() is None


def test_near_pools_fill_the_table() -> None:
    network = Network(5)
    network.grow(60)
    network.run(30 * MINUTE)
    ours = chance = 0.0
    for domain, pool in network.pools.items():
        slots: dict[object, list[float]] = {}
        for other in network.pools.keys() - {domain}:
            slot = pool._tables.routing.slot_of(pool_id(other))
            slots.setdefault(slot, []).append(network.seconds(domain, other))
        chance += sum(sum(all_of) / len(all_of) for all_of in slots.values())
        ours += sum(network.seconds(domain, other) for other in pool.table())
    assert ours < 0.8 * chance


def test_the_round_trip_is_known_of_those_that_answered() -> None:
    network = Network(6)
    one = network.start("a.example.org")
    network.start("b.example.org", "a.example.org")
    network.run(MINUTE)
    there_and_back = 2 * network.seconds("a.example.org", "b.example.org")
    assert abs((one.proximity_seconds("b.example.org") or 0.0) - there_and_back) < 1e-9
    assert one.proximity_seconds("c.example.org") is None
    assert {line.place for line in one.neighbours()} >= {"+1", "-1"}


def test_who_leaves_is_forgotten_at_once_and_is_not_looked_for() -> None:
    network = Network(7)
    names = network.grow(20)
    network.run(30 * MINUTE)
    gone = network.pools[names[5]]
    network.leave(names[5])
    network.run(1.0)
    assert all(names[5] not in pool.known() for pool in network.pools.values())
    assert all(names[5] not in pool.missing() for pool in network.pools.values())
    assert gone.known() == []
    network.settle(30)
    assert network.is_settled()


def test_who_has_left_says_so_to_those_that_still_ask() -> None:
    pool = Overlay("a.example.org", Random(1))
    pool.leave(0.0)
    for message in (PoolPing(token=1), AskPools(token=2), FlockLeft()):
        pool.hear("b.example.org", message, 1.0)
    assert pool.take_sends() == [("b.example.org", FlockLeft())] * 2
    assert pool.wake_at() is None


def test_a_message_that_comes_back_is_enough_to_forget_a_pool() -> None:
    network = Network(8)
    names = network.grow(20)
    network.run(30 * MINUTE)
    network.bounces = True
    network.kill(names[4])
    pool = network.pools[names[0]]
    pool.unreachable(names[4], network.now)
    assert names[4] not in pool.known()
    assert names[4] in pool.missing()


def test_who_falls_silent_is_missed_by_the_pools_beside_it_within_two_minutes() -> None:
    network = Network(9)
    names = network.grow(20)
    network.run(30 * MINUTE)
    beside = network.pools[names[4]]._tables.leaves.nearest()
    network.kill(names[4])
    network.run(2 * MINUTE)
    assert all(names[4] not in network.pools[name].known() for name in beside)
    network.settle(120)
    assert network.is_settled()


def test_the_pools_beside_a_pool_are_heard_every_other_minute_at_least() -> None:
    network = Network(14)
    names = network.grow(3)
    heard = 0
    for _ in range(30):
        network.run(MINUTE)
        for name in names:
            lines = network.pools[name].neighbours()
            heard += len(lines)
            assert all(network.now - line.heard_at < 2 * MINUTE for line in lines)
    assert heard


def test_a_gap_of_some_seconds_is_no_reason_to_forget_a_pool() -> None:
    network = Network(10)
    names = network.grow(5)
    network.run(10 * MINUTE)
    for _ in range(20):
        network.loss = 1.0
        network.run(8.0)
        network.loss = 0.0
        network.run(32.0)
        assert everybody(network) == {name: set(names) - {name} for name in names}


def test_who_starts_again_joins_by_those_that_it_remembers() -> None:
    network = Network(11)
    names = network.grow(8)
    network.run(10 * MINUTE)
    remembered = network.pools[names[2]].known()
    network.kill(names[2])
    for other in names[3:7]:
        network.kill(other)
    network.run(10.0)
    again = network.start(names[2])
    for other in remembered:
        again.join(other, network.now)
    network.post(names[2])
    network.run(5 * MINUTE)
    assert set(again.leaves()) == set(network.pools) - {names[2]}


def test_lost_pools_are_tried_for_a_day() -> None:
    network = Network(12)
    names = network.grow(4)
    network.run(10 * MINUTE)
    network.kill(names[3])
    network.run(60 * MINUTE)
    assert len(network.pools) == 3
    assert all(pool.missing() == [names[3]] for pool in network.pools.values())
    network.run(25 * 60 * MINUTE)
    assert all(pool.missing() == [] for pool in network.pools.values())


def test_when_nothing_happens_little_is_said() -> None:
    network = Network(13)
    network.grow(60)
    network.run(60 * MINUTE)
    before = sum(pool.sent.total() for pool in network.pools.values())
    network.run(60 * MINUTE)
    said = sum(pool.sent.total() for pool in network.pools.values()) - before
    assert said < 8 * 60 * 60
