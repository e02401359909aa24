"""Tasks that fail, workers that go away, and what is held against whom."""

from __future__ import annotations

import pytest
from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.spec import OnWorkerLost
from kestrelctl.core.model.task_state import TaskState


def states(desk: Desk, job_id: int) -> dict[int, TaskState]:
    """The last recorded state of each task."""
    return {
        record.index: record.state
        for record in desk.records
        if isinstance(record, TaskRecord) and record.job_id == job_id
    }


def outcome(desk: Desk, job_id: int) -> str:
    return [r for r in desk.records if isinstance(r, JobRecord) and r.job_id == job_id][-1].state


def test_a_task_fails_for_good_at_its_limit() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit(max_failures=3)
    for attempt in range(3):
        desk.live(10.0)
        assert len(desk.held("w")) == 1, f"attempt {attempt}"
        desk.fail("w")
    assert outcome(desk, job) == "failed"
    assert states(desk, job) == {0: TaskState.FAILED}


def test_each_retry_waits_longer_but_not_for_ever() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(max_failures=20)
    pauses = []
    for _ in range(10):
        desk.fail("w")
        failed_at = desk.now
        while not desk.held("w"):
            desk.live(0.5, step=0.5)
        pauses.append(desk.now - failed_at)
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) == 60.0


def test_losses_are_counted_apart_and_have_their_own_limit() -> None:
    desk = Desk()
    job = desk.submit(max_failures=1, max_losses=2)
    for _ in range(2):
        desk.join("w")
        desk.lose("w")
    assert outcome(desk, job) == "failed"
    assert states(desk, job) == {0: TaskState.LOST}


def test_a_lost_workers_tasks_are_sent_elsewhere_at_once() -> None:
    desk = Desk()
    desk.join("a", "b")
    job = desk.submit()
    (first,) = [name for name in "ab" if desk.held(name)]
    (other,) = set("ab") - {first}
    desk.lose(first)
    assert desk.jobs_at(other) == [job]
    assert [run.worker for run in desk.of(fx.Run)] == [other]


def test_only_what_had_begun_counts_as_lost() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(100)
    desk.report("w", seconds=0.01)
    held = len(desk.held("w"))
    desk.lose("w")
    assert held > 2
    assert desk.pool.state.totals.attempts_lost == 1


def test_a_job_may_wait_for_its_worker() -> None:
    desk = Desk()
    desk.join("a", "b")
    job = desk.submit(on_worker_lost=OnWorkerLost.WAIT)
    (first,) = [name for name in "ab" if desk.held(name)]
    attempt = desk.held(first)
    desk.lose(first)
    desk.wait(60.0)
    assert not desk.of(fx.Run)
    desk.join(first, holds=attempt)
    desk.report(first, *attempt)
    assert outcome(desk, job) == "done"
    assert desk.pool.state.totals.attempts_lost == 0


def test_it_does_not_wait_for_ever() -> None:
    desk = Desk(Config(away_seconds=100.0))
    desk.join("a")
    job = desk.submit(on_worker_lost=OnWorkerLost.WAIT)
    desk.lose("a")
    desk.join("b")
    desk.live(50.0)
    assert desk.held("b") == []
    desk.live(60.0)
    assert desk.jobs_at("b") == [job]


def test_a_machine_that_fails_where_others_succeed_is_quarantined() -> None:
    desk = Desk()
    desk.join("good", "bad")
    desk.submit(200, max_failures=50)
    for _ in range(12):
        desk.report("good", seconds=2.0)
    for _ in range(desk.pool.state.config.quarantine_failures):
        desk.fail("bad")
    assert desk.held("bad") == []
    assert any("quarantine" in note.text for note in desk.of(fx.Note))
    desk.report("good")
    assert desk.held("bad") == []
    desk.live(70.0)
    assert desk.held("bad") != [], "after a while it may try again"


def test_a_job_that_fails_everywhere_quarantines_nobody() -> None:
    desk = Desk()
    desk.join("a", "b")
    desk.submit(60)
    for _ in range(15):
        desk.fail("a")
        desk.fail("b")
    assert desk.pool.state.totals.workers_quarantined == 0


def test_a_machine_that_cannot_start_tasks_rests_and_the_task_goes_elsewhere() -> None:
    desk = Desk()
    desk.join("full")
    job = desk.submit()
    desk.report("full", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    assert desk.held("full") == []
    desk.join("free")
    assert desk.jobs_at("free") == [job]


def test_a_silent_worker_loses_its_lease() -> None:
    desk = Desk()
    desk.join("w")
    job = desk.submit()
    for _ in range(7):
        desk.wait(1.0)
    assert desk.jobs_at("w") == [job]
    for _ in range(3):
        desk.wait(1.0)
    assert not desk.worker("w").online
    assert desk.pool.state.totals.leases_expired == 1


@pytest.mark.parametrize("workers", [1, 100, 917, 3000])
def test_silence_is_noticed_in_time_and_signs_of_life_stay_a_small_load(workers: int) -> None:
    config = Config()
    beat = config.heartbeat_seconds(workers)
    assert workers / beat <= 100.0
    if workers <= 917:
        assert config.lease_seconds(beat) + 0.5 < 15.0


def test_any_message_is_a_sign_of_life() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(100)
    for _ in range(60):
        desk.now += 1.0
        desk.report("w")
    assert desk.worker("w").online


def test_workers_are_told_when_the_pool_has_grown() -> None:
    desk = Desk()
    desk.join("first")
    beat = desk.worker("first").heartbeat_seconds
    desk.join(*(f"w{n}" for n in range(900)))
    desk.tell(ev.Heard(at=desk.now, worker="first"))
    (change,) = desk.of(fx.SetHeartbeat)
    assert change.heartbeat_seconds > 2 * beat


def test_nobodys_silence_counts_while_the_manager_itself_is_cut_off() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    desk.tell(ev.Disconnected(at=desk.now))
    desk.wait(600.0)
    assert desk.worker("w").online
    desk.tell(ev.Reconnected(at=desk.now))
    assert [ask.worker for ask in desk.of(fx.AskWho)] == ["w"]


def test_a_drained_worker_finishes_what_runs_and_gets_nothing_new() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(10)
    desk.tell(ev.Drain(at=desk.now, worker="w", by="admin"))
    desk.report("w")
    assert desk.held("w") == []
    desk.lose("w")
    desk.join("w", incarnation="two")
    assert desk.held("w") == [], "a drain outlasts a restart"
    desk.tell(ev.Resume(at=desk.now, worker="w"))
    assert len(desk.held("w")) == 1


def test_a_drain_takes_back_what_waits() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(100)
    desk.report("w", seconds=0.01)
    waiting = [number for number, *_ in desk.held("w")[1:]]
    desk.tell(ev.Drain(at=desk.now, worker="w", by="admin"))
    (wish,) = desk.of(fx.Recall)
    assert wish.numbers == waiting


def test_failures_are_counted_in_a_row() -> None:
    desk = Desk()
    desk.join("good", "unlucky")
    desk.submit(400, max_failures=50)
    limit = desk.pool.state.config.quarantine_failures
    for _ in range(2 * limit):
        desk.report("good", seconds=2.0)
    for ended in ("well", "slowly"):
        for _ in range(limit - 1):
            desk.fail("unlucky")
        if ended == "well":
            desk.report("unlucky", seconds=2.0)
        else:
            desk.fail("unlucky", seconds=60.0)
    desk.fail("unlucky")
    assert desk.pool.state.totals.workers_quarantined == 0


def test_each_quarantine_is_longer_but_not_for_ever() -> None:
    desk = Desk(Config(quarantine_seconds=100.0, max_quarantine_seconds=300.0))
    desk.join("full")
    desk.submit(max_losses=9)
    pauses = []
    for _ in range(4):
        desk.report("full", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
        began = desk.now
        while not desk.held("full"):
            desk.live(10.0, step=10.0)
        pauses.append(desk.now - began)
    assert pauses == [100.0, 200.0, 300.0, 300.0]


def test_after_a_quarantine_failures_are_counted_anew() -> None:
    desk = Desk()
    desk.join("good", "bad")
    desk.submit(200, max_failures=50)
    for _ in range(12):
        desk.report("good", seconds=2.0)
    for _ in range(desk.pool.state.config.quarantine_failures):
        desk.fail("bad")
    desk.report("good", *desk.held("good"))
    desk.live(70.0)
    desk.fail("bad")
    assert desk.pool.state.totals.workers_quarantined == 1
