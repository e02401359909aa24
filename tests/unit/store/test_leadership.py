"""Managers that share a store: one leads, and the next one does when its lease is over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postgresqlkit import PostgresqlServer, database_of, running_server
from store_samples import job

from kestrelctl import clock
from kestrelctl.core.model.records import Snapshot
from kestrelctl.errors import AnotherLeads, KestrelError, StoreTaken, StoreUnusable
from kestrelctl.store import kept_text, reading
from kestrelctl.store.postgresql import leadership
from kestrelctl.store.postgresql.store import PostgresqlStore

POOL = "pool.internal"
Manager = Callable[..., PostgresqlStore]


@pytest.fixture
def manager(tmp_path: Path, conninfo: str) -> Iterator[Manager]:
    """Makes managers of a pool, each with a directory of its own; closes them all."""
    found: list[PostgresqlStore] = []

    def made(where: str = conninfo, pool: str = POOL) -> PostgresqlStore:
        store = PostgresqlStore(tmp_path / f"m{len(found)}", where, pool)
        found.append(store)
        return store

    yield made
    for store in found:
        store.close()


@pytest.fixture
def opened(manager: Manager) -> Manager:
    """Makes managers that lead, as soon as they are made."""

    def made(*how: str) -> PostgresqlStore:
        store = manager(*how)
        store.open()
        return store

    return made


class Moment:
    """A clock that goes on while the machine sleeps."""

    now = 1000.0


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> Moment:
    found = Moment()
    monkeypatch.setattr(clock, "awake_or_asleep", lambda: found.now)
    return found


def well() -> str:
    return ""


async def stands_by(
    store: PostgresqlStore, problem: Callable[[], str] = well
) -> asyncio.Task[None]:
    """Has a manager stand by; it has looked at least once."""
    looked = asyncio.Event()

    def told() -> str:
        if store.leadership._said_at:
            looked.set()
        return problem()

    task = asyncio.create_task(store.leadership.win(told))
    looking = asyncio.create_task(looked.wait())
    await asyncio.wait({task, looking}, return_when=asyncio.FIRST_COMPLETED)
    looking.cancel()
    return task


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def sees(store: PostgresqlStore) -> list[tuple[bool, str]]:
    """Whether each manager leads, and its problem, as the one that leads sees them now."""
    store.leadership._renew(store.leadership._linked())
    return [(each.leads, each.problem) for each in store.leadership.managers()]


async def test_one_that_stands_by_leads_when_the_other_one_stops(
    opened: Manager, manager: Manager
) -> None:
    first = opened()
    await first.commit([job(1)])
    second = manager()
    task = await stands_by(second)
    with pytest.raises(AnotherLeads, match="leads this pool"):
        second.open()
    assert not task.done()
    assert sees(first) == [(True, ""), (False, "")]
    first.close()
    await task
    second.open()
    assert [each.job_id for each in second.jobs()] == [1]
    assert second.leadership.is_held


async def test_nobody_waits_for_the_lease_of_a_process_that_has_ended(
    opened: Manager, manager: Manager
) -> None:
    first = opened()
    task = await stands_by(manager())
    first.leadership._stop_renewing()
    first.leadership._linked().close()
    await task
    manager().open()


async def test_a_manager_that_hangs_is_replaced_after_its_lease(
    opened: Manager, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leadership, "LEASE_SECONDS", 0.5)
    first = opened()
    first.leadership._stop_renewing()
    assert first.leadership._link is not None, "its session is there"
    second = manager()
    await second.leadership.win(well)
    assert not first.leadership.is_held, "it stopped before the other one can begin"
    second.open()
    with pytest.raises(StoreTaken):
        await first.commit([job(1)])
    assert not first.leadership._renew(first.leadership._linked())


async def test_the_lease_is_renewed_while_a_large_or_slow_store_is_read(
    manager: Manager,
    monkeypatch: pytest.MonkeyPatch,
    server: PostgresqlServer,
    conninfo: str,
) -> None:
    monkeypatch.setattr(leadership, "RENEW_SECONDS", 0.0)
    whole = reading.snapshot

    def until() -> list[Any]:
        return server.run("SELECT until FROM leader", database=database_of(conninfo))

    def slow(*how: Any) -> Snapshot:
        before, give_up_at = until(), time.monotonic() + 30.0
        while until() == before:
            assert time.monotonic() < give_up_at
        return whole(*how)

    monkeypatch.setattr(reading, "snapshot", slow)
    manager().open()


def test_one_that_cannot_read_the_store_lets_another_one_try_at_once(
    manager: Manager, opened: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any) -> Snapshot:
        raise StoreUnusable("it is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(reading, "snapshot", damaged)
        with pytest.raises(StoreUnusable, match="damaged"):
            manager().open()
    assert opened().leadership.is_held


def test_a_lease_is_counted_from_before_it_was_asked_for(opened: Manager, moment: Moment) -> None:
    first = opened()
    first.leadership._stop_renewing()
    moment.now += leadership.LEASE_SECONDS - 0.1
    assert first.leadership.is_held
    moment.now += 0.2
    assert not first.leadership.is_held
    assert not first.leadership.is_lost, "nobody has led since"


def test_one_whose_session_was_lost_leads_again_when_it_has_renewed_the_lease(
    opened: Manager, server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened()
    found = first.leadership
    found._stop_renewing()
    found._linked().close()
    connect = found._connect

    def refused() -> None:
        raise KestrelError("nobody answers")

    found._connect = refused  # type: ignore[assignment]
    tries = iter([False, False, True])
    found._stop.wait = lambda _=None: next(tries)  # type: ignore[method-assign]
    found._renew_for_ever()
    assert not found.is_held, "another one sees that the session has ended, and may lead"
    found._connect = connect
    tries = iter([False, True])
    found._renew_for_ever()
    assert found.is_held


async def test_one_that_could_do_nothing_takes_nothing_over(
    opened: Manager, manager: Manager
) -> None:
    first = opened()
    why = ["the server cannot be reached"]
    task = await stands_by(manager(), lambda: why[0])
    assert sees(first) == [(True, ""), (False, "the server cannot be reached")]
    first.close()
    await asyncio.sleep(2 * leadership.LOOK_SECONDS)
    assert not task.done()
    why[0] = ""
    await task


async def test_one_that_says_nothing_more_is_not_counted(
    opened: Manager, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened()
    await ended(await stands_by(manager()))
    assert len(sees(first)) == 2
    monkeypatch.setattr(leadership, "BELIEVED_SECONDS", 0.0)
    assert sees(first) == [(True, "")]


def test_a_database_that_starts_anew_takes_the_lease_from_nobody(tmp_path: Path) -> None:
    """Its sessions have all ended; that says nothing about the manager."""
    with running_server(fsync=True) as server:
        conninfo = server.new_database()
        first = PostgresqlStore(tmp_path / "a", conninfo, POOL)
        first.open()
        first.leadership._stop_renewing()
        server.stop("fast")
        server.start()
        second = PostgresqlStore(tmp_path / "b", conninfo, POOL)
        with pytest.raises(AnotherLeads):
            second.open()
        server.run("UPDATE leader SET until = '-infinity'", database=database_of(conninfo))
        second.open()
        first.close()
        second.close()


async def test_a_manager_of_another_pool_does_not_stand_by(
    opened: Manager, manager: Manager, conninfo: str
) -> None:
    opened()
    task = await stands_by(manager(conninfo, "other.internal"))
    assert task.done()
    with pytest.raises(StoreUnusable, match=POOL):
        task.result()


def test_what_is_kept_in_texts_is_found_by_whoever_takes_over(opened: Manager) -> None:
    first = opened()
    text = first.kept_text(kept_text.INVITED)
    assert text.read() == ""
    text.write("join-1@workers\n")
    text.write("join-2@workers\n")
    first.close()
    second = opened()
    assert second.kept_text(kept_text.INVITED).read() == "join-2@workers\n"
    with pytest.raises(StoreTaken):
        text.write("join-3@workers\n")
    assert second.kept_text(kept_text.INVITED).read() == "join-2@workers\n"


def test_one_that_can_renew_its_lease_no_more_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay silent for ever, and others would wait only for its lease."""

    def slip() -> Any:
        raise LookupError("nobody has thought of this")

    monkeypatch.setattr(leadership, "LOOK_SECONDS", 0.0)
    found = leadership.PostgresqlLeadership(slip, lambda link: None, "a database")
    found.keep()
    assert found._renewing is not None
    found._renewing.join()
    assert found.is_lost
