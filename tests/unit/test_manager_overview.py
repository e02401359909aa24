"""The pool at a glance: what is in it, and that many viewers cost as much as one."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
from poolkit import Desk

from kestrelctl.core import events as ev
from kestrelctl.core.model.result import Outcome
from kestrelctl.manager import overview
from kestrelctl.manager.overview import Overviews
from kestrelctl.manager.views import job_view, worker_view
from kestrelctl.protocol import codec
from kestrelctl.protocol.answers import Overview


class Watched:
    """The overviews of a desk's pool."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.service = SimpleNamespace(
            pool=desk.pool, domain="pool.example.org", started_at=990.0, store_error="", store=self
        )
        self.reads = 0
        self._overviews = Overviews(self.service)  # type: ignore[arg-type]

    def jobs(self, **how: object) -> object:
        self.reads += 1
        return self.desk.store().jobs(**how)  # type: ignore[arg-type]

    def look(self, after_seconds: float = 1.0) -> Overview:
        self.desk.now += after_seconds
        return self._overviews.latest(self.desk.now)


def test_a_job_and_a_worker_show_what_is_asked_for_and_what_is_there() -> None:
    desk = Desk()
    desk.join("w", cpus=2, memory_bytes=4 << 30, fpga=2)
    job = desk.pool.state.jobs[desk.submit(1, cpus=0.5, fpga=2)]
    assert job_view(job.record(), job).request == {"cpus": 0.5, "fpga": 2}
    shown = worker_view(desk.worker("w"), desk.now)
    assert shown.assets == {"cpus": 2, "memory": 4 << 30, "fpga": 2}
    assert shown.free == {"cpus": 1.5, "memory": 4 << 30, "fpga": 0}


def test_an_empty_pool() -> None:
    found = Watched(Desk()).look()
    assert (found.pool, found.epoch, found.up_seconds) == ("pool.example.org", 1, 11.0)
    assert (found.workers, found.waiting, found.jobs, found.notable) == ({}, {}, [], [])


def test_what_there_is_and_what_it_does() -> None:
    desk = Desk()
    desk.join("w1@x/a", cpus=2, memory_bytes=4 << 30)
    desk.join("w2@x/a", cpus=1.5)
    desk.submit(10, memory_bytes=1 << 30, name="sweep")
    desk.submit(3, cpus=64)
    desk.report("w1@x/a")
    found = Watched(desk).look()
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
    desk = Desk()
    desk.join("w1")
    desk.submit(2, requires=("GPU",))
    desk.submit(2, requires=("GPU",), priority=200)
    desk.submit(2)
    found = Watched(desk).look()
    assert [job.job_id for job in found.jobs] == [3, 2, 1]
    assert found.jobs_active == 3


def test_ended_jobs_come_newest_first() -> None:
    desk = Desk()
    desk.join("w1")
    for _ in range(3):
        desk.submit(1)
        desk.now += 1
        desk.finish_all()
    found = Watched(desk).look()
    assert [(job.job_id, job.state) for job in found.ended] == [
        (3, "done"), (2, "done"), (1, "done"),
    ]  # fmt: skip
    assert found.jobs == []


def test_workers_that_are_not_well_come_before_the_busiest() -> None:
    desk = Desk()
    desk.join("idle", "gone", "bad", "failing", "drained")
    desk.join("busy", "busier", cpus=4)
    desk.submit(1, requires=("GPU",))
    desk.submit(20, max_failures=20, max_losses=20)
    desk.report("bad", outcome=Outcome.UNABLE, reason="no-space: /")
    desk.tell(ev.Drain(at=desk.now, worker="drained", by="root"))
    for _ in range(overview.FAILING):
        desk.fail("failing")
        desk.wait(60)
        for name in ("idle", "gone", "busy", "busier", "failing"):
            desk.tell(ev.Heard(at=desk.now, worker=name))
    desk.lose("gone")
    found = Watched(desk).look(0.0)
    shown = {line.worker: line for line in found.notable}
    order = list(shown)
    assert shown["gone"].since == desk.now
    assert shown["failing"].failures == overview.FAILING
    assert order.index("failing") < order.index("gone") < order.index("drained")
    assert order.index("drained") < order.index("busier")


def test_however_many_look_the_pool_is_walked_once_a_second() -> None:
    desk = Desk()
    watched = Watched(desk)
    first = watched.look()
    assert all(watched.look(0.05) is first for _ in range(10))
    assert watched.look(0.5) is not first


def test_ended_jobs_are_read_when_there_may_be_others() -> None:
    desk = Desk()
    desk.join("w1")
    watched = Watched(desk)
    for _ in range(5):
        watched.look()
    assert watched.reads == 1
    desk.submit(1)
    desk.finish_all()
    assert watched.look().ended
    assert watched.reads == 2
    watched.look(11.0)
    assert watched.reads == 3, "one may have been forgotten"


def test_a_clock_that_goes_back_stops_nothing() -> None:
    watched = Watched(Desk())
    first = watched.look()
    assert watched.look(-100.0) is not first


def test_a_large_pool_fits_into_a_stanza() -> None:
    desk = Desk()
    desk.pool.check = lambda: None  # type: ignore[method-assign]
    watched = Watched(desk)
    for number in range(overview.MOST_JOBS + 10):
        desk.submit(1, owner="o" * 60, name=f"{number} " + "n" * 300)
    found = watched.look()
    assert len(found.jobs) == overview.MOST_JOBS
    assert found.jobs_active == overview.MOST_JOBS + 10
    assert len(codec.encode(msgspec.structs.replace(found, id="1"))) < codec.MAX_PAYLOAD_BYTES / 2


def test_a_command_is_named_by_its_beginning() -> None:
    desk = Desk()
    desk.submit(1)
    desk.pool.state.jobs[1].spec = msgspec.structs.replace(
        desk.pool.state.jobs[1].spec, argv=("sh", "-c", "x" * 100_000)
    )
    assert Watched(desk).look().jobs[0].name == f"sh -c {'x' * 34}"
