"""What every store keeps of members: events, who is there, groups of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kestrelctl.membership.event_records import EventsDropped
from kestrelctl.membership.membership_event import MembershipEvent
from kestrelctl.membership.worker_group_definition import WorkerGroup, WorkerGroupGone
from kestrelctl.store import sqlite
from kestrelctl.store.memory import MemoryStore
from kestrelctl.store.port import Store
from kestrelctl.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """An open, empty store of each kind, which does not wait for the disk."""
    monkeypatch.setattr(sqlite, "SYNCHRONOUS", "OFF")
    store: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data")
    store.open()
    yield store
    store.close()


def event(number: int, kind: str = "join", worker: str = "w1", **more: object) -> MembershipEvent:
    fields = {"at": float(number), "groups": (), "reason": "", **more}
    return MembershipEvent(number=number, kind=kind, worker=worker, **fields)  # type: ignore[arg-type]


async def test_events_come_back_as_they_were(store: Store) -> None:
    first = event(1, groups=("gpu", "größe"), reason="its session has ended")
    second = event(2, "failed")
    await store.commit([first, second])
    store.close()
    store.open()
    assert store.member_events(limit=10) == [first, second]
    assert store.last_member_event() == 2


async def test_pages_begin_after_a_number_and_at_a_moment(store: Store) -> None:
    await store.commit([event(n, "update") for n in range(1, 8)])
    assert [e.number for e in store.member_events(after=2, limit=3)] == [3, 4, 5]
    assert [e.number for e in store.member_events(since=5.5, limit=9)] == [6, 7]
    assert [e.number for e in store.member_events(after=6, since=5.5, limit=9)] == [7]
    assert store.member_events(since=99.0, limit=9) == []


async def test_it_knows_who_has_joined_and_is_not_gone(store: Store) -> None:
    joins = [event(n, worker=f"w{n}") for n in (1, 2, 3)]
    await store.commit([*joins, event(4, "failed", "w1"), event(5, "leave", "w3")])
    await store.commit([event(6, "update", "w1"), event(7, "drain", "w2")])
    assert store.members() == ["w2"]


async def test_old_events_go_and_the_newest_stays(store: Store) -> None:
    await store.commit([event(n) for n in range(1, 6)])
    await store.commit([EventsDropped(3.0, 0)])
    assert [e.number for e in store.member_events(limit=9)] == [3, 4, 5]
    await store.commit([EventsDropped(0.0, 3)])
    assert [e.number for e in store.member_events(limit=9)] == [4, 5]
    await store.commit([EventsDropped(99.0, 99)])
    assert [e.number for e in store.member_events(limit=9)] == [5]
    assert store.members() == ["w1"]


async def test_groups_are_kept_until_they_are_gone(store: Store) -> None:
    gpu = WorkerGroup(name="gpu", tags=("gpu",), names=("h*",), where="Cpus > 2")
    await store.commit([gpu, WorkerGroup(name="all", names=("*",))])
    await store.commit([WorkerGroup(name="all", names=("w*",)), WorkerGroupGone("none")])
    assert store.worker_groups() == [WorkerGroup(name="all", names=("w*",)), gpu]
    await store.commit([WorkerGroupGone("all")])
    assert store.worker_groups() == [gpu]
