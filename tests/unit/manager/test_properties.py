"""Workers tell the manager of their hosts; users ask it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from managerkit import PlayedManager, settled

from kestrelctl.core.members.worker_groups import WorkerGroups
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.worker_group import WorkerGroup
from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol.properties import ListProperties, PropertiesHere, ToldReading
from kestrelctl.protocol.request import Request
from kestrelctl.protocol.requests import ListWorkers, SetWorkerGroup

W1, W2 = "w1@workers.pool/a", "w2@workers.pool/a"
ROOT = "root@users.pool/1"


@pytest.fixture
async def played(tmp_path: Path) -> PlayedManager:
    return PlayedManager(tmp_path, worker_hosts=("workers.pool",), user_hosts=("users.pool",))


def told(*, anew: bool = False, **values: PropertyValue | None) -> PropertiesHere:
    readings = [
        ToldReading(name, 5.0, value, "" if value is not None else "it hangs")
        for name, value in values.items()
    ]
    return PropertiesHere(readings=readings, anew=anew)


async def joins(played: PlayedManager, worker: str, **ad: Any) -> None:
    hello = workers.Hello(version=workers.VERSION, incarnation="one", ad=WorkerAd(**ad))
    await played.work(worker, hello)


async def asked(played: PlayedManager, request: Request, who: str = ROOT) -> Any:
    return directions.answers.decode(await played.ask(who, request))


async def test_what_a_worker_tells_is_shown_and_added_up(played: PlayedManager) -> None:
    await joins(played, W1)
    await joins(played, W2, tags=("gpu",))
    await played.work(W1, told(anew=True, load=1.0, site="north"))
    await played.work(W2, told(anew=True, load=3.0, site=None))
    found = await asked(played, ListProperties())
    assert found.workers == 2
    assert {each.name: each.summary for each in found.properties} == {
        "load": PropertySummary(2, 0, 1.0, 2.0, 3.0),
        "site": PropertySummary(1, 1),
    }
    [view] = (await asked(played, ListWorkers(names=["w2"]))).workers
    assert [(each.name, each.value, each.missing) for each in view.properties] == [
        ("load", 3.0, ""),
        ("site", None, "it hangs"),
    ]
    views = (await asked(played, ListWorkers())).workers
    assert all(not each.properties for each in views)
    by_value = ListWorkers(where="Property_load > 2")
    assert [each.worker for each in (await asked(played, by_value)).workers] == [W2]


async def test_they_are_added_up_for_each_group(played: PlayedManager) -> None:
    await joins(played, W1)
    await joins(played, W2)
    await asked(played, SetWorkerGroup(group=WorkerGroup(name="busy", where="Property_load > 2")))
    await played.work(W1, told(anew=True, load=1.0))
    await played.work(W2, told(anew=True, load=3.0))
    found = await asked(played, ListProperties(group="busy", names=["load"]))
    assert [each.summary for each in found.properties] == [PropertySummary(1, 0, 3.0, 3.0, 3.0)]
    assert found.workers == 1


async def test_metrics_have_those_that_were_chosen_of_all_and_of_each_group(
    played: PlayedManager,
) -> None:
    await joins(played, W1)
    await asked(played, SetWorkerGroup(group=WorkerGroup(name="first", names=("w1",))))
    await played.work(W1, told(anew=True, load=1.0, secret="x"))
    desk = played.dispatcher.properties
    assert desk.summaries(()) == []
    assert desk.summaries(("load", "load", "none")) == [
        ("load", "", PropertySummary(1, 0, 1.0, 1.0, 1.0)),
        ("load", "first", PropertySummary(1, 0, 1.0, 1.0, 1.0)),
        ("none", "", PropertySummary(0, 1)),
        ("none", "first", PropertySummary(0, 1)),
    ]


async def test_who_is_in_a_group_is_found_out_once_for_each_worker(
    played: PlayedManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred groups of a thousand workers would take a scrape of the metrics a minute."""
    for worker in (W1, W2):
        await joins(played, worker)
    for name in ("first", "second", "third"):
        await asked(played, SetWorkerGroup(group=WorkerGroup(name=name, names=("w1",))))
    of, looks = WorkerGroups.of, 0

    def counted(*who: Any) -> tuple[str, ...]:
        nonlocal looks
        looks += 1
        return of(*who)

    monkeypatch.setattr(WorkerGroups, "of", counted)
    assert len(played.dispatcher.properties.summaries(("load",))) == 4
    assert looks == 2


async def test_who_asks_for_what_there_is_not_is_told(played: PlayedManager) -> None:
    await joins(played, W1)
    for request in (ListProperties(group="nobody"), ListProperties(names=["load"])):
        assert (await asked(played, request)).code == "not-found"


async def test_a_stranger_is_asked_for_a_hello_first(played: PlayedManager) -> None:
    await played.work(W1, told(anew=True, load=1.0))
    assert (W1, codec.encode(workers.Who())) in played.sent
    await joins(played, W1)
    assert (await asked(played, ListProperties())).properties == []


async def test_what_a_worker_says_in_its_ad_is_not_what_was_read(played: PlayedManager) -> None:
    await joins(played, W1, properties={"load": 9.0})
    assert played.service.pool.workers[W1].ad.properties == {}


async def test_of_a_worker_that_has_gone_nothing_is_kept(played: PlayedManager) -> None:
    await joins(played, W1)
    await played.work(W1, told(anew=True, load=1.0))
    played.listener.on_presence(W1, "pool@pool", "unavailable")
    await settled()
    assert played.dispatcher.properties.book.of(W1) == {}
    assert (await asked(played, ListProperties())).workers == 0


async def test_long_texts_are_for_people_alone(played: PlayedManager) -> None:
    await joins(played, W1)
    await played.work(W1, told(anew=True, motd="x" * 300, site="north"))
    assert played.service.pool.workers[W1].ad.properties == {"site": "north"}
    [view] = (await asked(played, ListWorkers(names=["w1"]))).workers
    assert len(view.properties) == 2


@pytest.mark.parametrize(
    "reading",
    [
        ["Load", 5.0, 1],
        ["x" * 65, 5.0, 1],
        ["load", 5.0, 2**63],
        ["load", 5.0, 1e301],
        ["load", 5.0, "x" * 1025],
        ["load", 5.0, [1]],
        ["load", 1e13, 1],
        ["load", 5.0, None, "x" * 201],
    ],
)
async def test_rubbish_is_refused_and_costs_nothing_else(
    played: PlayedManager, reading: list[object]
) -> None:
    await joins(played, W1)
    await played.work(W1, told(anew=True, load=1.0))
    rubbish = msgspec.json.encode({"type": "properties", "readings": [reading]}).decode()
    played.listener.on_payload(W1, "pool@pool", rubbish)
    await settled()
    assert '"refused"' in played.sent[-1][1]
    assert played.service.pool.workers[W1].ad.properties == {"load": 1.0}
