"""An admin has a worker offer more or less: what is asked, who may, and what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager, settled

from kestrelctl.core import events as ev
from kestrelctl.core.model.worker.ad import AssetChange, WorkerAd
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol import requests as rq

ADMIN, OWNER = "root@users.pool/1", "ada@users.pool/1"
WORKER, OTHER = "w1@workers.pool/1", "w2@workers.pool/1"
CHANGE = AssetChange(amounts={"cpus": 2.0})
SMALLER = WorkerAd(assets={"cpus": 2.0})


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    found = PlayedManager(tmp_path)
    for jid in (WORKER, OTHER):
        hello = workers.Hello(
            version=workers.VERSION,
            incarnation="one",
            greeting=1,
            ad=WorkerAd(assets={"cpus": 4.0}),
        )
        await found.work(jid, hello)
    found.sent.clear()
    return found


async def answered(manager: PlayedManager, *said: tuple[str, workers.Resized]) -> an.AnyAnswer:
    """What an admin is answered when workers say this."""
    request = rq.ResizeWorker(name="w1", change=CHANGE)
    manager.listener.on_payload(ADMIN, "jobs@pool", codec.encode(request))
    await settled()
    [text] = [text for to, text in manager.sent if to == WORKER]
    assert directions.to_worker.decode(text) == workers.Resize(request="1", change=CHANGE)
    for jid, message in said:
        assert not manager.told(ADMIN)
        await manager.work(jid, message)
    [answer] = manager.told(ADMIN)
    return answer


async def test_the_answer_shows_the_worker_as_it_is_now(manager: PlayedManager) -> None:
    answer = await answered(manager, (WORKER, workers.Resized(ad=SMALLER, request="1")))
    assert isinstance(answer, an.Workers)
    assert [(w.worker, w.assets) for w in answer.workers] == [(WORKER, {"cpus": 2.0})]


@pytest.mark.parametrize(
    "request_",
    [
        rq.DrainWorkers(names=["w1", ""]),
        rq.ResumeWorkers(names=[""]),
        rq.ResizeWorker(name="", change=CHANGE),
    ],
)
async def test_an_empty_name_is_not_that_of_every_worker(
    manager: PlayedManager, request_: rq.AnyRequest
) -> None:
    manager.listener.on_payload(ADMIN, "jobs@pool", codec.encode(request_))
    await settled()
    [answer] = manager.told(ADMIN)
    assert isinstance(answer, an.Failed)
    assert (answer.code, answer.message) == ("usage", "an empty name would mean every worker")


async def test_nobody_answers_for_another(manager: PlayedManager) -> None:
    false = workers.Resized(ad=WorkerAd(assets={"cpus": 1.0}), request="1")
    answer = await answered(
        manager, (OTHER, false), (WORKER, workers.Resized(ad=SMALLER, request="1"))
    )
    assert isinstance(answer, an.Workers)
    assert answer.workers[0].assets == {"cpus": 2.0}


async def test_why_a_worker_cannot_is_handed_on(manager: PlayedManager) -> None:
    cannot = workers.Resized(ad=WorkerAd(assets={"cpus": 4.0}), request="1", problem="no such unit")
    answer = await answered(manager, (WORKER, cannot))
    assert isinstance(answer, an.Failed)
    assert (answer.code, answer.cause) == ("usage", "no such unit")


async def test_only_an_admin_may(manager: PlayedManager) -> None:
    answer = directions.answers.decode(
        await manager.ask(OWNER, rq.ResizeWorker(name="w1", change=CHANGE))
    )
    assert isinstance(answer, an.Failed)
    assert answer.code == "not-allowed"
    assert not any(to == WORKER for to, _ in manager.sent)


async def test_an_ad_that_cannot_be_meant_is_refused_and_changes_nothing(
    manager: PlayedManager,
) -> None:
    hostile = workers.Resized(
        ad=WorkerAd(assets={f"a{n}": 1.0 for n in range(1000)} | {"cpus": 1.0})
    )
    await manager.work(WORKER, hostile)
    [refused] = [directions.to_worker.decode(text) for to, text in manager.sent if to == WORKER]
    assert refused == workers.Refused(reason="a worker has at most 16 assets, not 1001")
    assert manager.service.pool.workers[WORKER].cls.capacity == {"cpus": 4000}


async def test_what_a_neighbour_lends_is_not_resized_by_who_borrows(manager: PlayedManager) -> None:
    lent = "flock@near.example/0a1b2c3d4e5f"
    ad = WorkerAd(assets={"cpus": 4.0}, distance_seconds=0.1)
    joined = ev.Joined(
        at=manager.service.now(), worker=lent, incarnation="one", ad=ad, holds=[], claims=[]
    )
    manager.service.handle(joined)
    request = rq.ResizeWorker(name=lent, change=CHANGE)
    manager.listener.on_payload(ADMIN, "jobs@pool", codec.encode(request))
    await settled()
    [answer] = manager.told(ADMIN)
    assert isinstance(answer, an.Failed)
    assert answer.cause == "another pool lends it, and decides how much that is"
