"""Channels at the manager: whose words it carries where, and that it carries no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobkit import job_spec
from managerkit import PlayedManager

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import directions, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.channels import (
    Channels,
    FromTask,
    OpenChannels,
    TaskWrote,
    ToTask,
    WriteToTask,
    Written,
)

ADA = "ada@users.pool/1"
BOB = "bob@users.pool/1"
WORKER = "w1@workers.pool/1"
OTHER = "w2@workers.pool/1"


class House:
    """A manager with two workers, at the first of which a job with channels runs."""

    def __init__(self, directory: Path) -> None:
        self.manager = PlayedManager(directory)
        self.number = 0

    async def begin(self, *, channel: bool = True) -> None:
        for name, tags in ((WORKER, ("channels",)), (OTHER, ())):
            ad = WorkerAd(assets={"cpus": 2.0}, tags=tags)
            hello = workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=ad)
            await self.manager.work(name, hello)
        spec = job_spec(count=2, channel=channel)
        assert isinstance(await self.ask(rq.SubmitJob(spec=spec)), an.Submitted)
        [run] = [each for each in self.told(WORKER) if isinstance(each, workers.Run)]
        self.number = run.spans[0][0]

    async def ask(self, request: rq.Request, whom: str = ADA) -> an.AnyAnswer:
        return directions.answers.decode(await self.manager.ask(whom, request))

    def told(self, worker: str) -> list[object]:
        return [directions.to_worker.decode(text) for to, text in self.manager.sent if to == worker]

    def heard(self, whom: str = ADA) -> list[TaskWrote]:
        found = [directions.answers.decode(text) for to, text in self.manager.sent if to == whom]
        return [each for each in found if isinstance(each, TaskWrote)]

    async def task_writes(self, data: bytes, worker: str = WORKER, **other: int) -> None:
        said = {"number": self.number, "job": 1, "index": 0} | other
        await self.manager.work(worker, FromTask(data=data, **said))

    async def write(self, whom: str = ADA, **other: int) -> an.AnyAnswer:
        said = {"task_id": 0, "attempt": self.number} | other
        return await self.ask(WriteToTask(job="1", data=b"call", **said), whom)


@pytest.fixture
async def house(tmp_path: Path) -> House:
    found = House(tmp_path)
    await found.begin()
    return found


async def test_an_owner_and_his_task_hear_each_other(house: House) -> None:
    opened = await house.ask(OpenChannels(job="1"))
    assert isinstance(opened, Channels)
    assert opened.tasks == [(0, house.number), (1, house.number + 1)]
    await house.task_writes(b"")
    await house.task_writes(b"hello")
    assert [(each.job, each.task_id, each.attempt, each.data) for each in house.heard()] == [
        (1, 0, house.number, b""),
        (1, 0, house.number, b"hello"),
    ]
    answer = await house.write()
    assert isinstance(answer, Written)
    assert answer.went_on
    assert house.told(WORKER)[-1] == ToTask(number=house.number, data=b"call")


async def test_an_earlier_attempt_is_written_nothing(house: House) -> None:
    answer = await house.write(attempt=house.number - 1)
    assert isinstance(answer, Written)
    assert not answer.went_on
    assert not any(isinstance(each, ToTask) for each in house.told(WORKER))


async def test_others_neither_write_nor_hear(house: House) -> None:
    assert isinstance(await house.ask(OpenChannels(job="1"), BOB), an.Failed)
    assert isinstance(await house.write(BOB), an.Failed)
    await house.task_writes(b"hello")
    assert house.heard(BOB) == []
    assert house.heard(ADA) == [], "nobody has opened them"


async def test_a_worker_speaks_for_its_own_attempts_alone(house: House) -> None:
    await house.ask(OpenChannels(job="1"))
    await house.task_writes(b"forged", OTHER)
    await house.task_writes(b"of another attempt", number=house.number + 1)
    await house.task_writes(b"of no task", index=99)
    await house.task_writes(b"of no job", job=99)
    assert house.heard() == []


async def test_the_session_that_opened_them_last_hears(house: House) -> None:
    await house.ask(OpenChannels(job="1"))
    await house.ask(OpenChannels(job="1"), "ada@users.pool/2")
    await house.task_writes(b"hello")
    assert house.heard() == []
    assert [each.data for each in house.heard("ada@users.pool/2")] == [b"hello"]


async def test_a_job_without_channels_says_so(tmp_path: Path) -> None:
    house = House(tmp_path)
    await house.begin(channel=False)
    failed = await house.ask(OpenChannels(job="1"))
    assert isinstance(failed, an.Failed)
    assert failed.message == "tasks of job 1 have no channel"
