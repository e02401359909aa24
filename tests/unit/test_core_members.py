"""Workers join, fall silent, leave, and come back; the manager does so too."""

from __future__ import annotations

import pytest
from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.records import Snapshot, WorkerGone, WorkerRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.spec import OnWorkerLost
from kestrelctl.core.pacing.backoff import LONGEST_SECONDS


def records_of(desk: Desk, worker: str) -> list[object]:
    return [
        record
        for record in desk.records
        if isinstance(record, WorkerRecord | WorkerGone) and record.worker == worker
    ]


def test_a_worker_is_remembered_when_it_joins_for_the_first_time() -> None:
    desk = Desk()
    desk.join("w")
    desk.lose("w")
    desk.join("w")
    assert records_of(desk, "w") == [WorkerRecord("w", ad=desk.worker("w").ad)]


def verdict(desk: Desk, job_id: int) -> tuple[Refusal, bool]:
    """The closest of the workers' reasons against a job, and whether it could ever run."""
    found = desk.pool.explain(desk.pool.state.jobs[job_id], desk.now)
    return found.groups[0].refusal, found.ever


def test_what_it_says_of_itself_is_written_when_it_changes() -> None:
    desk = Desk()
    desk.join("w", version="1")
    desk.join("w", version="2", incarnation="two")
    desk.join("w", version="2", incarnation="three")
    desk.tell(ev.Drain(at=desk.now, worker="w", by="root"))
    first, second = (WorkerAd(version=version) for version in "12")
    assert records_of(desk, "w") == [
        WorkerRecord("w", ad=first),
        WorkerRecord("w", ad=second),
        WorkerRecord("w", draining=True, ad=second),
    ]


def test_what_an_absent_worker_offers_is_known_after_a_restart() -> None:
    desk = Desk()
    desk.join("w", cpus=8, fpga=2, tags=["gpu"], version="1")
    desk.restart()
    for _ in range(2):
        fitting, ever = verdict(desk, desk.submit(cpus=8, fpga=2, requires=("gpu",)))
        assert (fitting.reason, ever) == (Reason.UNHEARD, True)
        large, ever = verdict(desk, desk.submit(fpga=3))
        assert (large.wanted, large.found, ever) == ("3 fpga", "2 fpga", False)
        tagged, ever = verdict(desk, desk.submit(requires=("r",)))
        assert (tagged.reason, tagged.found, ever) == (Reason.MISSING_TAGS, "GPU", False)
        desk.tell(ev.Drain(at=desk.now, worker="w", by="root"))
        desk.restart()


def test_of_one_whose_ad_was_never_kept_nothing_is_said_but_that_it_was_not_heard() -> None:
    desk = Desk(snapshot=Snapshot(epoch=1, next_job_id=1, jobs=[], workers=[WorkerRecord("w")]))
    desk.join("other")
    for _ in range(2):
        job = desk.submit(cpus=64, requires=("gpu",))
        found = desk.pool.explain(desk.pool.state.jobs[job], desk.now)
        assert found.ever
        assert {group.example: group.refusal.reason for group in found.groups} == {
            "w": Reason.UNHEARD,
            "other": Reason.MISSING_TAGS,
        }
        desk.tell(ev.Drain(at=desk.now, worker="w", by="root"))
        desk.restart()
        desk.join("other")
        desk.cancel(job)
    desk.join("w")
    refusal, ever = verdict(desk, desk.submit(cpus=64))
    assert (refusal.reason, refusal.found, ever) == (Reason.TOO_SMALL, "1 cpu", False)


def test_a_welcome_repeats_what_identifies_the_hello() -> None:
    desk = Desk()
    desk.tell(
        ev.Joined(at=desk.now, worker="w", incarnation="xyz", greeting=7, ad=WorkerAd(), holds=[])
    )
    (welcome,) = desk.of(fx.Welcome)
    assert (welcome.incarnation, welcome.greeting) == ("xyz", 7)


def test_a_worker_that_comes_back_larger_gets_more() -> None:
    desk = Desk()
    desk.submit(8)
    desk.join("w")
    assert len(desk.held("w")) == 1
    desk.join("w", cpus=4, incarnation="two")
    assert len(desk.held("w")) == 4


def test_a_worker_that_says_hello_with_another_ad_keeps_what_it_runs() -> None:
    desk = Desk()
    desk.join("w", cpus=2)
    desk.submit(2)
    running = desk.held("w")
    desk.join("w", cpus=2, tags=["new"], holds=running)
    assert desk.held("w") == running
    assert desk.worker("w").free["cpus"] == 0


def test_an_unknown_worker_that_speaks_is_asked_who_it_is() -> None:
    desk = Desk()
    desk.tell(ev.Heard(at=desk.now, worker="stranger"))
    assert [ask.worker for ask in desk.of(fx.AskWho)] == ["stranger"]
    assert "stranger" not in desk.pool.state.workers


def test_a_worker_believed_dead_that_reports_is_asked_once() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    attempt = desk.held("w")[0]
    desk.lose("w")
    asked = 0
    for _ in range(5):
        desk.report("w", attempt)
        asked += len(desk.of(fx.AskWho))
    assert asked == 1, "its hello is on the way"
    desk.tell(ev.Heard(at=desk.now, worker="w"))
    assert desk.of(fx.AskWho), "a sign of life is rare enough to ask again"


# -- revoked workers -------------------------------------------------------------------------------


def test_a_revoked_worker_is_forgotten_and_its_tasks_go_to_others() -> None:
    desk = Desk()
    desk.join("w", "x")
    desk.submit(2)
    ad = desk.worker("w").ad
    desk.tell(ev.Revoked(at=desk.now, worker="w", by="root"))
    assert list(desk.pool.state.workers) == ["x"]
    assert records_of(desk, "w") == [WorkerRecord("w", ad=ad), WorkerGone("w")]
    desk.report("x", desk.held("x")[0])
    assert len(desk.held("x")) == 1, "the other's task"


def test_nothing_waits_for_a_revoked_worker_even_if_it_may_be_waited_for() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(on_worker_lost=OnWorkerLost.WAIT)
    desk.lose("w")
    assert desk.held("w"), "it is away, and the job waits"
    desk.tell(ev.Revoked(at=desk.now, worker="w", by="root"))
    desk.join("x")
    assert len(desk.held("x")) == 1


def test_a_revoked_worker_stays_forgotten_after_a_restart() -> None:
    desk = Desk()
    desk.join("w")
    desk.tell(ev.Revoked(at=desk.now, worker="w", by="root"))
    desk.tell(ev.Lost(at=desk.now, worker="w", cause="unavailable"))
    desk.restart()
    assert desk.pool.state.workers == {}


def test_nobody_waits_for_the_answer_of_a_revoked_worker() -> None:
    desk = Desk()
    desk.join("w", "x")
    desk.submit()
    desk.restart()
    desk.join("x")
    assert not desk.held("x"), "w has yet to say what it runs"
    desk.tell(ev.Revoked(at=desk.now, worker="w", by="root"))
    assert desk.held("x")


def test_a_worker_that_nobody_knows_can_be_revoked() -> None:
    desk = Desk()
    assert desk.tell(ev.Revoked(at=desk.now, worker="stranger", by="root")) == []


# -- leases ----------------------------------------------------------------------------------------


def test_what_a_worker_gives_back_is_a_sign_of_life() -> None:
    desk = Desk()
    desk.join("w")
    for _ in range(30):
        desk.now += 1.0
        desk.tell(ev.Returned(at=desk.now, worker="w", numbers=[]))
        desk.wait(0.0)
    assert desk.worker("w").online


def test_a_manager_that_slept_holds_nobodys_silence_against_him() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    running = desk.held("w")
    desk.wait(600.0)
    assert desk.held("w") == running
    for _ in range(20):
        desk.wait(0.5)
    assert not desk.worker("w").online, "but now it listened, and heard nothing"


def test_workers_have_time_to_find_the_server_again() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    running = desk.held("w")
    desk.tell(ev.Disconnected(at=desk.now))
    desk.tell(ev.Reconnected(at=desk.now))
    for _ in range(int(2 * LONGEST_SECONDS)):
        desk.wait(0.5)
    desk.join("w", holds=running)
    assert desk.held("w") == running
    assert desk.pool.state.totals.leases_expired == 0


def test_a_message_that_bounces_means_that_its_worker_is_gone() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    desk.tell(ev.Bounced(at=desk.now, worker="w"))
    assert not desk.worker("w").online
    assert desk.pool.state.totals.attempts_lost == 1


def test_unless_it_is_only_on_its_way_back_to_the_server() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    running = desk.held("w")
    desk.tell(ev.Reconnected(at=desk.now))
    desk.tell(ev.Bounced(at=desk.now, worker="w"))
    desk.tell(ev.Bounced(at=desk.now, worker="stranger"))
    assert desk.held("w") == running


def test_nothing_is_sent_to_a_worker_that_has_yet_to_say_what_it_holds() -> None:
    desk = Desk()
    desk.join("w")
    desk.tell(ev.Reconnected(at=desk.now))
    desk.submit()
    assert desk.held("w") == []
    desk.join("w")
    assert len(desk.held("w")) == 1


def test_a_worker_that_may_have_come_back_unheard_is_asked_but_not_waited_for() -> None:
    desk = Desk()
    desk.join("away", "here")
    desk.lose("away")
    desk.tell(ev.Disconnected(at=desk.now))
    desk.tell(ev.Reconnected(at=desk.now))
    assert [ask.worker for ask in desk.of(fx.AskWho)] == ["away", "here"]
    assert desk.pool.state.asked == {"here"}


def test_nothing_is_sent_while_the_manager_has_no_connection() -> None:
    desk = Desk()
    desk.join("w")
    desk.tell(ev.Disconnected(at=desk.now))
    desk.submit()
    assert desk.held("w") == []


# -- leaving and forgetting ------------------------------------------------------------------------


def test_a_worker_that_is_about_to_leave_gets_nothing_new_until_it_was_started_again() -> None:
    desk = Desk()
    desk.join("w")
    desk.tell(ev.Leaving(at=desk.now, worker="w"))
    desk.submit(5)
    assert desk.held("w") == []
    desk.join("w")
    assert desk.held("w") == [], "the same process says hello again, for whatever reason"
    desk.join("w", incarnation="two")
    assert len(desk.held("w")) == 1


def test_a_worker_is_forgotten_long_after_it_went_and_not_before() -> None:
    desk = Desk(Config(forget_worker_seconds=100.0))
    desk.join("w")
    desk.live(500.0, step=2.0)
    ad = desk.worker("w").ad
    desk.lose("w")
    desk.wait(60.0)
    assert "w" in desk.pool.state.workers
    desk.wait(60.0)
    assert "w" not in desk.pool.state.workers
    assert records_of(desk, "w") == [WorkerRecord("w", ad=ad), WorkerGone("w")]


@pytest.mark.parametrize("hours", [0.0, 100.0])
def test_a_drain_outlasts_restarts_of_both_sides(hours: float) -> None:
    desk = Desk()
    desk.join("w")
    desk.tell(ev.Drain(at=desk.now, worker="w", by="root"))
    desk.now += hours * 3600
    desk.restart()
    for _ in range(4):
        desk.wait(1.0)
    desk.join("w", cpus=2, incarnation="two")
    desk.submit()
    assert desk.worker("w").draining
    assert desk.held("w") == []
    desk.tell(ev.Resume(at=desk.now, worker="w"))
    assert len(desk.held("w")) == 1


def test_a_quarantine_is_not_prolonged_by_what_was_already_on_the_way() -> None:
    desk = Desk()
    desk.join("w", cpus=8)
    desk.submit(8)
    desk.report("w", *desk.held("w"), outcome=3, reason="no-space")
    assert desk.worker("w").quarantines == 1


# -- when to wake ----------------------------------------------------------------------------------


def test_an_empty_pool_need_not_wake() -> None:
    desk = Desk()
    desk.wait(10.0)
    assert desk.pool.wake_at(desk.now) is None


def test_a_pool_wakes_for_leases_and_retries() -> None:
    desk = Desk(Config(backoff_seconds=0.25))
    desk.join("w")
    assert desk.pool.wake_at(desk.now) == desk.now + 0.5
    desk.submit(max_failures=2)
    desk.fail("w")
    assert desk.pool.wake_at(desk.now) == desk.now + 0.25


def test_a_manager_without_connection_is_not_kept_awake_by_what_it_cannot_end() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    desk.restart()
    desk.tell(ev.Disconnected(at=desk.now))
    desk.wait(100.0)
    wake_at = desk.pool.wake_at(desk.now)
    assert wake_at is None or wake_at > desk.now


# -- recalls, intervals, quarantines --------------------------------------------------------------


def with_supplies(desk: Desk, worker: str) -> list[int]:
    """A worker has all tasks of a job, most of them behind the first; returns their numbers."""
    desk.join(worker)
    desk.submit(6)
    desk.report(worker, seconds=0.001)
    assert not desk.pool.state.demand
    return [number for number, *_ in desk.held(worker)]


def test_a_worker_that_was_asked_to_give_back_is_not_asked_again_before_it_has_answered() -> None:
    desk = Desk()
    with_supplies(desk, "stuck")
    desk.join("idle")
    asked = 0
    for _ in range(5):
        desk.wait(1.0)
        asked += len(desk.of(fx.Recall))
    assert asked == 1


@pytest.mark.parametrize("answer", ["an empty one", "lost"])
def test_whatever_it_answers_it_may_be_asked_again(answer: str) -> None:
    desk = Desk()
    with_supplies(desk, "stuck")
    held = desk.held("stuck")
    desk.join("idle")
    desk.wait(1.0)
    if answer == "lost":
        desk.join("stuck", holds=held)
    else:
        desk.tell(ev.Returned(at=desk.now, worker="stuck", numbers=[]))
    desk.wait(1.0)
    assert len(desk.of(fx.Recall)) == 1


def test_a_worker_that_reports_now_and_then_is_not_stuck() -> None:
    desk = Desk()
    with_supplies(desk, "quick")
    desk.join("idle")
    for _ in range(4):
        desk.now += 0.4
        desk.report("quick", seconds=0.01)
        assert not desk.of(fx.Recall)


def test_what_is_given_back_runs_again_in_its_order() -> None:
    desk = Desk()
    _, *waiting = with_supplies(desk, "leaving")
    desk.tell(ev.Leaving(at=desk.now, worker="leaving"))
    desk.tell(ev.Returned(at=desk.now, worker="leaving", numbers=waiting))
    desk.join("w", cpus=8)
    assert [index for _, _, index in desk.held("w")] == [2, 3, 4, 5]


def test_a_worker_is_told_once_of_its_new_interval() -> None:
    desk = Desk(Config(heartbeats_per_second=1.0, min_heartbeat_seconds=1.0))
    desk.join("w")
    desk.join(*(f"w{n}" for n in range(5)))
    told = []
    for _ in range(3):
        desk.tell(ev.Heard(at=desk.now, worker="w"))
        told += [found.heartbeat_seconds for found in desk.of(fx.SetHeartbeat)]
    assert told == [6.0]


def test_an_admin_can_end_a_quarantine() -> None:
    desk = Desk()
    desk.join("full")
    desk.submit()
    desk.report("full", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    assert desk.held("full") == []
    desk.tell(ev.Resume(at=desk.now, worker="full"))
    assert len(desk.held("full")) == 1


def test_no_more_workers_are_asked_than_idle_ones_can_relieve() -> None:
    desk = Desk()
    with_supplies(desk, "stuck")
    with_supplies(desk, "another")
    desk.join("idle")
    desk.wait(1.0)
    assert len(desk.of(fx.Recall)) == 1
