"""What users ask about members: events by pages, groups that admins set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from managerkit import PlayedManager, settled
from storekit import QuickStore

from kestrelctl.core import events as ev
from kestrelctl.core.membership.event import EventQuery
from kestrelctl.core.model.worker.ad import AssetUnit, WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.manager.members import service
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol.request import Request
from kestrelctl.protocol.requests import (
    ListEvents,
    ListWorkerGroups,
    ListWorkers,
    RemoveWorkerGroup,
    SetWorkerGroup,
)

ROOT = "root@users.pool/1"
AD = WorkerAd(tags=("linux",))


@pytest.fixture
async def played(tmp_path: Path, quick_store: QuickStore) -> PlayedManager:
    return PlayedManager(tmp_path, store=quick_store)


async def joins(played: PlayedManager, worker: str = "w1@hosts.pool/a") -> None:
    hello = ev.Joined(at=played.now, worker=worker, incarnation="one", ad=AD, holds=[])
    played.service.handle(hello)
    await settled()


async def asked(played: PlayedManager, request: Request, who: str = "ada@users.pool/1") -> Any:
    return directions.answers.decode(await played.ask(who, request))


async def test_events_come_by_pages(played: PlayedManager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MOST_LOOKED_AT", 3)
    for n in range(5):
        await joins(played, f"w{n}@hosts.pool/a")
    only = EventQuery(worker="w[24]")
    first = await asked(played, ListEvents(query=only))
    assert ([e.number for e in first.events], first.after, first.more) == ([3], 3, True)
    second = await asked(played, ListEvents(query=only, after=first.after))
    assert ([e.number for e in second.events], second.after) == ([5], 5)
    assert not second.more


async def test_a_page_that_is_full_is_no_end(played: PlayedManager) -> None:
    for n in range(3):
        await joins(played, f"w{n}@hosts.pool/a")
    page = await asked(played, ListEvents(limit=2))
    assert ([e.number for e in page.events], page.after, page.more) == ([1, 2], 2, True)


async def test_who_wants_only_what_comes_is_told_where_that_begins(played: PlayedManager) -> None:
    await joins(played)
    page = await asked(played, ListEvents(after=-1))
    assert (page.events, page.after) == ([], 1)


async def test_a_glob_that_takes_long_to_read_is_refused(played: PlayedManager) -> None:
    """Half a megabyte of one kept everybody waiting for half a minute."""
    await joins(played)
    refused = await asked(played, ListEvents(query=EventQuery(worker="*" * 1_001)))
    assert (refused.code, len(refused.message) < 100) == ("usage", True)
    page = await asked(played, ListEvents(query=EventQuery(worker="*" * 1_000)))
    assert [e.number for e in page.events] == [1]


async def test_a_worker_that_two_names_fit_is_listed_once(played: PlayedManager) -> None:
    for n in (1, 2, 11):
        await joins(played, f"w{n}@hosts.pool/a")
    page = await asked(played, ListWorkers(names=["w1", "w1@hosts.pool", "w1@", "@hosts"]))
    assert [w.worker for w in page.workers] == [f"w{n}@hosts.pool/a" for n in (11, 1, 2)]


async def test_no_worker_is_too_much_for_a_list(tmp_path: Path) -> None:
    """Nobody could list those that come after it, either."""
    played = PlayedManager(tmp_path, worker_hosts=("hosts.pool",), user_hosts=("users.pool",))
    units = tuple(AssetUnit(str(n), "&" * 255, "&" * 148) for n in range(256))
    ad = WorkerAd(assets={"cpus": 1.0, "gpus": 256.0}, units={"gpus": units})
    for worker, says in (("w1@hosts.pool/a", ad), ("w2@hosts.pool/a", AD)):
        hello = workers.Hello(version=workers.VERSION, incarnation="one", ad=says)
        assert codec.fits(codec.encode(hello))
        await played.work(worker, hello)
    page = await asked(played, ListWorkers())
    assert [w.worker for w in page.workers] == ["w2@hosts.pool/a"]


async def test_nobody_asks_for_more_names_than_are_looked_up_at_once(played: PlayedManager) -> None:
    """Each is looked for in all addresses, and everybody else waits."""
    await joins(played)
    refused = await asked(played, ListWorkers(names=["w"] * 1_001))
    assert (refused.code, refused.message) == ("usage", "1,001 names are too many at once")
    page = await asked(played, ListWorkers(names=["w"] * 1_000))
    assert len(page.workers) == 1


async def test_only_admins_change_groups(played: PlayedManager) -> None:
    group = WorkerGroup(name="linux", tags=("linux",))
    for request in (SetWorkerGroup(group=group), RemoveWorkerGroup(name="linux")):
        assert (await asked(played, request)).code == "not-allowed"


async def test_a_group_is_there_until_it_is_removed(played: PlayedManager) -> None:
    await joins(played)
    group = WorkerGroup(name="linux", tags=("linux",))
    done = await asked(played, SetWorkerGroup(group=group), ROOT)
    assert (done.what, done.tasks) == (["linux"], 1)
    assert played.store.open().settings == [group]
    [view] = (await asked(played, ListWorkerGroups())).groups
    assert (view.group, view.workers) == (group, 1)
    [worker] = (await asked(played, ListWorkers(names=["w1"]))).workers
    assert worker.groups == ["linux"]
    await asked(played, RemoveWorkerGroup(name="linux"), ROOT)
    assert played.store.open().settings == []
    gone = await asked(played, RemoveWorkerGroup(name="linux"), ROOT)
    assert gone.code == "not-found"


async def test_what_cannot_be_a_group_is_refused(played: PlayedManager) -> None:
    group = WorkerGroup(name="bad", where="Cpus >=")
    refused = await asked(played, SetWorkerGroup(group=group), ROOT)
    assert refused.code == "usage"
    assert played.service.pool.worker_groups.all == []
