"""Tasks that fail, workers that go away, and what is held against whom."""

from __future__ import annotations

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome


def states(driver: PoolDriver, job_id: int) -> dict[int, TaskState]:
    """The last recorded state of each task."""
    return {
        record.index: record.state
        for record in driver.records
        if isinstance(record, TaskRecord) and record.job_id == job_id
    }


def outcome(driver: PoolDriver, job_id: int) -> str:
    return [r for r in driver.records if isinstance(r, JobRecord) and r.job_id == job_id][-1].state


def test_a_task_fails_for_good_at_its_limit() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit(max_failures=3)
    for attempt in range(3):
        driver.live(10.0)
        assert len(driver.held("w")) == 1, f"attempt {attempt}"
        driver.fail("w")
    assert outcome(driver, job) == "failed"
    assert states(driver, job) == {0: TaskState.FAILED}


def test_each_retry_waits_longer_but_not_for_ever() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(max_failures=20)
    pauses = []
    for _ in range(10):
        driver.fail("w")
        failed_at = driver.now
        while not driver.held("w"):
            driver.live(0.5, step=0.5)
        pauses.append(driver.now - failed_at)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == 60.0


def test_losses_are_counted_apart_and_have_their_own_limit() -> None:
    driver = PoolDriver()
    job = driver.submit(max_failures=1, max_losses=2)
    for _ in range(2):
        driver.join("w")
        driver.lose("w")
    assert outcome(driver, job) == "failed"
    assert states(driver, job) == {0: TaskState.LOST}


def test_a_lost_workers_tasks_are_sent_elsewhere_at_once() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    job = driver.submit()
    (first,) = [name for name in "ab" if driver.held(name)]
    (other,) = set("ab") - {first}
    driver.lose(first)
    assert driver.jobs_at(other) == [job]
    assert [run.worker for run in driver.of(fx.Run)] == [other]


def test_only_what_had_begun_counts_as_lost() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(100)
    driver.report("w", seconds=0.01)
    held = len(driver.held("w"))
    driver.lose("w")
    assert held > 2
    assert driver.pool.state.totals.attempts_lost == 1


def test_a_job_may_wait_for_its_worker() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    job = driver.submit(on_worker_lost=OnWorkerLost.WAIT)
    (first,) = [name for name in "ab" if driver.held(name)]
    attempt = driver.held(first)
    driver.lose(first)
    driver.wait(60.0)
    assert not driver.of(fx.Run)
    driver.join(first, holds=attempt)
    driver.report(first, *attempt)
    assert outcome(driver, job) == "done"
    assert driver.pool.state.totals.attempts_lost == 0


def test_it_does_not_wait_for_ever() -> None:
    driver = PoolDriver(Config(away_seconds=100.0))
    driver.join("a")
    job = driver.submit(on_worker_lost=OnWorkerLost.WAIT)
    driver.lose("a")
    driver.join("b")
    driver.live(50.0)
    assert driver.held("b") == []
    driver.live(60.0)
    assert driver.jobs_at("b") == [job]


def test_nor_longer_because_it_is_said_again_that_the_worker_is_gone() -> None:
    driver = PoolDriver(Config(away_seconds=60.0))
    driver.join("w")
    driver.submit(on_worker_lost=OnWorkerLost.WAIT)
    driver.lose("w")
    for _ in range(61):
        driver.wait(1.0)
        driver.lose("w")
    assert not driver.held("w")


def test_a_machine_that_fails_where_others_succeed_is_quarantined() -> None:
    driver = PoolDriver()
    driver.join("good", "bad")
    driver.submit(200, max_failures=50)
    for _ in range(12):
        driver.report("good", seconds=2.0)
    for _ in range(driver.pool.state.config.quarantine_failures):
        driver.fail("bad", signal=9)
    assert driver.held("bad") == []
    [note] = driver.of(fx.Note)
    assert "quarantine" in note.text
    assert note.text.endswith("last: signal 9")
    driver.report("good")
    assert driver.held("bad") == []
    driver.live(70.0)
    assert driver.held("bad") != [], "after a while it may try again"


def test_a_job_that_fails_everywhere_quarantines_nobody() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    driver.submit(60)
    for _ in range(15):
        driver.fail("a")
        driver.fail("b")
    assert driver.pool.state.totals.workers_quarantined == 0


def test_a_machine_that_cannot_start_tasks_rests_and_the_task_goes_elsewhere() -> None:
    driver = PoolDriver()
    driver.join("full")
    job = driver.submit()
    driver.report("full", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    assert driver.held("full") == []
    driver.join("free")
    assert driver.jobs_at("free") == [job]


def test_a_silent_worker_loses_its_lease() -> None:
    driver = PoolDriver()
    driver.join("w")
    job = driver.submit()
    for _ in range(7):
        driver.wait(1.0)
    assert driver.jobs_at("w") == [job]
    for _ in range(3):
        driver.wait(1.0)
    assert not driver.worker("w").online
    assert driver.pool.state.totals.leases_expired == 1


@pytest.mark.parametrize("workers", [1, 100, 917, 3000])
def test_silence_is_noticed_in_time_and_signs_of_life_stay_a_small_load(workers: int) -> None:
    config = Config()
    beat = config.heartbeat_seconds(workers)
    assert workers / beat <= 100.0
    if workers <= 917:
        assert config.lease_seconds(beat) + 0.5 < 15.0


def test_any_message_is_a_sign_of_life() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(100)
    for _ in range(60):
        driver.now += 1.0
        driver.report("w")
    assert driver.worker("w").online


def test_workers_are_told_when_the_pool_has_grown() -> None:
    driver = PoolDriver(Config(heartbeats_per_second=10.0))
    driver.join("first")
    beat = driver.worker("first").heartbeat_seconds
    driver.join(*(f"w{n}" for n in range(90)))
    driver.tell(ev.Heard(at=driver.now, worker="first"))
    (change,) = driver.of(fx.SetHeartbeat)
    assert change.heartbeat_seconds > 2 * beat
    silent_seconds = driver.worker("first").lease_until - driver.now
    assert silent_seconds > change.heartbeat_seconds, "else its next sign of life comes too late"


def test_nobodys_silence_counts_while_the_manager_itself_is_cut_off() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.tell(ev.Disconnected(at=driver.now))
    driver.wait(600.0)
    assert driver.worker("w").online
    driver.tell(ev.Reconnected(at=driver.now))
    assert [ask.worker for ask in driver.of(fx.AskWho)] == ["w"]


def test_a_drained_worker_finishes_what_runs_and_gets_nothing_new() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(10)
    driver.tell(ev.Drain(at=driver.now, worker="w", by="admin"))
    driver.report("w")
    assert driver.held("w") == []
    driver.lose("w")
    driver.join("w", incarnation="two")
    assert driver.held("w") == [], "a drain outlasts a restart"
    driver.tell(ev.Resume(at=driver.now, worker="w"))
    assert len(driver.held("w")) == 1


def test_a_drain_takes_back_what_waits() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(100)
    driver.report("w", seconds=0.01)
    waiting = [number for number, *_ in driver.held("w")[1:]]
    driver.tell(ev.Drain(at=driver.now, worker="w", by="admin"))
    (wish,) = driver.of(fx.Recall)
    assert wish.numbers == waiting


def test_failures_are_counted_in_a_row() -> None:
    driver = PoolDriver()
    driver.join("good", "unlucky")
    driver.submit(400, max_failures=50)
    limit = driver.pool.state.config.quarantine_failures
    for _ in range(2 * limit):
        driver.report("good", seconds=2.0)
    for ended in ("well", "slowly"):
        for _ in range(limit - 1):
            driver.fail("unlucky")
        if ended == "well":
            driver.report("unlucky", seconds=2.0)
        else:
            driver.fail("unlucky", seconds=60.0)
    driver.fail("unlucky")
    assert driver.pool.state.totals.workers_quarantined == 0


def test_each_quarantine_is_longer_but_not_for_ever() -> None:
    driver = PoolDriver(Config(quarantine_seconds=100.0, max_quarantine_seconds=300.0))
    driver.join("full", "too-small", cpus=2)
    assert quarantines(driver, "full", 4) == [100.0, 200.0, 300.0, 300.0]


def quarantines(driver: PoolDriver, name: str, n: int) -> list[float]:
    """How long a worker is out, each time that it cannot start a task."""
    driver.tell(ev.Drain(at=driver.now, worker="too-small", by="root"))
    pauses = []
    for _ in range(n):
        driver.submit()
        driver.report(name, outcome=Outcome.UNABLE, reason="no-space: no space left on device")
        began = driver.now
        while not driver.held(name):
            driver.live(5.0, step=5.0)
        pauses.append(driver.now - began)
        driver.report(name, *driver.held(name))
    return pauses


def test_good_behaviour_makes_the_next_quarantine_shorter_and_an_admin_forgets_all() -> None:
    driver = PoolDriver(Config(quarantine_seconds=100.0, quarantine_forgiven_seconds=500.0))
    driver.join("full", "too-small", cpus=2)
    assert quarantines(driver, "full", 3) == [100.0, 200.0, 400.0]
    driver.live(1000.0, step=5.0)
    assert quarantines(driver, "full", 2) == [200.0, 400.0]
    driver.tell(ev.Resume(at=driver.now, worker="full"))
    assert quarantines(driver, "full", 1) == [100.0]


def test_a_worker_that_can_start_nothing_rests_for_seconds_if_it_is_the_last() -> None:
    driver = PoolDriver()
    driver.join("full")
    job = driver.submit(max_losses=1)
    for _ in range(3):
        driver.report("full", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
        assert driver.held("full") == []
        driver.live(5.5, step=0.5)
        assert driver.jobs_at("full") == [job], "nothing else could run it"
    assert driver.pool.state.totals.workers_quarantined == 0


@pytest.mark.parametrize(("workers", "most"), [(1, 0), (2, 1), (4, 1), (8, 2)])
def test_never_is_more_than_a_share_of_a_pool_in_quarantine(workers: int, most: int) -> None:
    driver = PoolDriver()
    names = [f"w{n}" for n in range(workers)]
    driver.join(*names)
    driver.submit(workers)
    for name in names:
        driver.report(name, outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    assert driver.pool.state.totals.quarantines["unable"] == most


def test_after_a_quarantine_failures_are_counted_anew() -> None:
    driver = PoolDriver()
    driver.join("good", "bad")
    driver.submit(200, max_failures=50)
    for _ in range(12):
        driver.report("good", seconds=2.0)
    for _ in range(driver.pool.state.config.quarantine_failures):
        driver.fail("bad")
    driver.report("good", *driver.held("good"))
    driver.live(70.0)
    driver.fail("bad")
    assert driver.pool.state.totals.workers_quarantined == 1
