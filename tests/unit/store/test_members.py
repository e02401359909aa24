"""What stores keep of members and rules: events, who is there, lines."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from kestrelctl.core.membership.event import MembershipEvent
from kestrelctl.core.membership.event_records import EventsDropped
from kestrelctl.core.membership.handler_records import HandlerAwaits, HandlerSettled
from kestrelctl.core.membership.handler_words import ToldEvent
from kestrelctl.core.triggers.fired import FiredDropped, TriggerFired
from kestrelctl.core.triggers.recorded_moment import MomentRecorded, MomentsDropped
from kestrelctl.store.port import CoreStore, Store
from kestrelctl.store.sqlite.store import SqliteStore


def event(number: int, kind: str = "join", worker: str = "w1", **more: object) -> MembershipEvent:
    fields = {"at": float(number), "groups": (), "reason": "", **more}
    return MembershipEvent(number=number, kind=kind, worker=worker, **fields)  # type: ignore[arg-type]


async def test_events_come_back_as_they_were(whole: Store) -> None:
    first = event(1, groups=("gpu", "größe"), reason="its session has ended")
    second = event(2, "failed")
    await whole.commit([first, second])
    whole.close()
    whole.open()
    assert whole.member_events(limit=10) == [first, second]
    assert whole.last_member_event() == 2


async def test_pages_begin_after_a_number_and_at_a_moment(whole: Store) -> None:
    await whole.commit([event(n, "update") for n in range(1, 8)])
    assert [e.number for e in whole.member_events(after=2, limit=3)] == [3, 4, 5]
    assert [e.number for e in whole.member_events(since=5.5, limit=9)] == [6, 7]
    assert [e.number for e in whole.member_events(after=6, since=5.5, limit=9)] == [7]
    assert whole.member_events(since=99.0, limit=9) == []


async def test_it_knows_who_has_joined_and_is_not_gone(store: CoreStore) -> None:
    joins = [event(n, worker=f"w{n}") for n in (1, 2, 3)]
    await store.commit([*joins, event(4, "failed", "w1"), event(5, "leave", "w3")])
    await store.commit([event(6, "update", "w1"), event(7, "drain", "w2")])
    for _ in range(2):
        assert (store.members(), store.last_member_event()) == (["w2"], 7)
        store.close()
        store.open()


async def test_old_events_go_and_the_newest_stays(whole: Store) -> None:
    await whole.commit([event(n) for n in range(1, 6)])
    await whole.commit([EventsDropped(3.0, 0)])
    assert [e.number for e in whole.member_events(limit=9)] == [3, 4, 5]
    await whole.commit([EventsDropped(0.0, 3)])
    assert [e.number for e in whole.member_events(limit=9)] == [4, 5]
    await whole.commit([EventsDropped(99.0, 99)])
    assert [e.number for e in whole.member_events(limit=9)] == [5]
    assert whole.members() == ["w1"]


def waits(number: int, handler: str = "admin") -> HandlerAwaits:
    told = ToldEvent(
        pool="pool", handler=handler, number=7, at=5.0, event="failed", worker="größe",
        groups=("gpu",), tags=("a", "b"), assets={"cpus": 0.5},
    )  # fmt: skip
    return HandlerAwaits(handler, number, told)


async def test_what_a_handler_is_to_be_told_waits_until_it_was(whole: Store) -> None:
    await whole.commit([waits(n) for n in range(1, 6)] + [waits(1, "chat")])
    await whole.commit([HandlerSettled("admin", 2), HandlerSettled("none", 9)])
    whole.close()
    whole.open()
    assert whole.awaited() == {"admin": (3, 5), "chat": (1, 1)}
    assert whole.awaits("admin", limit=2) == [waits(3), waits(4)]
    assert whole.awaits("admin", after=4, limit=9) == [waits(5)]
    await whole.commit([HandlerSettled("admin", 5), HandlerSettled("chat", 1)])
    assert whole.awaited() == {}


async def test_what_cannot_be_read_hides_nothing_behind_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "data")
    store.open()
    await store.commit([waits(1), waits(2)])
    store.close()
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE handler_lines SET told = x'ff00' WHERE number = 1")
    store.open()
    assert store.awaits("admin", limit=1) == [waits(2)]
    store.close()


def fired(number: int, trigger: str = "owner") -> TriggerFired:
    return TriggerFired(
        number=number, at=float(number), trigger=trigger, actions=("drain(w1)",), problems=("no",)
    )


async def test_it_knows_when_triggers_fired_and_when_each_last_did(whole: Store) -> None:
    await whole.commit([fired(1), fired(2, "night"), fired(3), fired(4)])
    whole.close()
    whole.open()
    assert whole.fired(limit=2) == [fired(3), fired(4)]
    assert whole.fired(trigger="night", limit=9) == [fired(2, "night")]
    assert whole.fired(before=3, limit=9) == [fired(1), fired(2, "night")]
    assert whole.first_fired() == fired(1)
    assert whole.trigger_courses() == {"night": (2.0, 1), "owner": (4.0, 3)}


async def test_moments_of_the_pool_are_kept_until_they_are_dropped(whole: Store) -> None:
    moments = [MomentRecorded(n, 10.0 * n, bytes([n])) for n in (1, 2, 3)]
    await whole.commit(list(moments))
    whole.close()
    whole.open()
    assert whole.moments_kept() == [(1, 10.0), (2, 20.0), (3, 30.0)]
    assert whole.moments(after=1, limit=1) == [moments[1]]
    await whole.commit([MomentsDropped(2)])
    assert whole.moments(after=0, limit=9) == [moments[2]]


async def test_old_firings_go_and_the_newest_and_the_courses_stay(whole: Store) -> None:
    assert whole.first_fired() is None
    await whole.commit([fired(1, "night"), *(fired(n) for n in range(2, 6))])
    await whole.commit([FiredDropped(3.0, 0)])
    assert [each.number for each in whole.fired(limit=9)] == [3, 4, 5]
    await whole.commit([FiredDropped(0.0, 3)])
    assert [each.number for each in whole.fired(limit=9)] == [4, 5]
    await whole.commit([FiredDropped(99.0, 99)])
    assert [each.number for each in whole.fired(limit=9)] == [5]
    assert whole.trigger_courses() == {"night": (1.0, 1), "owner": (5.0, 4)}
