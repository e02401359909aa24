"""Who has which place in an overlay follows from ids and distances alone."""

from __future__ import annotations

from hashlib import sha256
from random import Random

from kestrelctl.flock.overlay.candidates import MOST_OF_TELLER, MOST_TELLERS, Candidates
from kestrelctl.flock.overlay.leaf_set import SIDE, LeafSet
from kestrelctl.flock.overlay.peers import MOST_ACQUAINTANCES, Peer, Peers
from kestrelctl.flock.overlay.pool_ids import (
    ID_BITS,
    between,
    clockwise,
    digit,
    pool_id,
    shared_digits,
)
from kestrelctl.flock.overlay.routing_table import RoutingTable
from kestrelctl.flock.overlay.tables import Tables
from kestrelctl.flock.overlay.walk import MOST_STEPS, Walk

NAMES = [f"p{number}.example.org" for number in range(60)]


def peer(domain: str, seconds: float, samples: int = 2) -> Peer:
    made = Peer(domain)
    for _ in range(samples):
        made.measured(seconds)
    return made


def test_an_id_follows_from_the_domain() -> None:
    whole = sha256(b"a.example.org").digest()
    assert pool_id("a.example.org") == int.from_bytes(whole[:16], "big")
    assert pool_id("a.example.org").bit_length() <= ID_BITS


def test_digits_are_read_from_the_front() -> None:
    number = 0x3A5 << (ID_BITS - 12)
    assert [digit(number, place) for place in range(4)] == [3, 0xA, 5, 0]
    assert shared_digits(number, 0x3AF << (ID_BITS - 12)) == 2
    assert shared_digits(number, number) == 32


def test_the_ring_is_closed() -> None:
    last = (1 << ID_BITS) - 1
    assert clockwise(last, 1) == 2
    assert clockwise(1, last) == last - 1
    assert between(last, 1) == between(1, last) == 2


def test_leaves_are_the_nearest_on_each_side_in_whatever_order_they_come() -> None:
    own, *others = NAMES
    me = pool_id(own)
    leaves = LeafSet(me)
    for other in Random(1).sample(others, len(others)):
        if leaves.wants(other):
            leaves.add(other)
    by_way = sorted(others, key=lambda other: clockwise(me, pool_id(other)))
    assert leaves.larger() == by_way[:SIDE]
    assert leaves.smaller() == by_way[: -SIDE - 1 : -1]
    assert leaves.nearest() == [by_way[0], by_way[-1]]
    assert not any(leaves.wants(other) for other in others)


def test_in_a_small_flock_a_pool_is_on_both_sides_and_comes_back_to_each() -> None:
    own, *others = NAMES[:12]
    tables = Tables(own)
    for other in others:
        tables.admit(peer(other, 0.01))
    lost = tables.leaves.larger()[0]
    tables.remove(lost)
    rest = set(others) - {lost}
    assert set(tables.leaves.members()) == rest
    assert len(tables.leaves.larger()) == len(tables.leaves.smaller()) == SIDE


def test_whoever_is_lost_leaves_both_tables_and_others_of_its_side_and_row_are_asked() -> None:
    own, *others = NAMES
    tables = Tables(own)
    for other in others:
        tables.admit(peer(other, 0.01))
    lost = next(leaf for leaf in tables.leaves.larger() if leaf in tables.routing)
    farthest = tables.leaves.larger()[-1]
    row, _ = tables.routing.slot_of(pool_id(lost))
    asked, new = tables.remove(lost)
    assert not tables.is_placed(lost)
    assert (farthest, 32) in asked
    assert any(wanted == row for _, wanted in asked)
    assert len(tables.leaves.larger()) == SIDE or not new


def test_a_slot_is_for_the_nearer_of_two_once_both_were_measured() -> None:
    me = pool_id("me.example.org")
    table = RoutingTable(me)
    first = NAMES[0]
    slot = table.slot_of(pool_id(first))
    second = next(name for name in NAMES[1:] if table.slot_of(pool_id(name)) == slot)
    tables = Tables("me.example.org")
    tables.admit(peer(first, 0.050))
    tables.admit(peer(second, 0.001, samples=1))
    assert tables.routing.at(slot) == first
    tables.admit(peer(second, 0.049))
    assert tables.routing.at(slot) == first
    tables.admit(peer(second, 0.010))
    assert tables.routing.at(slot) == second


def test_the_first_round_trip_of_a_new_connection_does_not_count_against_a_pool() -> None:
    pool = Peer("a.example.org")
    pool.measured(0.050)
    pool.measured(0.002)
    assert pool.round_trip_seconds == 0.002
    pool.measured(0.010)
    assert 0.002 < pool.round_trip_seconds < 0.010


def test_acquaintances_are_bounded() -> None:
    peers = Peers()
    for number in range(2 * MOST_ACQUAINTANCES):
        peers.meet(f"q{number}.example.org")
    assert len(peers.domains()) == MOST_ACQUAINTANCES


def test_who_names_many_pools_delays_what_another_names_by_one() -> None:
    candidates = Candidates()
    named = [candidates.offer(f"made-up{n}.example", "liar", 0.0) for n in range(1000)]
    assert named.count(True) == MOST_OF_TELLER
    assert candidates.offer("true.example.org", "honest", 0.0)
    assert [candidates.take(), candidates.take()] == ["made-up0.example", "true.example.org"]


def test_so_many_tellers_are_heard_at_a_time() -> None:
    candidates = Candidates()
    named = [candidates.offer(f"q{n}.example", f"teller{n}", 0.0) for n in range(1000)]
    assert named.count(True) == MOST_TELLERS


def test_hearsay_of_a_pool_that_did_not_answer_rests_but_its_own_word_does_not() -> None:
    candidates = Candidates()
    candidates.rest("a.example.org", 600.0)
    candidates.offer("a.example.org", "b.example.org", 599.0)
    assert candidates.take() is None
    candidates.offer("a.example.org", "a.example.org", 599.0)
    assert candidates.take() == "a.example.org"
    candidates.offer("a.example.org", "b.example.org", 600.0)
    assert candidates.take() == "a.example.org"


def test_a_walk_asks_again_and_then_goes_round_whoever_is_silent() -> None:
    walk = Walk(pool_id("me.example.org"), "a")
    assert walk.go_on("b")
    assert walk.go_back()
    assert walk.path == ["a", "b"]
    assert walk.go_back()
    assert (walk.path, walk.without) == (["a"], ["b"])
    assert not walk.go_on("b")
    assert walk.go_on("c")


def test_a_walk_ends_however_many_pools_are_named() -> None:
    walk = Walk(pool_id("me.example.org"), "a")
    steps = 1
    while walk.go_on(f"made-up{steps}.example"):
        steps += 1
    assert steps == MOST_STEPS
