"""The pool at a glance: what is in it, and that many viewers cost as much as one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flockkit
from managerkit import NOW, PlayedManager
from msgspec.structs import replace
from poolkit import PoolDriver
from storekit import QuickStore

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests import overview
from kestrelctl.manager.requests.overview import Overviews
from kestrelctl.manager.views import job_view, worker_view
from kestrelctl.protocol import codec, directions, workers
from kestrelctl.protocol.answers import Overview, PoolSummary
from kestrelctl.protocol.requests import PoolStatus, SubmitJob

ADA = Caller("ada/1", admin=False, reply=lambda _: None)
ROOT = Caller("root/1", admin=True, reply=lambda _: None)


class Watched:
    """The overviews of a pool driven by hand."""

    def __init__(self, driver: PoolDriver) -> None:
        self.driver = driver
        self.service = SimpleNamespace(
            pool=driver.pool,
            domain="pool.example.org",
            started_at=990.0,
            store_error="",
            store_error_since=None,
            unstored=dict,
            store=self,
            listen=lambda _, listener: self._listeners.append(listener),
        )
        self._listeners: list[Callable[[fx.JobEnded], None]] = []
        self.reads = 0
        self._overviews = Overviews(self.service)  # type: ignore[arg-type]

    def jobs(self, **how: object) -> object:
        self.reads += 1
        return self.driver.store().jobs(**how)  # type: ignore[arg-type]

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        return question(self)

    def look(self, after_seconds: float = 1.0, caller: Caller = ROOT) -> Overview:
        for ended in self.driver.of(fx.JobEnded):
            for listener in self._listeners:
                listener(ended)
        self.driver.now += after_seconds
        ended_lately = asyncio.run(self._overviews.ended_lately(caller, self.driver.now))
        return replace(self._overviews.latest(self.driver.now), ended=ended_lately)


def test_a_job_and_a_worker_show_what_is_asked_for_and_what_is_there() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2, memory_bytes=4 << 30, fpga=2)
    job = driver.pool.state.jobs[driver.submit(1, cpus=0.5, fpga=2)]
    assert job_view(job.record(), job).spec.request == {"cpus": 0.5, "fpga": 2}
    shown = worker_view(driver.worker("w"), driver.now)
    assert shown.assets == {"cpus": 2, "memory": 4 << 30, "fpga": 2}
    assert shown.free == {"cpus": 1.5, "memory": 4 << 30, "fpga": 0}


def test_an_empty_pool() -> None:
    found = Watched(PoolDriver()).look()
    assert (found.pool, found.epoch, found.up_seconds) == ("pool.example.org", 1, 11.0)
    assert (found.workers, found.waiting, found.jobs, found.notable) == ({}, {}, [], [])


def test_what_there_is_and_what_it_does() -> None:
    driver = PoolDriver()
    driver.join("w1@x/a", cpus=2, memory_bytes=4 << 30)
    driver.join("w2@x/a", cpus=1.5)
    driver.submit(10, memory_bytes=1 << 30, name="sweep")
    driver.submit(3, cpus=64)
    driver.report("w1@x/a")
    found = Watched(driver).look()
    assert found.workers == {"busy": 1, "idle": 1}
    assert found.capacity == {"cpus": 3.5, "memory": 4 << 30}
    assert found.free == {"cpus": 1.5, "memory": 2 << 30}
    assert found.waiting == {"busy": 7, "too-small": 3}
    assert (found.running, found.queued) == (2, 0)
    assert (found.totals["tasks_done"], found.totals["tasks_sent"]) == (1, 3)
    sweep, hopeless = found.jobs
    assert (sweep.name, sweep.state, sweep.tasks) == ("sweep", "active", 10)
    assert (sweep.waiting, sweep.running, sweep.done) == (7, 2, 1)
    assert (hopeless.name, hopeless.waiting) == ("true", 3)


def test_jobs_at_work_come_first_then_by_priority_and_age() -> None:
    driver = PoolDriver()
    driver.join("w1")
    driver.submit(2, requires=("GPU",))
    driver.submit(2, requires=("GPU",), priority=200)
    driver.submit(2)
    found = Watched(driver).look()
    assert [job.job_id for job in found.jobs] == [3, 2, 1]
    assert found.jobs_active == 3


def test_of_guests_it_says_which_pool_is_their_home() -> None:
    driver = PoolDriver()
    flockkit.join(driver, "w")
    flockkit.visit(driver)
    watched = Watched(driver)
    assert [job.guest_of for job in watched.look().jobs] == ["home.example"]
    driver.report("w")
    assert [job.guest_of for job in watched.look().ended] == ["home.example"]


def test_ended_jobs_come_newest_first() -> None:
    driver = PoolDriver()
    driver.join("w1")
    for _ in range(3):
        driver.submit(1)
        driver.now += 1
        driver.finish_all()
    found = Watched(driver).look()
    assert [(job.job_id, job.state) for job in found.ended] == [
        (3, "done"), (2, "done"), (1, "done"),
    ]  # fmt: skip
    assert found.jobs == []


def test_workers_that_are_not_well_come_before_the_busiest() -> None:
    driver = PoolDriver()
    driver.join("idle", "gone", "bad", "failing", "drained")
    driver.join("busy", "busier", cpus=4)
    driver.submit(1, requires=("GPU",))
    driver.submit(20, max_failures=20, max_losses=20)
    driver.report("bad", outcome=Outcome.UNABLE, reason="no-space: /")
    driver.tell(ev.Drain(at=driver.now, worker="drained", by="root"))
    for _ in range(overview.FAILING):
        driver.fail("failing")
        driver.wait(60)
        for name in ("idle", "gone", "busy", "busier", "failing"):
            driver.tell(ev.Heard(at=driver.now, worker=name))
    driver.lose("gone")
    found = Watched(driver).look(0.0)
    shown = {line.worker: line for line in found.notable}
    order = list(shown)
    assert shown["gone"].since == driver.now
    assert shown["failing"].failures == overview.FAILING
    assert order.index("failing") < order.index("gone") < order.index("drained")
    assert order.index("drained") < order.index("busier")


def test_however_many_look_the_pool_is_walked_once_a_second() -> None:
    driver = PoolDriver()
    watched = Watched(driver)
    first = watched.look()
    assert all(watched.look(0.05).jobs is first.jobs for _ in range(10))
    assert watched.look(0.5).jobs is not first.jobs


def test_ended_jobs_are_read_when_there_may_be_others() -> None:
    driver = PoolDriver()
    driver.join("w1")
    watched = Watched(driver)
    for _ in range(5):
        watched.look()
    assert watched.reads == 1
    driver.submit(1)
    driver.finish_all()
    assert watched.look().ended
    assert watched.reads == 2
    watched.look(11.0)
    assert watched.reads == 3, "one may have been forgotten"


def test_ended_jobs_of_others_neither_fill_a_view_nor_have_it_read_again() -> None:
    driver = PoolDriver()
    driver.join("w1")
    watched = Watched(driver)
    driver.submit(1)
    driver.finish_all()
    assert [job.owner for job in watched.look(caller=ADA).ended] == ["ada"]
    for _ in range(3):
        driver.submit(1, owner="bob")
        driver.finish_all()
        watched.look(0.1, ADA)
    assert watched.reads == 1
    for _ in range(overview.MOST_ENDED):
        driver.submit(1, owner="bob")
        driver.finish_all()
    assert [job.owner for job in watched.look(11.0, ADA).ended] == ["ada"]
    assert [job.owner for job in watched.look().ended] == ["bob"] * overview.MOST_ENDED
    driver.submit(1)
    driver.finish_all()
    assert len(watched.look(0.1, ADA).ended) == 2


def test_a_clock_that_goes_back_stops_nothing() -> None:
    watched = Watched(PoolDriver())
    first = watched.look()
    assert watched.look(-100.0).jobs is not first.jobs


def test_a_large_pool_fits_into_a_stanza() -> None:
    driver = PoolDriver()
    driver.pool.check = lambda: None  # type: ignore[method-assign]
    watched = Watched(driver)
    for number in range(overview.MOST_JOBS + 10):
        driver.submit(1, owner="o" * 60, name=f"{number} " + "n" * 300)
    found = watched.look()
    assert len(found.jobs) == overview.MOST_JOBS
    assert found.jobs_active == overview.MOST_JOBS + 10
    assert len(codec.encode(replace(found, id="1"))) < codec.MAX_PAYLOAD_BYTES / 2


def test_a_command_is_named_by_its_beginning() -> None:
    driver = PoolDriver()
    driver.submit(1)
    driver.pool.state.jobs[1].spec = replace(
        driver.pool.state.jobs[1].spec,
        program=replace(driver.pool.state.jobs[1].spec.program, argv=("sh", "-c", "x" * 100_000)),
    )
    assert Watched(driver).look().jobs[0].name == f"sh -c {'x' * 34}"


async def test_what_waits_at_a_worker_is_not_said_to_run(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    ada, worker = "ada@users.pool/1", "w1@workers.pool/1"
    manager = PlayedManager(tmp_path, store=quick_store)
    await manager.work(
        worker, workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=WorkerAd())
    )
    await manager.ask(ada, SubmitJob(spec=JobSpec(program=Program(argv=("true",)), count=10)))
    runs = [directions.to_worker.decode(text) for to, text in manager.sent if to == worker]
    [first] = [message.spans[0][0] for message in runs if isinstance(message, workers.Run)]
    done = Result(first, 1, 0, Outcome.DONE, NOW - 1.0, 0.01)
    await manager.work(worker, workers.Report(results=[done]))
    assert len(manager.service.pool.workers[worker].held) > 1
    await manager.ask(ada, PoolStatus(id="now"))
    [said] = [answer for answer in manager.told(ada) if isinstance(answer, PoolSummary)]
    assert (said.tasks_running, said.tasks_waiting) == (1, 8)


async def test_the_summary_says_that_nothing_can_be_stored_and_since_when(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    ada = "ada@users.pool/1"
    manager = PlayedManager(tmp_path, store=quick_store)
    quick_store.full = True
    await manager.ask(ada, SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))
    manager.now += 60.0
    await manager.ask(ada, PoolStatus(id="now"))
    [said] = [answer for answer in manager.told(ada) if isinstance(answer, PoolSummary)]
    assert (said.store_error, said.store_error_since) == ("the store was told to be full", NOW)


async def test_the_summary_says_who_is_in_quarantine_and_why(
    tmp_path: Path, quick_store: QuickStore
) -> None:
    ada, worker = "ada@users.pool/1", "w1@workers.pool/1"
    manager = PlayedManager(tmp_path, store=quick_store)
    await manager.work(
        worker, workers.Hello(version=workers.VERSION, incarnation="one", greeting=1, ad=WorkerAd())
    )
    known = manager.service.pool.workers[worker]
    known.quarantined_until, known.quarantined_for = NOW + 60.0, "lost 5 times"
    await manager.ask(ada, PoolStatus(id="now"))
    [said] = [answer for answer in manager.told(ada) if isinstance(answer, PoolSummary)]
    [found] = said.quarantined
    assert (found.worker, found.until, found.why) == (worker, NOW + 60.0, "lost 5 times")
