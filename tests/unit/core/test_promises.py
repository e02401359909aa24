"""At least once, accepted once, nothing acknowledged is lost."""

from __future__ import annotations

from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import (
    JobRecord,
    Snapshot,
    TaskRecord,
    UnfinishedJob,
    WorkerRecord,
)
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.pacing.backoff import RETURN_SECONDS


def restarted(unfinished: list[int], cursor: int, count: int = 10, **more: object) -> PoolDriver:
    """A manager's second start: job 1 was under way on workers a and b."""
    record = JobRecord(
        job_id=1,
        owner="ada",
        spec=JobSpec(program=Program(argv=("true",)), count=count),
        submitted_at=900.0,
        cursor=cursor,
        counts=Counts(done=cursor - len(unfinished)),
    )
    job = UnfinishedJob(record=record, unfinished=unfinished, counters={})
    workers = [WorkerRecord("a"), WorkerRecord("b")]
    return PoolDriver(
        snapshot=Snapshot(epoch=2, secret=bytes(32), next_job_id=2, jobs=[job], workers=workers)
    )


def final_records(driver: PoolDriver) -> list[tuple[int, TaskState]]:
    return [
        (r.index, r.state)
        for r in driver.records
        if isinstance(r, TaskRecord) and r.state is not TaskState.WAITING
    ]


def test_results_are_acknowledged_only_after_they_are_durable() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit()
    (number, job_id, index) = driver.held("w")[0]
    result = Result(number, job_id, index, Outcome.DONE, driver.now, 0.1)
    effects = driver.pool.handle(ev.Reported(at=driver.now, worker="w", results=[result]))
    first, *rest = effects
    assert isinstance(first, fx.Persist)
    assert [record.result for record in first.records if isinstance(record, TaskRecord)] == [result]
    told = [effect for effect in rest if not isinstance(effect, fx.Persist)]
    assert [type(e) for e in told] == [fx.Acknowledge, fx.TasksEnded, fx.JobEnded, fx.Feed]
    assert all(effect.after_commit for effect in told)


def test_a_worker_that_the_next_manager_would_not_ask_is_sent_nothing() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit(100)
    ad = WorkerAd(assets={"cpus": 4})
    hello = ev.Joined(at=driver.now, worker="b", incarnation="b", ad=ad, holds=[])
    effects = driver.pool.handle(hello)
    assert not [each for each in driver.pool.schedule(driver.now) if isinstance(each, fx.Run)]
    written, fed = [each for each in effects if isinstance(each, fx.Persist | fx.Feed)]
    assert isinstance(written, fx.Persist)
    assert isinstance(fed, fx.Feed)
    assert [r.worker for r in written.records if isinstance(r, WorkerRecord)] == ["b"]
    driver.pool.handle(fed.event)
    [run] = [each for each in driver.pool.schedule(driver.now) if isinstance(each, fx.Run)]
    assert run.worker == "b"


def test_a_repeated_report_is_acknowledged_again_and_counts_once() -> None:
    driver = PoolDriver()
    driver.join("w")
    driver.submit(2)
    attempt = driver.held("w")[0]
    driver.report("w", attempt)
    driver.report("w", attempt)
    assert [ack.numbers for ack in driver.of(fx.Acknowledge)] == [[attempt[0]]]
    assert driver.pool.state.jobs[1].counts.done == 1
    assert driver.pool.state.totals.reports_refused == 1


def test_a_result_of_what_a_worker_was_not_handed_is_refused() -> None:
    driver = PoolDriver()
    driver.join("w@pool/1", "v@pool/1")
    driver.submit(10)
    [of_another] = driver.held("v@pool/1")
    [own] = driver.held("w@pool/1")
    seals = driver.seals("v@pool/1", [of_another]) + driver.seals("w@pool/1", [own])
    for number, index in ((of_another[0], of_another[2]), (own[0] + 1, 0), (1, 7), (1, -1)):
        result = Result(number, 1, index, Outcome.DONE, driver.now, 0.1)
        driver.tell(ev.Reported(at=driver.now, worker="w@pool/1", results=[result], seals=seals))
    assert driver.pool.state.jobs[1].counts.done == 0
    assert driver.pool.totals.attempts_unproven == 4
    assert driver.held("v@pool/1") == [of_another]


def test_what_one_session_was_handed_another_of_its_account_may_report() -> None:
    """After a restart of a worker, what its spool holds is reported by its first session."""
    driver = PoolDriver()
    driver.join("w@pool/2")
    driver.submit()
    [attempt] = driver.held("w@pool/2")
    driver.lose("w@pool/2")
    driver.join("w@pool/1", cpus=0.5)
    seals = driver.seals("w@pool/2", [attempt])
    result = Result(*attempt, Outcome.DONE, driver.now, 0.1)
    driver.tell(ev.Reported(at=driver.now, worker="w@pool/1", results=[result], seals=seals))
    assert driver.ended == [1]


def test_the_late_success_of_a_lost_attempt_counts_and_stops_the_repetition() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    lost = driver.held("a")[0]
    driver.lose("a")
    driver.join("b")
    repeated = driver.held("b")[0]
    driver.report("a", lost)
    assert driver.ended == [job]
    assert [(kill.worker, kill.numbers) for kill in driver.of(fx.Kill)] == [("b", [repeated[0]])]
    driver.report("b", repeated, outcome=Outcome.KILLED)
    assert final_records(driver) == [(0, TaskState.DONE)]


def test_the_late_failure_of_a_lost_attempt_changes_nothing() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    lost = driver.held("a")[0]
    driver.lose("a")
    driver.join("b")
    driver.fail("a", lost)
    assert driver.jobs_at("b") == [job]


def test_a_worker_that_comes_back_still_running_keeps_its_task() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    attempt = driver.held("a")[0]
    driver.lose("a")
    driver.join("a", holds=[attempt])
    assert driver.held("a") == [attempt]
    assert not driver.of(fx.Run)


def test_the_earlier_attempt_wins_over_a_repetition_elsewhere() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    first = driver.held("a")[0]
    driver.lose("a")
    driver.join("b")
    second = driver.held("b")[0]
    driver.join("a", holds=[first])
    assert driver.held("a") == [first]
    assert driver.held("b") == []
    assert [(kill.worker, kill.numbers) for kill in driver.of(fx.Kill)] == [("b", [second[0]])]


def test_a_worker_that_comes_back_with_a_task_that_is_over_is_told_to_kill_it() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    first = driver.held("a")[0]
    driver.lose("a")
    driver.join("b")
    driver.report("b")
    driver.join("a", holds=[first])
    (welcome,) = driver.of(fx.Welcome)
    assert welcome.kill == [first[0]]


def test_what_a_message_lost_on_the_way_is_sent_again_without_blame() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    sent = driver.held("a")[0]
    driver.join("a", holds=[])
    assert driver.held("a") != [sent]
    assert driver.jobs_at("a") == [1]
    assert driver.pool.state.totals.attempts_lost == 0


def test_a_restarted_worker_process_has_lost_what_it_ran() -> None:
    driver = PoolDriver()
    driver.join("a")
    driver.submit()
    driver.join("a", incarnation="two")
    assert driver.jobs_at("a") == [1]
    assert driver.pool.state.totals.attempts_lost == 1


def test_a_restarted_manager_asks_everybody_before_it_repeats_anything() -> None:
    driver = restarted(unfinished=[3, 4], cursor=5)
    assert sorted(ask.worker for ask in driver.of(fx.AskWho)) == ["a", "b"]
    driver.join("a", holds=[(77, 1, 3)])
    assert driver.held("a") == [(77, 1, 3)]
    driver.join("b")
    indexes = [index for _, _, index in driver.held("b")]
    assert indexes == [4], "all have spoken, so what nobody has is repeated, and first"


def test_new_tasks_need_not_wait_for_the_silent() -> None:
    driver = restarted(unfinished=[3, 4], cursor=5)
    driver.join("b")
    assert [index for _, _, index in driver.held("b")] == [5]
    driver.wait(driver.pool.state.config.reconcile_seconds + 1)
    driver.report("b")
    assert [index for _, _, index in driver.held("b")] == [3]


def test_nothing_is_repeated_while_its_worker_may_be_on_its_way_back() -> None:
    driver = restarted(unfinished=[3, 4], cursor=5)
    driver.join("b")
    driver.wait(RETURN_SECONDS - 1.0)
    driver.report("b")
    assert {index for _, _, index in driver.held("b")}.isdisjoint([3, 4])
    driver.join("a", holds=[(77, 1, 3)])
    assert (77, 1, 3) in driver.held("a")


def test_a_result_from_before_the_restart_is_accepted() -> None:
    driver = restarted(unfinished=[3, 4], cursor=5)
    driver.report("a", (77, 1, 3))
    assert final_records(driver) == [(3, TaskState.DONE)]


def test_the_durable_cursor_may_lag_behind() -> None:
    driver = restarted(unfinished=[], cursor=5)
    driver.join("a", holds=[(77, 1, 7)])
    assert driver.held("a") == [(77, 1, 7)]
    driver.join("b")
    driver.finish_all()
    assert driver.ended == [1]
    assert sorted(index for index, _ in final_records(driver)) == [5, 6, 7, 8, 9]


def test_a_worker_cannot_move_a_cursor_to_what_it_was_not_handed() -> None:
    driver = restarted(unfinished=[], cursor=5, count=1_000_000_000)
    seals = driver.seals("a", [(77, 1, 7)])
    hello = ev.Joined(
        at=driver.now,
        worker="a",
        incarnation="one",
        ad=WorkerAd(),
        holds=[(77, 1, 7, -1), (78, 1, 8, -1)],
        seals=seals,
    )
    driver.tell(hello)
    assert driver.of(fx.Welcome)[-1].kill == [78]
    assert [number for number, _, _ in driver.held("a")] == [77]
    far = Result(79, 1, 999_999_999, Outcome.DONE, driver.now, 0.1)
    driver.tell(ev.Reported(at=driver.now, worker="a", results=[far], seals=seals))
    assert driver.pool.state.jobs[1].cursor == 8
    assert final_records(driver) == []


def test_cancelling_kills_what_runs_and_drops_what_waits() -> None:
    driver = PoolDriver()
    driver.join("a", "b")
    job = driver.submit(1000)
    answer = driver.cancel(job)
    assert answer.tasks == 1000
    assert sorted(kill.worker for kill in driver.of(fx.Kill)) == ["a", "b"]
    assert not driver.of(fx.JobEnded), "it ends when what ran is gone"
    for name in "ab":
        driver.report(name, outcome=Outcome.KILLED)
    assert driver.ended == [job]
    assert [state for _, state in final_records(driver)] == [TaskState.CANCELLED] * 2


def test_a_task_that_ended_before_the_kill_arrived_is_done() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit()
    driver.cancel(job)
    driver.report("a")
    assert final_records(driver) == [(0, TaskState.DONE)]


def test_a_retry_of_a_cancelled_job_goes_on_where_it_stopped() -> None:
    driver = PoolDriver()
    driver.join("a")
    job = driver.submit(100)
    driver.report("a")
    driver.cancel(job)
    driver.report("a", outcome=Outcome.KILLED)
    record = [r for r in driver.records if isinstance(r, JobRecord)][-1]
    assert (record.state, record.counts.cancelled, record.counts.done) == ("cancelled", 99, 1)
    driver.tell(
        ev.Retry(
            at=driver.now,
            request="r",
            job_id=job,
            record=record,
            indexes=[(1, "cancelled")],
            rest=True,
        )
    )
    assert driver.answers[-1].tasks == 99
    driver.finish_all()
    record = [r for r in driver.records if isinstance(r, JobRecord)][-1]
    assert (record.state, record.counts.done, record.counts.cancelled) == ("done", 100, 0)
