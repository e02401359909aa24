"""A neighbour that lies wastes a little time, and gets nobody into a table."""

from __future__ import annotations

from random import Random

import pytest

from kestrelctl.flock.overlay.overlay import LATE, OWN, TOO_MANY, UNANSWERED, Overlay
from kestrelctl.flock.overlay.peers import Peer
from kestrelctl.protocol.codec import BadMessage, Codec, encode
from kestrelctl.protocol.pools import (
    LEAVES,
    AskPools,
    FlockLeft,
    OverlayMessage,
    PoolPing,
    PoolPong,
    TellPools,
)

BOB = "b.example.org"
decoder: Codec[OverlayMessage] = Codec(OverlayMessage)


class Alone:
    """A pool whose only neighbour is the test."""

    def __init__(self) -> None:
        self.pool = Overlay("a.example.org", Random(1))
        self.now = 1000.0

    def said(self, kind: type, to: str = BOB) -> list[OverlayMessage]:
        """What of a kind the pool has said to another since the last look."""
        return [
            message
            for other, message in self.pool.take_sends()
            if (other, type(message)) == (to, kind)
        ]

    def befriend(self, domain: str = BOB) -> None:
        """A pool gets into the tables as any does."""
        self.pool.hear(domain, PoolPing(token=1), self.now)
        for _ in range(2):
            for message in self.said(PoolPing, domain):
                self.pool.hear(domain, PoolPong(token=message.token), self.now + 0.01)
        assert domain in self.pool.known()

    def asked(self) -> AskPools:
        """A question that the pool has put to its neighbour and that is not answered."""
        self.pool = Overlay("a.example.org", Random(1))
        self.pool.join(BOB, self.now)
        (question,) = self.said(AskPools)
        return question


def test_a_pong_counts_only_from_the_pool_that_was_asked() -> None:
    alone = Alone()
    alone.pool.hear(BOB, PoolPing(token=1), alone.now)
    (ping,) = alone.said(PoolPing)
    alone.pool.hear("c.example.org", PoolPong(token=ping.token), alone.now)
    alone.pool.hear(BOB, PoolPong(token=ping.token ^ 1), alone.now)
    assert alone.pool.known() == []
    assert alone.pool.dropped[LATE] == 2
    alone.pool.hear(BOB, PoolPong(token=ping.token), alone.now)
    alone.pool.hear(BOB, PoolPong(token=ping.token), alone.now)
    assert alone.pool.known() == [BOB]
    assert alone.pool.dropped[LATE] == 3


def test_who_says_ping_has_to_answer_one_before_it_is_in_a_table() -> None:
    alone = Alone()
    alone.pool.hear(BOB, PoolPing(token=1), alone.now)
    assert alone.pool.known() == []


def test_who_is_named_has_to_answer_himself() -> None:
    alone = Alone()
    question = alone.asked()
    told = TellPools(token=question.token, leaves=("c.example.org",), pools=("d.example.org",))
    alone.pool.hear(BOB, told, alone.now)
    assert alone.pool.known() == []
    sends = alone.pool.take_sends()
    assert {to for to, message in sends if type(message) is PoolPing} == {
        BOB, "c.example.org", "d.example.org",
    }  # fmt: skip


def test_pools_that_nobody_asked_for_are_not_heard() -> None:
    alone = Alone()
    question = alone.asked()
    told = TellPools(token=question.token ^ 1, leaves=("c.example.org",))
    alone.pool.hear(BOB, told, alone.now)
    alone.pool.hear("c.example.org", TellPools(token=question.token), alone.now)
    assert alone.pool.take_sends() == []
    assert alone.pool.dropped[LATE] == 2


def test_nobody_leaves_for_another() -> None:
    alone = Alone()
    alone.befriend()
    alone.pool.hear("c.example.org", FlockLeft(), alone.now)
    assert alone.pool.leaves() == [BOB]
    alone.pool.hear(BOB, FlockLeft(), alone.now)
    assert alone.pool.known() == []


def test_that_somebody_did_not_answer_another_is_only_a_reason_to_ask_it() -> None:
    alone = Alone()
    alone.befriend()
    alone.now += 40.0
    ask = AskPools(token=1, without=(BOB, "c.example.org"))
    for _ in range(50):
        alone.pool.hear("d.example.org", ask, alone.now)
    assert len(alone.said(PoolPing)) == 1
    assert alone.pool.leaves() == [BOB]


def test_what_comes_in_the_pools_own_name_is_dropped() -> None:
    alone = Alone()
    alone.befriend()
    alone.pool.hear("a.example.org", FlockLeft(), alone.now)
    assert alone.pool.leaves() == [BOB]
    assert alone.pool.dropped[OWN] == 1


def test_made_up_pools_cost_a_bounded_number_of_pings_and_are_counted() -> None:
    alone = Alone()
    pool, pings = alone.pool, 0
    for number in range(5_000):
        pool.hear(f"made-up{number}.example", PoolPing(token=number), alone.now)
    pings += sum(type(message) is PoolPing for _, message in pool.take_sends())
    assert pings == pool.settings.pings_per_minute
    assert pool.dropped[TOO_MANY] > 4_000
    while (at := pool.wake_at()) is not None and at < alone.now + 600.0:
        pool.tick(at)
    assert pool.known() == []
    assert pool.dropped[UNANSWERED] >= pool.settings.pings_per_minute


def test_an_answer_is_a_message_and_does_not_name_who_asks_or_whom_it_is_to_leave_out() -> None:
    alone = Alone()
    for number in range(600):
        alone.pool._tables.admit(Peer(f"p{number}.example.org"))
    asker, silent = alone.pool.leaves()[:2]
    alone.pool.hear(asker, AskPools(token=7, without=(silent,)), alone.now)
    (told,) = alone.said(TellPools, asker)
    assert isinstance(told, TellPools)
    assert decoder.decode(encode(told)) == told
    assert len(told.leaves) == LEAVES - 2
    assert not {asker, silent} & {told.next, *told.leaves, *told.pools}


@pytest.mark.parametrize(
    "payload",
    [
        '{"type": "pools", "token": 1, "pools": [' + ", ".join(['"a.example"'] * 65) + "]}",
        '{"type": "pools", "token": 1, "leaves": [' + ", ".join(['"a.example"'] * 17) + "]}",
        '{"type": "pools", "token": 1, "pools": ["' + "a" * 256 + '"]}',
        '{"type": "pools", "token": 1, "next": ""}',
        '{"type": "pools", "token": 1, "next": "jobs@a.example"}',
        '{"type": "pools", "token": 1, "next": "a.example/x"}',
        '{"type": "pools", "token": 1, "next": "a.example\\n"}',
        '{"type": "ask_pools", "token": 1, "row": 33}',
        '{"type": "ask_pools", "token": 1, "without": [' + ", ".join(['"a.example"'] * 9) + "]}",
        '{"type": "ping", "token": -1}',
        '{"type": "ping", "token": 281474976710656}',
    ],
)
def test_what_is_out_of_bounds_is_no_message(payload: str) -> None:
    with pytest.raises(BadMessage):
        decoder.decode(payload)
