"""A request for much does not starve under a stream of requests for little."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.refusal import Reason

STARVING = Config(starving_seconds=10.0)
STREAM = "bob"


class Stream:
    """A pool of workers with four processors, and small tasks that never end coming.

    Each second two tasks end at each worker, the oldest ones, if there are three; at one that is
    kept, one. So no worker is ever empty by itself.
    """

    def __init__(self, workers: int = 3, priority: int = 100) -> None:
        self.driver = PoolDriver(STARVING)
        self.names = [f"w{n}" for n in range(workers)]
        self.driver.join(*self.names, cpus=4)
        self.priority = priority
        self.flow()

    def flow(self) -> None:
        """Somebody wants more small tasks than there is room for."""
        waiting = sum(j.waiting for j in self.driver.pool.jobs if j.owner == STREAM)
        if waiting < 50:
            self.driver.submit(100, owner=STREAM, priority=self.priority)

    def second(self) -> None:
        """A second goes by."""
        driver = self.driver
        driver.live(1.0)
        self.flow()
        for name in self.names:
            worker = driver.pool.state.workers[name]
            ends = 1 if worker.kept_for else 2 if worker.running > 2 else 0
            for attempt in driver.held(name)[:ends]:
                driver.report(name, attempt, seconds=2.0)

    def until_served(self, job_id: int, within: int = 60) -> int:
        """After how many seconds a job has got its first task."""
        for second in range(within):
            job = self.driver.pool.job(job_id)
            if job is None or job.served_at:
                return second
            self.second()
        raise AssertionError(f"job {job_id} starves")

    def until_kept(self) -> None:
        """Until a worker is kept."""
        for _ in range(30):
            if self.kept():
                return
            self.second()
        raise AssertionError("no worker is kept")

    def large(self, **spec: object) -> int:
        """A job with one task that needs a whole worker; it comes behind what streams already."""
        return self.driver.submit(1, cpus=4, priority=self.priority, **spec)  # type: ignore[arg-type]

    def kept(self) -> dict[str, int]:
        """Worker -> the job for which it is kept."""
        workers = self.driver.pool.workers.values()
        return {w.jid: w.kept_for.id for w in workers if w.kept_for is not None}


def test_where_all_ask_alike_no_worker_is_kept() -> None:
    driver = PoolDriver(STARVING)
    driver.join("w1", "w2", cpus=4)
    driver.submit(4, cpus=2)
    driver.submit(1, cpus=2)
    driver.live(60.0)
    assert all(worker.kept_for is None for worker in driver.pool.workers.values())
    driver.submit(1, cpus=1)
    driver.live(60.0)
    assert [worker.kept_for.id for worker in driver.pool.workers.values() if worker.kept_for] == [2]


def test_without_a_reservation_a_large_task_would_starve() -> None:
    stream = Stream()
    job_id = stream.large()
    for _ in range(9):
        stream.second()
    job = stream.driver.pool.job(job_id)
    assert job is not None
    assert not job.served_at
    assert stream.kept() == {}


def test_a_large_task_gets_a_worker_of_its_own_after_some_time() -> None:
    stream = Stream()
    job_id = stream.large()
    assert 10 <= stream.until_served(job_id) <= 16
    stream.second()
    assert stream.kept() == {}


def test_meanwhile_the_other_workers_take_what_streams() -> None:
    stream = Stream()
    stream.large()
    stream.until_kept()
    stream.second()
    [kept] = stream.kept()
    others = [stream.driver.worker(name).running for name in stream.names if name != kept]
    assert others == [4, 4]


def test_two_large_tasks_do_not_wait_for_each_other() -> None:
    stream = Stream(workers=1)
    first, second = stream.large(), stream.large()
    stream.until_served(first)
    stream.driver.report("w0", seconds=2.0)
    stream.until_served(second, within=120)


def test_a_kept_worker_that_goes_away_is_replaced() -> None:
    stream = Stream()
    job_id = stream.large()
    stream.until_kept()
    [kept] = stream.kept()
    stream.driver.lose(kept)
    stream.names.remove(kept)
    stream.driver.wait(0.5)
    assert list(stream.kept().values()) == [job_id]
    assert list(stream.kept()) != [kept]
    stream.until_served(job_id)


def test_a_worker_that_is_drained_is_kept_no_more() -> None:
    stream = Stream()
    stream.large()
    stream.until_kept()
    [kept] = stream.kept()
    stream.driver.tell(ev.Drain(at=stream.driver.now, worker=kept, by="root"))
    stream.driver.wait(0.5)
    assert kept not in stream.kept()


def test_a_cancelled_job_gives_its_worker_back_at_once() -> None:
    stream = Stream()
    job_id = stream.large()
    stream.until_kept()
    [kept] = stream.kept()
    stream.second()
    assert stream.driver.worker(kept).running < 4
    stream.driver.cancel(job_id)
    assert stream.kept() == {}
    assert stream.driver.worker(kept).running == 4


def test_a_job_that_got_one_task_shares_with_others_again() -> None:
    stream = Stream()
    job_id = stream.driver.submit(5, cpus=4)
    stream.until_kept()
    stream.until_served(job_id)
    stream.second()
    assert stream.kept() == {}


def test_who_comes_behind_by_priority_does_not_starve_but_wait() -> None:
    stream = Stream(priority=200)
    stream.driver.submit(1, cpus=4, priority=1)
    for _ in range(30):
        stream.second()
        assert stream.kept() == {}


def test_no_worker_is_kept_for_what_none_could_run() -> None:
    stream = Stream()
    stream.driver.submit(1, cpus=64, priority=255)
    job_id = stream.large()
    stream.until_kept()
    assert list(stream.kept().values()) == [job_id]


def test_one_of_four_workers_may_be_kept() -> None:
    stream = Stream(workers=8)
    for _ in range(5):
        stream.large()
    stream.until_kept()
    assert len(stream.kept()) == 2


def test_the_worker_that_has_room_soonest_is_kept() -> None:
    driver = PoolDriver(STARVING)
    driver.join("w1", "w2", cpus=4)
    driver.submit(2, cpus=3)
    driver.live(20.0)
    driver.submit(1, cpus=2)  # waits
    first = driver.held("w2")[0]
    driver.report("w2", first)
    driver.submit(3, cpus=3)  # begins at w2, much later than at w1
    driver.submit(1, cpus=4)
    driver.live(15.0)
    kept = {w.jid for w in driver.pool.workers.values() if w.kept_for is not None}
    assert kept <= {"w2"}
    assert kept


def test_explain_says_for_whom_a_worker_is_kept() -> None:
    stream = Stream()
    job_id = stream.large()
    stream.until_kept()
    stream.second()
    driver, [kept] = stream.driver, stream.kept()
    job = driver.pool.job(job_id)
    assert job is not None
    [mine] = [
        r for r in driver.pool.explain(job, driver.now).job_reasons if r.reason is Reason.RESERVED
    ]
    free = driver.worker(kept).free["cpus"] // 1000
    assert mine.found == f"{kept}, {free} cpu{'s' if free != 1 else ''} free of 4 cpus"
    other = next(j for j in driver.pool.jobs if j.owner == STREAM)
    groups = driver.pool.explain(other, driver.now).groups
    [held_back] = [group for group in groups if group.refusal.reason is Reason.RESERVED]
    assert (held_back.workers, held_back.example) == (1, kept)
    assert held_back.refusal.found == f"for job {job_id}"
    assert driver.pool.census(driver.now).waiting[Reason.RESERVED] == 1


@settings(max_examples=15, deadline=None)
@given(
    workers=st.integers(1, 4),
    large=st.lists(st.integers(2, 4), min_size=1, max_size=3),
    later=st.integers(0, 20),
)
def test_nobody_starves(workers: int, large: list[int], later: int) -> None:
    stream = Stream(workers=workers)
    for _ in range(later):
        stream.second()
    jobs = [stream.driver.submit(1, cpus=cpus) for cpus in large]
    for job_id in jobs:
        stream.until_served(job_id, within=150)


@pytest.mark.parametrize("seconds", [5.0, 30.0])
def test_how_long_is_long_can_be_set(seconds: float) -> None:
    driver = PoolDriver(Config(starving_seconds=seconds))
    driver.join("w1", cpus=4)
    driver.submit(1)
    driver.submit(1, cpus=4)
    driver.live(seconds - 1.0)
    assert driver.worker("w1").kept_for is None
    driver.live(seconds / 5 + 2.0)
    assert driver.worker("w1").kept_for is not None


def kept_for(driver: PoolDriver) -> list[int]:
    """The jobs for which workers are kept."""
    return [w.kept_for.id for w in driver.pool.workers.values() if w.kept_for is not None]


def test_after_a_restart_nobody_has_starved_yet() -> None:
    """Nothing says when a job of before got something last."""
    driver = PoolDriver(STARVING)
    driver.join("w1", cpus=4)
    large = driver.submit(20, cpus=3)
    driver.submit(20, cpus=1)
    for _ in range(3):
        driver.live(8.0)
        driver.report("w1", *driver.held("w1"))
    held = driver.held("w1")
    driver.restart()
    driver.join("w1", cpus=4, holds=held)
    driver.live(STARVING.starving_seconds - 1)
    assert kept_for(driver) == []
    driver.live(2.0)
    assert kept_for(driver) == [large]


def test_while_the_server_is_away_nobody_starves() -> None:
    driver = PoolDriver(STARVING)
    driver.join("w1", cpus=4)
    driver.submit(1, cpus=1)
    large = driver.submit(1, cpus=4)
    held = driver.held("w1")
    driver.tell(ev.Disconnected(at=driver.now))
    driver.wait(60.0)
    driver.tell(ev.Reconnected(at=driver.now))
    driver.join("w1", cpus=4, holds=held)
    driver.live(STARVING.starving_seconds - 1)
    assert kept_for(driver) == []
    driver.live(2.0)
    assert kept_for(driver) == [large]


def test_a_task_that_runs_again_has_waited_since_it_came_back() -> None:
    """Its job had nothing that waited, so nobody let it starve."""
    driver = PoolDriver(STARVING)
    driver.join("w1", cpus=4)
    large = driver.submit(1, cpus=4, max_failures=2)
    driver.live(60.0)
    driver.fail("w1")
    driver.submit(4, cpus=1)
    driver.live(STARVING.starving_seconds - 1)
    assert kept_for(driver) == []
    driver.live(4.0)
    assert kept_for(driver) == [large]


def test_a_copy_that_a_service_gets_has_waited_since_then() -> None:
    driver = PoolDriver(STARVING)
    driver.join("w1", cpus=4)
    service = driver.submit(1, cpus=3, service=True)
    driver.submit(1, cpus=1)
    driver.live(60.0)
    driver.tell(ev.ScaleService(at=driver.now, request="s", job_id=service, copies=2))
    driver.live(STARVING.starving_seconds - 1)
    assert kept_for(driver) == []
    driver.live(2.0)
    assert kept_for(driver) == [service]


def test_who_asked_for_more_memory_before_a_restart_has_waited_since_then() -> None:
    """Its wait counted from the beginning of all time."""
    driver = PoolDriver(STARVING)
    driver.join("w1", memory_bytes=4 << 30)
    driver.submit(1, memory_bytes=1 << 30, retry_memory_bytes=(4 << 30,))
    driver.hold_back()
    driver.fail("w1", reason="memory-limit: killed by the kernel", signal=9)
    driver.restart()
    [job] = driver.pool.jobs
    driver.let_go()
    driver.join("w1", memory_bytes=4 << 30)
    [larger] = job.larger.values()
    assert larger.waits_since == driver.now
    assert driver.jobs_at("w1") == [job.id]


def test_a_task_that_must_not_queue_gets_its_turn_before_those_that_do() -> None:
    """They ask for as much, but what is queued at a worker begins when another ends there."""
    driver = PoolDriver(STARVING)
    driver.join("w1", cpus=1)
    short = driver.submit(50_000, cpus=1, owner=STREAM)
    for _ in range(5):
        for attempt in driver.held("w1")[:1]:
            driver.report("w1", attempt, seconds=0.1)
    assert driver.pool.state.workers["w1"].queued
    late = driver.submit(1, cpus=1, owner="alice")
    for _ in range(30):
        driver.live(1.0)
        for attempt in driver.held("w1")[:1]:
            driver.report("w1", attempt, seconds=0.1)
        job = driver.pool.job(late)
        assert job is not None
        if job.running:
            break
    assert job.running
    assert driver.pool.job(short)


# -- workers that ask for nothing ------------------------------------------------------------------


class Pulled:
    """Two workers that take what they are given, and one that pulls and asks for so much."""

    def __init__(self, wants: int) -> None:
        self.driver = PoolDriver(STARVING)
        self.driver.join("w0", "w1")
        self.driver.join("pulls", wants=wants)
        self.driver.submit(1000, owner=STREAM)
        self.large = self.driver.submit(3, span=3)

    def goes_by(self, seconds: int) -> int:
        """Seconds in which a task a second ends at each worker; returns how many ended."""
        before = self.ended()
        for _ in range(seconds):
            for name in ("w0", "w1", "pulls"):
                if self.driver.worker(name).running:
                    self.driver.report(name, seconds=1.0)
            self.driver.live(1.0)
        return self.ended() - before

    def ended(self) -> int:
        return sum(job.counts.done for job in self.driver.pool.jobs)

    def kept(self) -> set[str]:
        return {w.jid for w in self.driver.pool.workers.values() if w.kept_for is not None}


def test_nobody_is_kept_together_with_one_that_asks_for_nothing() -> None:
    pool = Pulled(wants=0)
    assert pool.goes_by(60) > 100, "the others go on"
    assert not pool.kept()
    pool.driver.tell(ev.Wanted(at=pool.driver.now, worker="pulls", attempts=100))
    pool.goes_by(30)
    assert pool.driver.pool.job(pool.large) is None, "now there are three"


@pytest.mark.parametrize("says_hello", [False, True])
def test_they_are_let_go_if_it_asks_for_nothing_any_more(says_hello: bool) -> None:
    pool = Pulled(wants=1)
    pool.driver.live(STARVING.starving_seconds + 2)  # its task does not end
    assert pool.kept() == {"w0", "w1", "pulls"}
    for name in ("w0", "w1"):
        pool.driver.report(name, seconds=10.0)
    if says_hello:
        pool.driver.join("pulls", wants=0, incarnation="two")
    else:
        pool.driver.report("pulls", seconds=10.0)
    pool.goes_by(4)
    assert pool.kept() == (set() if says_hello else {"w0", "w1", "pulls"}), "it may be on its way"
    assert pool.goes_by(30) > 40, "the others go on"
