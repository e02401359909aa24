"""A manager whose pool has gone on with another one ends by itself, and not by anybody's word."""

from __future__ import annotations

from pathlib import Path

import pytest
from managerkit import PlayedManager

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.sealed_epoch import Rank, SealedEpoch
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import Busy, SteppedBack
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq

WORKER, USER = "w1@workers.pool/1", "ada@users.pool/1"
SECRET = MemoryStore().secret
LATER = Rank(SECRET, 1_795_806_368, 11_488).sealed
FORGED = (LATER[0], LATER[1], LATER[2] ^ 1)


def hello(epoch: SealedEpoch | None = None) -> workers.Hello:
    return workers.Hello(
        version=workers.VERSION, incarnation="one", ad=WorkerAd(assets={"cpus": 1.0}), epoch=epoch
    )


def told(manager: PlayedManager, worker: str = WORKER) -> list[workers.ToWorker]:
    return [directions.to_worker.decode(text) for to, text in manager.sent if to == worker]  # type: ignore[misc]


@pytest.fixture
async def manager(tmp_path: Path) -> PlayedManager:
    return PlayedManager(tmp_path)


async def test_a_worker_is_told_the_epoch_of_the_manager_that_welcomes_it(
    manager: PlayedManager,
) -> None:
    await manager.work(WORKER, hello())
    [welcome] = [message for message in told(manager) if isinstance(message, workers.Welcome)]
    assert welcome.epoch == Rank(SECRET, 0, 1).sealed


async def test_the_epoch_of_a_later_manager_deposes_an_earlier_one(manager: PlayedManager) -> None:
    await manager.ask(USER, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    await manager.work(WORKER, hello(LATER))
    error = manager.service.broken.result()
    assert isinstance(error, SteppedBack)
    assert WORKER in str(error.cause)
    assert "manager restore" in str(error.hint)
    assert told(manager) == [], "neither welcomed, nor told to end what runs, nor given work"


async def test_a_manager_that_has_stepped_back_decides_nothing_any_more(
    manager: PlayedManager,
) -> None:
    await manager.ask(USER, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    await manager.work(WORKER, hello(LATER))
    await manager.work("w2@workers.pool/1", hello())
    assert told(manager, "w2@workers.pool/1") == []


@pytest.mark.parametrize(
    "shown",
    [
        FORGED,
        (2**63 - 1, 2**63 - 1, 0),
        Rank(b"of another pool, of another pool", 2**62, 1).sealed,
        Rank(SECRET, 0, 0).sealed,
    ],
    ids=["changed", "made up", "of another pool", "of an earlier start"],
)
async def test_a_workers_bare_word_deposes_nobody(
    manager: PlayedManager, shown: SealedEpoch
) -> None:
    await manager.work(WORKER, hello(shown))
    assert not manager.service.broken.done()
    assert any(isinstance(message, workers.Welcome) for message in told(manager))


async def test_what_a_worker_makes_up_is_logged(
    manager: PlayedManager, caplog: pytest.LogCaptureFixture
) -> None:
    await manager.work(WORKER, hello(FORGED))
    assert f"{WORKER} shows an epoch that no manager of this pool has sealed" in caplog.text


class TestOneThatHasMetAnother:
    """The server has refused it, because another manager was there; now it is in."""

    @pytest.fixture
    async def manager(self, tmp_path: Path) -> PlayedManager:
        store = MemoryStore()
        before = PlayedManager(tmp_path, store=store)
        await before.work(WORKER, hello())
        met = PlayedManager(tmp_path, store=store)
        met.listener.on_offline("it ended the connection with <conflict/>")
        met.listener.on_conflict()
        met.listener.on_online()
        await met.settled()
        met.sent.clear()
        return met

    async def test_takes_no_job_before_its_workers_have_said_which_came_later(
        self, manager: PlayedManager
    ) -> None:
        request = rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",))))
        refused = directions.answers.decode(await manager.ask(USER, request))
        assert isinstance(refused, an.Failed)
        assert (refused.code, refused.cause) == (
            Busy.code,
            "this one is still asking the workers which of the two came later",
        )
        await manager.work(WORKER, hello(Rank(SECRET, 0, 1).sealed))
        taken = directions.answers.decode(await manager.ask(USER, request))
        assert isinstance(taken, an.Submitted)

    async def test_takes_no_result_from_a_worker_that_has_not_said_hello(
        self, manager: PlayedManager
    ) -> None:
        """Acknowledged here, it would be lost to the right manager."""
        result = Result(1 << 40, 1, 0, Outcome.DONE, manager.now, 1.0)
        await manager.work(WORKER, workers.Report(results=[result]))
        assert not [message for message in told(manager) if isinstance(message, workers.Ack)]
        assert any(isinstance(message, workers.Who) for message in told(manager))
        await manager.work(WORKER, hello())
        await manager.work(WORKER, workers.Report(results=[result]))
        await manager.settled()
        manager.service._acknowledgements.send_all()
        assert [message.numbers for message in told(manager) if isinstance(message, workers.Ack)]
