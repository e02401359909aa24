"""Workers join, fall silent, leave, and come back; the manager does so too."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.records import Snapshot, WorkerGone, WorkerRecord
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.result import Outcome
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pacing.backoff import RETURN_SECONDS


def records_of(driver: PoolDriver, worker: str) -> list[object]:
    return [
        record
        for record in driver.records
        if isinstance(record, WorkerRecord | WorkerGone) and record.worker == worker
    ]


def test_a_worker_is_remembered_when_it_joins_for_the_first_time() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.lose("w")
    driver.join("w")
    assert records_of(driver, "w") == [WorkerRecord("w", ad=driver.worker("w").ad)]


def verdict(driver: PoolDriver, job_id: int) -> tuple[Refusal, bool]:
    """The closest of the workers' reasons against a job, and whether it could ever run."""
    found = driver.pool.explain(driver.pool.state.jobs[job_id], driver.now)
    return found.groups[0].refusal, found.ever


def test_what_it_says_of_itself_is_written_when_it_changes() -> None:
    driver = PoolDriver()
    driver.join("w", version="1")
    driver.join("w", version="2", incarnation="two")
    driver.join("w", version="2", incarnation="three")
    driver.tell(ev.Drain(at=driver.now, worker="w", by="root"))
    first, second = (WorkerAd(version=version) for version in "12")
    assert records_of(driver, "w") == [
        WorkerRecord("w", ad=first),
        WorkerRecord("w", ad=second),
        WorkerRecord("w", draining=True, ad=second),
    ]


def test_the_log_says_who_drained_a_worker_and_had_it_back() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Drain(at=driver.now, worker="w", by="root"))
    assert [note.text for note in driver.of(fx.Note)] == ["worker w was drained by root"]
    driver.tell(ev.Resume(at=driver.now, cause="root/home", worker="w"))
    assert [note.text for note in driver.of(fx.Note)] == ["worker w was resumed by root/home"]


def test_what_an_absent_worker_offers_is_known_after_a_restart() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, fpga=2, tags=["gpu"], version="1")
    driver.restart()
    for _ in range(2):
        fitting, ever = verdict(driver, driver.submit(cpus=8, fpga=2, requires=("gpu",)))
        assert (fitting.reason, ever) == (Reason.UNHEARD, True)
        large, ever = verdict(driver, driver.submit(fpga=3))
        assert (large.wanted, large.found, ever) == ("3 fpga", "2 fpga", False)
        tagged, ever = verdict(driver, driver.submit(requires=("r",)))
        assert (tagged.reason, tagged.found, ever) == (Reason.MISSING_TAGS, "GPU", False)
        driver.tell(ev.Drain(at=driver.now, worker="w", by="root"))
        driver.restart()


def test_of_one_whose_ad_was_never_kept_nothing_is_said_but_that_it_was_not_heard() -> None:
    driver = PoolDriver(
        snapshot=Snapshot(
            epoch=1, secret=bytes(32), next_job_id=1, jobs=[], workers=[WorkerRecord("w")]
        )
    )
    driver.join("other")
    for _ in range(2):
        job = driver.submit(cpus=64, requires=("gpu",))
        found = driver.pool.explain(driver.pool.state.jobs[job], driver.now)
        assert found.ever
        assert {group.example: group.refusal.reason for group in found.groups} == {
            "w": Reason.UNHEARD,
            "other": Reason.MISSING_TAGS,
        }
        driver.tell(ev.Drain(at=driver.now, worker="w", by="root"))
        driver.restart()
        driver.join("other")
        driver.cancel(job)
    driver.join("w")
    refusal, ever = verdict(driver, driver.submit(cpus=64))
    assert (refusal.reason, refusal.found, ever) == (Reason.TOO_SMALL, "1 cpu", False)


def test_a_welcome_repeats_what_identifies_the_hello() -> None:
    driver = PoolDriver()
    driver.tell(
        ev.Joined(at=driver.now, worker="w", incarnation="xyz", greeting=7, ad=WorkerAd(), holds=[])
    )
    (welcome,) = driver.of(fx.Welcome)
    assert (welcome.incarnation, welcome.greeting) == ("xyz", 7)


def test_a_worker_that_comes_back_larger_gets_more() -> None:
    driver = PoolDriver()
    driver.submit(8)
    driver.join("w")
    assert len(driver.held("w")) == 1
    driver.join("w", cpus=4, incarnation="two")
    assert len(driver.held("w")) == 4


def test_a_worker_that_says_hello_with_another_ad_keeps_what_it_runs() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2)
    driver.submit(2)
    running = driver.held("w")
    driver.join("w", cpus=2, tags=["new"], holds=running)
    assert driver.held("w") == running
    assert driver.worker("w").free["cpus"] == 0


def test_an_unknown_worker_that_speaks_is_asked_who_it_is() -> None:
    driver = PoolDriver()
    driver.tell(ev.Heard(at=driver.now, worker="stranger"))
    assert [ask.worker for ask in driver.of(fx.AskWho)] == ["stranger"]
    assert "stranger" not in driver.pool.state.workers


def test_a_worker_believed_dead_that_reports_is_asked_once() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    attempt = driver.held("w")[0]
    driver.lose("w")
    asked = 0
    for _ in range(5):
        driver.report("w", attempt)
        asked += len(driver.of(fx.AskWho))
    assert asked == 1, "its hello is on the way"
    driver.tell(ev.Heard(at=driver.now, worker="w"))
    assert driver.of(fx.AskWho), "a sign of life is rare enough to ask again"


def test_one_that_fell_silent_after_it_was_asked_is_asked_again_when_it_reports() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    [attempt] = driver.held("w")
    driver.tell(ev.Reconnected(at=driver.now))
    assert driver.of(fx.AskWho)
    while driver.worker("w").online:
        driver.wait(1.0)
    driver.report("w", attempt)
    assert driver.of(fx.AskWho)


# -- revoked workers -------------------------------------------------------------------------------


def test_a_revoked_worker_is_forgotten_and_its_tasks_go_to_others() -> None:
    driver = PoolDriver()
    driver.join("w", "x")
    driver.submit(2)
    ad = driver.worker("w").ad
    driver.tell(ev.Revoked(at=driver.now, worker="w", by="root"))
    assert list(driver.pool.state.workers) == ["x"]
    assert records_of(driver, "w") == [WorkerRecord("w", ad=ad), WorkerGone("w")]
    driver.report("x", driver.held("x")[0])
    assert len(driver.held("x")) == 1, "the other's task"


def test_nothing_waits_for_a_revoked_worker_even_if_it_may_be_waited_for() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(on_worker_lost=OnWorkerLost.WAIT)
    driver.lose("w")
    assert driver.held("w"), "it is away, and the job waits"
    driver.tell(ev.Revoked(at=driver.now, worker="w", by="root"))
    driver.join("x")
    assert len(driver.held("x")) == 1


def test_a_revoked_worker_stays_forgotten_after_a_restart() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Revoked(at=driver.now, worker="w", by="root"))
    driver.tell(ev.Lost(at=driver.now, worker="w", cause="unavailable"))
    driver.restart()
    assert driver.pool.state.workers == {}


def test_nobody_waits_for_the_answer_of_a_revoked_worker() -> None:
    driver = PoolDriver()
    driver.join("w", "x")
    driver.submit()
    driver.restart()
    driver.join("x")
    assert not driver.held("x"), "w has yet to say what it runs"
    driver.tell(ev.Revoked(at=driver.now, worker="w", by="root"))
    assert driver.held("x")


def test_a_worker_that_nobody_knows_can_be_revoked() -> None:
    driver = PoolDriver()
    assert driver.tell(ev.Revoked(at=driver.now, worker="stranger", by="root")) == []


# -- leases ----------------------------------------------------------------------------------------


def test_what_a_worker_gives_back_is_a_sign_of_life() -> None:
    driver = PoolDriver()
    driver.join("w")
    for _ in range(30):
        driver.now += 1.0
        driver.tell(ev.Returned(at=driver.now, worker="w", numbers=[]))
        driver.wait(0.0)
    assert driver.worker("w").online


MESSAGES: list[Callable[[float], ev.Event]] = [
    lambda now: ev.Heard(at=now, worker="w"),
    lambda now: ev.Reported(at=now, worker="w", results=[]),
    lambda now: ev.Returned(at=now, worker="w", numbers=[]),
    lambda now: ev.Leaving(at=now, worker="w"),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_every_message_renews_the_lease_of_a_worker(message: Callable[[float], ev.Event]) -> None:
    driver = PoolDriver()
    driver.join("w")
    before = driver.worker("w").lease_until
    driver.now += 1.0
    driver.tell(message(driver.now))
    assert driver.worker("w").lease_until == before + 1.0
    assert driver.of(fx.AskWho) == []


@pytest.mark.parametrize("message", MESSAGES)
def test_no_message_shortens_a_lease(message: Callable[[float], ev.Event]) -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Reconnected(at=driver.now))
    before = driver.worker("w").lease_until
    driver.now += 1.0
    driver.tell(message(driver.now))
    assert driver.worker("w").lease_until == before
    driver.join("w")
    assert driver.worker("w").lease_until == before


@pytest.mark.parametrize("message", MESSAGES)
def test_whatever_an_unknown_worker_says_it_is_asked(message: Callable[[float], ev.Event]) -> None:
    driver = PoolDriver()
    driver.tell(message(driver.now))
    assert [ask.worker for ask in driver.of(fx.AskWho)] == ["w"]


def test_a_manager_that_slept_holds_nobodys_silence_against_him() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    running = driver.held("w")
    driver.wait(600.0)
    assert driver.held("w") == running
    for _ in range(20):
        driver.wait(0.5)
    assert not driver.worker("w").online, "but now it listened, and heard nothing"


def test_workers_have_time_to_find_the_server_again() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    running = driver.held("w")
    driver.tell(ev.Disconnected(at=driver.now))
    driver.tell(ev.Reconnected(at=driver.now))
    for _ in range(int(2 * RETURN_SECONDS)):
        driver.wait(0.5)
    driver.join("w", holds=running)
    assert driver.held("w") == running
    assert driver.pool.state.totals.leases_expired == 0


def test_a_message_that_bounces_means_that_its_worker_is_gone() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.tell(ev.Bounced(at=driver.now, worker="w"))
    assert not driver.worker("w").online
    assert driver.pool.state.totals.attempts_lost == 1


def test_unless_it_is_only_on_its_way_back_to_the_server() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    running = driver.held("w")
    driver.tell(ev.Reconnected(at=driver.now))
    driver.tell(ev.Bounced(at=driver.now, worker="w"))
    driver.tell(ev.Bounced(at=driver.now, worker="stranger"))
    assert driver.held("w") == running


def test_nothing_is_sent_to_a_worker_that_has_yet_to_say_what_it_holds() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Reconnected(at=driver.now))
    driver.submit()
    assert driver.held("w") == []
    driver.join("w")
    assert len(driver.held("w")) == 1


def test_a_worker_that_may_have_come_back_unheard_is_asked_but_not_waited_for() -> None:
    driver = PoolDriver()
    driver.join("away", "here")
    driver.lose("away")
    driver.tell(ev.Disconnected(at=driver.now))
    driver.tell(ev.Reconnected(at=driver.now))
    assert [ask.worker for ask in driver.of(fx.AskWho)] == ["away", "here"]
    assert driver.pool.state.asked == {"here"}


def test_nothing_is_sent_while_the_manager_has_no_connection() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Disconnected(at=driver.now))
    driver.submit()
    assert driver.held("w") == []


# -- leaving and forgetting ------------------------------------------------------------------------


def test_a_worker_that_is_about_to_leave_gets_nothing_new_until_it_was_started_again() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Leaving(at=driver.now, worker="w"))
    driver.submit(5)
    assert driver.held("w") == []
    driver.join("w")
    assert driver.held("w") == [], "the same process says hello again, for whatever reason"
    driver.join("w", incarnation="two")
    assert len(driver.held("w")) == 1


def test_a_worker_is_forgotten_long_after_it_went_and_not_before() -> None:
    driver = PoolDriver(Config(forget_worker_seconds=100.0))
    driver.join("w")
    driver.live(500.0, step=2.0)
    ad = driver.worker("w").ad
    driver.lose("w")
    driver.wait(60.0)
    assert "w" in driver.pool.state.workers
    driver.wait(60.0)
    assert "w" not in driver.pool.state.workers
    assert records_of(driver, "w") == [WorkerRecord("w", ad=ad), WorkerGone("w")]


def test_an_account_that_comes_with_ever_new_sessions_fills_no_list() -> None:
    driver = PoolDriver(Config(most_offline_sessions=2))
    driver.join("drained@w/0", "stays@w/1", "other@w/1")
    driver.tell(ev.Drain(at=driver.now, worker="drained@w/0", by="root"))
    for name in ("drained@w/0", "other@w/1"):
        driver.lose(name)
    for session in range(5):
        driver.join(f"drained@w/{session + 1}")
        driver.lose(f"drained@w/{session + 1}")
        driver.wait(1.0)
    left = set(driver.pool.state.workers)
    assert left == {"drained@w/0", "drained@w/4", "drained@w/5", "stays@w/1", "other@w/1"}
    assert records_of(driver, "drained@w/1")[-1] == WorkerGone("drained@w/1")


@pytest.mark.parametrize("hours", [0.0, 100.0])
def test_a_drain_outlasts_restarts_of_both_sides(hours: float) -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.tell(ev.Drain(at=driver.now, worker="w", by="root"))
    driver.now += hours * 3600
    driver.restart()
    for _ in range(4):
        driver.wait(1.0)
    driver.join("w", cpus=2, incarnation="two")
    driver.submit()
    assert driver.worker("w").draining
    assert driver.held("w") == []
    driver.tell(ev.Resume(at=driver.now, worker="w"))
    assert len(driver.held("w")) == 1


def test_a_quarantine_is_not_prolonged_by_what_was_already_on_the_way() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8)
    driver.submit(8)
    driver.join("another")
    driver.report("w", *driver.held("w"), outcome=3, reason="no-space")
    assert driver.worker("w").quarantines == 1


# -- when to wake ----------------------------------------------------------------------------------


def test_an_empty_pool_need_not_wake() -> None:
    driver = PoolDriver()
    driver.wait(10.0)
    assert driver.pool.wake_at(driver.now) is None


def test_a_pool_wakes_for_leases_and_retries() -> None:
    driver = PoolDriver(Config(backoff_seconds=0.25))
    driver.join("w")
    assert driver.pool.wake_at(driver.now) == driver.now + 0.5
    driver.submit(max_failures=2)
    driver.fail("w")
    assert driver.pool.wake_at(driver.now) == driver.now + 0.25


def test_a_manager_without_connection_is_not_kept_awake_by_what_it_cannot_end() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.restart()
    driver.tell(ev.Disconnected(at=driver.now))
    driver.wait(100.0)
    wake_at = driver.pool.wake_at(driver.now)
    assert wake_at is None or wake_at > driver.now


# -- recalls, intervals, quarantines --------------------------------------------------------------


def with_supplies(driver: PoolDriver, worker: str) -> list[int]:
    """A worker has all tasks of a job, most of them behind the first; returns their numbers."""
    driver.join(worker)
    driver.submit(6, argv=("true", worker))
    driver.report(worker, seconds=0.001)
    assert not driver.pool.state.demand
    return [number for number, *_ in driver.held(worker)]


def test_a_stuck_worker_gives_back_what_another_user_would_wait_behind() -> None:
    driver = PoolDriver()
    with_supplies(driver, "stuck")
    driver.submit(1, owner="bob")
    driver.wait(1.0)
    assert driver.of(fx.Recall)


def test_a_stuck_worker_keeps_what_only_its_own_user_would_wait_behind() -> None:
    driver = PoolDriver()
    with_supplies(driver, "stuck")
    driver.submit(1, owner="ada", cpus=2)
    driver.wait(1.0)
    assert not driver.of(fx.Recall)


def test_a_worker_that_was_asked_to_give_back_is_not_asked_again_before_it_has_answered() -> None:
    driver = PoolDriver()
    with_supplies(driver, "stuck")
    driver.join("idle")
    asked = 0
    for _ in range(5):
        driver.wait(1.0)
        asked += len(driver.of(fx.Recall))
    assert asked == 1


def test_a_worker_that_has_not_answered_leaves_those_that_idle_to_another_that_is_stuck() -> None:
    driver = PoolDriver()
    for name in ("stuck", "other"):
        with_supplies(driver, name)
    driver.join("idle")
    asked = []
    for _ in range(5):
        driver.wait(1.0)
        asked += [recall.worker for recall in driver.of(fx.Recall)]
    assert sorted(asked) == ["other", "stuck"]


@pytest.mark.parametrize("answer", ["an empty one", "lost"])
def test_whatever_it_answers_it_may_be_asked_again(answer: str) -> None:
    driver = PoolDriver()
    with_supplies(driver, "stuck")
    held = driver.held("stuck")
    driver.join("idle")
    driver.wait(1.0)
    if answer == "lost":
        driver.join("stuck", holds=held)
    else:
        driver.tell(ev.Returned(at=driver.now, worker="stuck", numbers=[]))
    driver.wait(1.0)
    assert len(driver.of(fx.Recall)) == 1


def test_a_worker_that_reports_now_and_then_is_not_stuck() -> None:
    driver = PoolDriver()
    with_supplies(driver, "quick")
    driver.join("idle")
    for _ in range(4):
        driver.now += 0.4
        driver.report("quick", seconds=0.01)
        assert not driver.of(fx.Recall)


def test_what_is_given_back_runs_again_in_its_order() -> None:
    driver = PoolDriver()
    _, *waiting = with_supplies(driver, "leaving")
    driver.tell(ev.Leaving(at=driver.now, worker="leaving"))
    driver.tell(ev.Returned(at=driver.now, worker="leaving", numbers=waiting))
    driver.join("w", cpus=8)
    assert [index for _, _, index in driver.held("w")] == [2, 3, 4, 5]


def test_a_worker_is_told_once_of_its_new_interval() -> None:
    driver = PoolDriver(Config(heartbeats_per_second=1.0, min_heartbeat_seconds=1.0))
    driver.join("w")
    driver.join(*(f"w{n}" for n in range(5)))
    told = []
    for _ in range(3):
        driver.tell(ev.Heard(at=driver.now, worker="w"))
        told += [found.heartbeat_seconds for found in driver.of(fx.SetHeartbeat)]
    assert told == [6.0]


def test_a_worker_that_comes_back_with_other_tags_stays_in_quarantine() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    driver.join("another")
    driver.report("w", outcome=Outcome.UNABLE, reason="no space")
    until = driver.worker("w").quarantined_until
    assert until > driver.now
    driver.worker("w").streak = 3
    driver.join("w", incarnation="two", tags=["new"])
    worker = driver.worker("w")
    assert (worker.quarantined_until, worker.quarantines, worker.streak) == (until, 1, 3)


def test_an_admin_can_end_a_quarantine() -> None:
    driver = PoolDriver()
    driver.join("full")
    driver.submit()
    driver.report("full", outcome=Outcome.UNABLE, reason="no-space: no space left on device")
    assert driver.held("full") == []
    driver.tell(ev.Resume(at=driver.now, worker="full"))
    assert len(driver.held("full")) == 1


def test_no_more_workers_are_asked_than_idle_ones_can_relieve() -> None:
    driver = PoolDriver()
    with_supplies(driver, "stuck")
    with_supplies(driver, "another")
    driver.join("idle")
    driver.wait(1.0)
    assert len(driver.of(fx.Recall)) == 1
