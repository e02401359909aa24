"""A manager's store on a small disk that somebody else fills: real files, real errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from small_disk import mounted

from kestrelctl import clock
from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pool import Pool
from kestrelctl.manager.service import Service
from kestrelctl.store.sqlite.store import SqliteStore

WORKER = "w0@workers.pool/1"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system."""
    with mounted(tmp_path, "8m"):
        yield tmp_path


class Wire:
    """What the manager sends, and to nobody: the test says what a worker would."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        self.sent.append(payload)


class House:
    """A manager on that disk, with a worker and a job."""

    def __init__(self, disk: Path) -> None:
        self.store = SqliteStore(disk / "manager")
        self.pool = Pool(self.store.open())
        self.service = Service(self.pool, self.store, "pool", clock)
        self.wire = self.service.session = Wire()  # type: ignore[assignment]
        self.ended: list[tuple[int, int]] = []
        self.service.listen(fx.TasksEnded, self._tasks_ended)
        self.greeting = 0
        self.done: set[int] = set()
        self.handle(ev.Reconnected)

    def _tasks_ended(self, ended: fx.TasksEnded) -> None:
        self.ended.extend((record.job_id, record.index) for record in ended.records)

    def handle(self, kind: type[ev.Event], **fields: object) -> None:
        self.service.handle(kind(at=clock.now(), cause="test", **fields))

    def held(self) -> dict[int, tuple[int, int]]:
        """(job id, index) of each attempt that the pool thinks the worker has."""
        worker = self.pool.workers[WORKER]
        return {number: (task.job.id, task.index) for number, task in worker.held.items()}

    def hello(self) -> None:
        """The worker still holds all that it has, ended or not."""
        known = self.pool.workers.get(WORKER)
        holds = [(n, *what, 0) for n, what in self.held().items()] if known else []
        self.handle(
            ev.Joined,
            worker=WORKER,
            incarnation="one",
            ad=WorkerAd(assets={"cpus": 8.0}),
            holds=holds,
            claims=[{"cpus": 1000}],
        )

    def report_all(self) -> None:
        """Everything that the worker has is done."""
        now = clock.now()
        results = [
            Result(number, job_id, index, Outcome.DONE, now - 0.1, 0.1, stdout=b"x" * 500)
            for number, (job_id, index) in self.held().items()
        ]
        self.handle(ev.Reported, worker=WORKER, results=results)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.02)


async def test_a_full_disk_stops_the_pool_and_room_starts_it_again(disk: Path) -> None:
    house = House(disk)
    pool = house.pool
    house.hello()
    house.handle(
        ev.Submit,
        request="s",
        owner="ada",
        spec=JobSpec(program=Program(argv=("true",)), count=600),
    )
    await house.until(lambda: bool(house.held()))

    filler = disk / "somebody elses"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 1024):
                pass
        except OSError:
            pass
    async with asyncio.timeout(30):
        while not house.service.store_error:
            house.report_all()
            await asyncio.sleep(0.02)
    assert "full" in house.service.store_error
    assert pool.state.store_error == house.service.store_error
    shown, sent = len(house.ended), pool.totals.tasks_sent
    durable = house.store.tasks(1, limit=1000)
    assert shown == len(durable)
    for _ in range(50):
        house.report_all()
        await asyncio.sleep(0.02)
    assert pool.totals.tasks_sent == sent
    assert house.service.commits.waiting_records < 600
    assert len(house.ended) == shown

    filler.unlink()
    await house.until(lambda: not house.service.store_error)
    async with asyncio.timeout(30):
        while pool.job(1) is not None:
            if any('"who"' in payload for payload in house.wire.sent):
                house.wire.sent.clear()
                house.hello()
            house.report_all()
            await asyncio.sleep(0.02)
    assert sorted(house.ended) == [(1, index) for index in range(600)]
    [job] = house.store.jobs()
    assert (job.state, job.counts.done) == ("done", 600)
    await house.service.close()
    house.store.close()


def test_a_store_that_is_opened_on_a_full_disk_is_opened_later(disk: Path) -> None:
    from kestrelctl.errors import KestrelError

    with (disk / "somebody elses").open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 1024):
                pass
        except OSError:
            pass
    store = SqliteStore(disk / "manager")
    with pytest.raises(KestrelError) as caught:
        store.open()
    assert "space" in (caught.value.cause or "") or "full" in (caught.value.cause or "")
    assert caught.value.exit_status != 14
    (disk / "somebody elses").unlink()
    assert store.open().epoch == 1
    assert store.notes() == []
    store.close()
