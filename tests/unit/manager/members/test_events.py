"""What becomes of workers is an event: once, durable, and not repeated by a restart."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager, settled
from storekit import QuickStore

from kestrelctl.core import events as ev
from kestrelctl.core.handlers.health import quarantine
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.errors import KestrelError
from kestrelctl.manager.listener import GONE
from kestrelctl.manager.members import log
from kestrelctl.manager.members.log import MemberEvents
from kestrelctl.manager.retention import Retention
from kestrelctl.protocol import requests

W1, W2 = "w1@hosts.pool/a", "w2@hosts.pool/b"
AD = WorkerAd(assets={"cpus": 4.0}, tags=("linux",))


class Played(PlayedManager):
    """A manager at which workers come and go."""

    async def joins(self, worker: str = W1, ad: WorkerAd = AD, incarnation: str = "one") -> None:
        self.service.handle(
            ev.Joined(at=self.now, worker=worker, incarnation=incarnation, ad=ad, holds=[])
        )
        await settled()

    async def happens(self, kind: type[ev.Event], worker: str = W1, **fields: object) -> None:
        self.service.handle(kind(at=self.now, worker=worker, **fields))  # type: ignore[call-arg]
        await settled()

    async def passes(self, seconds: float) -> None:
        self.now += seconds
        self.service.handle(ev.Tick(at=self.now, cause="tick"))
        await settled()

    def told(self) -> list[tuple[str, str]]:  # type: ignore[override]
        """(kind, worker) of every event that is stored."""
        return [(e.kind, e.worker) for e in self.store.member_events(limit=1_000)]

    def reasons(self) -> list[str]:
        return [e.reason for e in self.store.member_events(limit=1_000)]


@pytest.fixture
async def played(tmp_path: Path, quick_store: QuickStore) -> Played:
    return Played(tmp_path, store=quick_store)


async def test_a_worker_that_says_hello_joins_once(played: Played) -> None:
    await played.joins()
    await played.joins()
    assert played.told() == [("join", W1)]


async def test_one_that_vanishes_has_failed(played: Played) -> None:
    await played.joins()
    await played.happens(ev.Lost, cause="unavailable")
    assert played.told() == [("join", W1), ("failed", W1)]
    assert played.reasons()[-1] == "its session has ended"


async def test_one_that_falls_silent_has_failed(played: Played) -> None:
    await played.joins()
    for _ in range(600):
        await played.passes(1.0)
    assert played.told() == [("join", W1), ("failed", W1)]
    assert played.reasons()[-1] == "it fell silent"


async def test_one_that_has_said_so_leaves(played: Played) -> None:
    await played.joins()
    await played.happens(ev.Leaving)
    await played.happens(ev.Lost, cause="unavailable")
    assert played.told() == [("join", W1), ("leave", W1)]


async def test_one_whose_account_is_taken_away_leaves(played: Played) -> None:
    await played.joins()
    await played.happens(ev.Revoked, by="root")
    assert played.told() == [("join", W1), ("leave", W1)]
    assert played.reasons()[-1] == "revoked by root"


@pytest.mark.parametrize("how", ["unavailable", "bounce"])
async def test_a_session_that_ends_with_its_account_is_no_failure(played: Played, how: str) -> None:
    """The server ends the session before it answers that the account is deleted."""
    worker = "w1@workers.pool/a"
    await played.joins(worker)

    def end_session(jid: str) -> None:
        assert jid == "w1@workers.pool"
        if how == "bounce":
            played.listener.on_bounce(worker, GONE[0])
        else:
            played.listener.on_presence(worker, "pool@pool", "unavailable")

    played.accounts.on_delete = end_session
    await played.ask("root@users.pool/1", requests.RevokeWorkers(id="1", names=[worker]))
    assert played.told() == [("join", worker), ("leave", worker)]
    assert played.reasons()[-1] == "revoked by root@users.pool"


async def test_a_session_that_ends_while_its_account_stays_has_failed(played: Played) -> None:
    worker = "w1@workers.pool/a"
    await played.joins(worker)

    def refuse(jid: str) -> None:
        raise KestrelError(f"the server did not delete the account {jid}")

    played.accounts.on_delete = refuse
    await played.ask("root@users.pool/1", requests.RevokeWorkers(id="1", names=[worker]))
    played.listener.on_presence(worker, "pool@pool", "unavailable")
    await played.settled()
    assert played.told() == [("join", worker), ("failed", worker)]


async def test_another_process_at_the_same_address_is_another_join(played: Played) -> None:
    await played.joins()
    await played.joins(incarnation="two")
    assert played.told() == [("join", W1), ("failed", W1), ("join", W1)]


async def test_other_tags_are_an_update_that_says_which(played: Played) -> None:
    await played.joins()
    more = WorkerAd(assets={"cpus": 8.0}, tags=("gpu",))
    await played.happens(ev.Resized, ad=more)
    await played.happens(ev.Resized, ad=more)
    assert played.told() == [("join", W1), ("update", W1)]
    assert played.reasons()[-1] == "+gpu, -linux, cpus 4 to 8"


async def test_a_value_of_a_property_is_no_update(played: Played) -> None:
    await played.joins()
    await played.happens(
        ev.PropertiesRead, properties={"ram_free": 7}, changed=frozenset({"ram_free"})
    )
    await played.happens(ev.Resized, ad=AD)
    assert played.told() == [("join", W1)]


async def test_a_drain_and_its_end_say_on_whose_wish(played: Played) -> None:
    await played.joins()
    await played.happens(ev.Drain, by="root")
    await played.happens(ev.Drain, by="root")
    await played.happens(ev.Resume, cause="ada")
    assert played.told()[1:] == [("drain", W1), ("drain-end", W1)]
    assert played.reasons()[1:] == ["by root", "by ada"]


async def test_a_quarantine_and_its_end_are_told(played: Played) -> None:
    await played.joins()
    await played.joins(W2)
    state = played.service.pool.state
    state.at = played.now
    assert quarantine(state, state.workers[W1], "failures", "it breaks", played.now)
    for _ in range(90):
        await played.happens(ev.Heard, W1)
        await played.happens(ev.Heard, W2)
        await played.passes(1.0)
    assert played.told()[2:] == [("quarantine", W1), ("quarantine-end", W1)]
    assert played.reasons()[2:] == ["it breaks", "its time is over"]


async def test_what_a_neighbour_lends_is_no_member(played: Played) -> None:
    await played.joins("flock@other.pool/2-cpus", WorkerAd(distance_seconds=0.1))
    assert played.told() == []


async def test_an_event_names_the_groups_of_its_moment(played: Played) -> None:
    groups = played.service.pool.worker_groups
    groups.put(WorkerGroup(name="linux", tags=("linux",)))
    await played.joins()
    groups.remove("linux")
    await played.happens(ev.Lost, cause="unavailable")
    assert [e.groups for e in played.store.member_events(limit=9)] == [("linux",), ()]


async def test_an_event_is_told_when_it_is_durable(played: Played) -> None:
    told: list[MemberEvents] = []
    played.service.listen(MemberEvents, told.append)
    played.store.full = True
    await played.joins()
    assert told == []
    assert played.told() == []
    played.store.full = False
    while not told:
        await played.service.commits._commit_all()
    assert [(e.kind, e.number) for e in told[0].events] == [("join", 1)]


class TestRestart:
    async def test_workers_that_were_there_do_not_join_again(
        self, tmp_path: Path, quick_store: QuickStore
    ) -> None:
        await Played(tmp_path, store=quick_store).joins()
        again = Played(tmp_path, store=quick_store)
        await again.joins()
        assert again.told() == [("join", W1)]

    async def test_a_new_one_joins_under_the_next_number(
        self, tmp_path: Path, quick_store: QuickStore
    ) -> None:
        await Played(tmp_path, store=quick_store).joins()
        await Played(tmp_path, store=quick_store).joins(W2)
        assert [e.number for e in quick_store.member_events(limit=9)] == [1, 2]

    async def test_one_that_does_not_come_back_has_failed(
        self, tmp_path: Path, quick_store: QuickStore
    ) -> None:
        before = Played(tmp_path, store=quick_store)
        group = WorkerGroup(name="linux", tags=("linux",))
        before.service.handle(ev.PutSetting(at=before.now, request="g", setting=group))
        await settled()
        await before.joins()
        await before.joins(W2)
        after = Played(tmp_path, store=quick_store)
        await after.joins(W2)
        for _ in range(120):
            await after.happens(ev.Heard, W2)
            await after.passes(1.0)
        assert after.told()[2:] == [("failed", W1)]
        [failed] = quick_store.member_events(after=2, limit=9)
        assert (failed.reason, failed.groups) == ("it did not come back", ("linux",))

    async def test_tags_that_changed_meanwhile_are_an_update(
        self, tmp_path: Path, quick_store: QuickStore
    ) -> None:
        await Played(tmp_path, store=quick_store).joins()
        again = Played(tmp_path, store=quick_store)
        await again.joins(ad=WorkerAd(assets=AD.assets, tags=("gpu",)))
        assert again.told() == [("join", W1), ("update", W1)]

    async def test_a_session_of_the_managers_own_that_breaks_is_no_join(
        self, played: Played
    ) -> None:
        await played.joins()
        played.service.handle(ev.Disconnected(at=played.now))
        played.service.handle(ev.Reconnected(at=played.now))
        await played.joins()
        assert played.told() == [("join", W1)]


class TestKeeping:
    async def test_events_are_kept_for_a_time(self, played: Played) -> None:
        await played.joins()
        played.now += 100.0
        await played.joins(W2)
        retention = Retention(played.service, None, None, events_kept_seconds=50.0)
        assert await retention.look()
        await settled()
        assert played.told() == [("join", W2)]
        assert not await retention.look()

    async def test_there_are_not_more_than_so_many(
        self, played: Played, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log, "MOST_EVENTS", 2)
        for n in range(4):
            await played.joins(f"w{n}@hosts.pool/a")
        assert await Retention(played.service, None, None).look()
        await settled()
        assert [e.number for e in played.store.member_events(limit=9)] == [3, 4]
