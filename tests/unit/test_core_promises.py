"""At least once, accepted once, nothing acknowledged is lost."""

from __future__ import annotations

import pytest
from poolkit import Desk

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.records import (
    JobRecord,
    Snapshot,
    TaskRecord,
    UnfinishedJob,
    WorkerRecord,
)
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.core.model.spec import JobSpec
from kestrelctl.core.model.task_state import Counts, TaskState


def restarted(unfinished: list[int], cursor: int, count: int = 10, **more: object) -> Desk:
    """A manager's second start: job 1 was under way on workers a and b."""
    record = JobRecord(
        job_id=1,
        owner="ada",
        spec=JobSpec(argv=("true",), count=count),
        submitted_at=900.0,
        cursor=cursor,
        counts=Counts(done=cursor - len(unfinished)),
    )
    job = UnfinishedJob(record=record, unfinished=unfinished, counters={})
    workers = [WorkerRecord("a"), WorkerRecord("b")]
    return Desk(snapshot=Snapshot(epoch=2, next_job_id=2, jobs=[job], workers=workers))


def final_records(desk: Desk) -> list[tuple[int, TaskState]]:
    return [
        (r.index, r.state)
        for r in desk.records
        if isinstance(r, TaskRecord) and r.state is not TaskState.WAITING
    ]


def test_results_are_acknowledged_only_after_they_are_durable() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit()
    (number, job_id, index) = desk.held("w")[0]
    result = Result(number, job_id, index, Outcome.DONE, desk.now, 0.1)
    effects = desk.pool.handle(ev.Reported(at=desk.now, worker="w", results=[result]))
    first, *rest = effects
    assert isinstance(first, fx.Persist)
    assert [record.result for record in first.records if isinstance(record, TaskRecord)] == [result]
    told = [effect for effect in rest if not isinstance(effect, fx.Persist)]
    assert [type(e) for e in told] == [fx.Acknowledge, fx.TasksEnded, fx.JobEnded, fx.Feed]
    assert all(effect.after_commit for effect in told)


def test_a_repeated_report_is_acknowledged_again_and_counts_once() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(2)
    attempt = desk.held("w")[0]
    desk.report("w", attempt)
    desk.report("w", attempt)
    assert [ack.numbers for ack in desk.of(fx.Acknowledge)] == [[attempt[0]]]
    assert desk.pool.state.jobs[1].counts.done == 1
    assert desk.pool.state.totals.reports_refused == 1


def test_a_result_that_nobody_could_have_is_refused() -> None:
    desk = Desk()
    desk.join("w")
    desk.submit(10)
    for forged in ((desk.pool.state.next_number + 5, 1, 7), (1, 99, 0), (1, 1, 10), (1, 1, -1)):
        desk.report("w", forged)
    assert desk.pool.state.jobs[1].counts.done == 0


def test_the_late_success_of_a_lost_attempt_counts_and_stops_the_repetition() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    lost = desk.held("a")[0]
    desk.lose("a")
    desk.join("b")
    repeated = desk.held("b")[0]
    desk.report("a", lost)
    assert desk.ended == [job]
    assert [(kill.worker, kill.numbers) for kill in desk.of(fx.Kill)] == [("b", [repeated[0]])]
    desk.report("b", repeated, outcome=Outcome.KILLED)
    assert final_records(desk) == [(0, TaskState.DONE)]


def test_the_late_failure_of_a_lost_attempt_changes_nothing() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    lost = desk.held("a")[0]
    desk.lose("a")
    desk.join("b")
    desk.fail("a", lost)
    assert desk.jobs_at("b") == [job]


def test_a_worker_that_comes_back_still_running_keeps_its_task() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit()
    attempt = desk.held("a")[0]
    desk.lose("a")
    desk.join("a", holds=[attempt])
    assert desk.held("a") == [attempt]
    assert not desk.of(fx.Run)


def test_the_earlier_attempt_wins_over_a_repetition_elsewhere() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit()
    first = desk.held("a")[0]
    desk.lose("a")
    desk.join("b")
    second = desk.held("b")[0]
    desk.join("a", holds=[first])
    assert desk.held("a") == [first]
    assert desk.held("b") == []
    assert [(kill.worker, kill.numbers) for kill in desk.of(fx.Kill)] == [("b", [second[0]])]


def test_a_worker_that_comes_back_with_a_task_that_is_over_is_told_to_kill_it() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit()
    first = desk.held("a")[0]
    desk.lose("a")
    desk.join("b")
    desk.report("b")
    desk.join("a", holds=[first])
    (welcome,) = desk.of(fx.Welcome)
    assert welcome.kill == [first[0]]


def test_what_a_message_lost_on_the_way_is_sent_again_without_blame() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit()
    sent = desk.held("a")[0]
    desk.join("a", holds=[])
    assert desk.held("a") != [sent]
    assert desk.jobs_at("a") == [1]
    assert desk.pool.state.totals.attempts_lost == 0


def test_a_restarted_worker_process_has_lost_what_it_ran() -> None:
    desk = Desk()
    desk.join("a")
    desk.submit()
    desk.join("a", incarnation="two")
    assert desk.jobs_at("a") == [1]
    assert desk.pool.state.totals.attempts_lost == 1


def test_a_restarted_manager_asks_everybody_before_it_repeats_anything() -> None:
    desk = restarted(unfinished=[3, 4], cursor=5)
    assert sorted(ask.worker for ask in desk.of(fx.AskWho)) == ["a", "b"]
    desk.join("a", holds=[(77, 1, 3)])
    assert desk.held("a") == [(77, 1, 3)]
    desk.join("b")
    indexes = [index for _, _, index in desk.held("b")]
    assert indexes == [4], "all have spoken, so what nobody has is repeated, and first"


def test_new_tasks_need_not_wait_for_the_silent() -> None:
    desk = restarted(unfinished=[3, 4], cursor=5)
    desk.join("b")
    assert [index for _, _, index in desk.held("b")] == [5]
    desk.wait(desk.pool.state.config.reconcile_seconds + 1)
    desk.report("b")
    assert [index for _, _, index in desk.held("b")] == [3]


def test_a_result_from_before_the_restart_is_accepted() -> None:
    desk = restarted(unfinished=[3, 4], cursor=5)
    desk.report("a", (77, 1, 3))
    assert final_records(desk) == [(3, TaskState.DONE)]


def test_the_durable_cursor_may_lag_behind() -> None:
    desk = restarted(unfinished=[], cursor=5)
    desk.join("a", holds=[(77, 1, 7)])
    assert desk.held("a") == [(77, 1, 7)]
    desk.join("b")
    desk.finish_all()
    assert desk.ended == [1]
    assert sorted(index for index, _ in final_records(desk)) == [5, 6, 7, 8, 9]


def test_a_worker_cannot_move_a_cursor_as_far_as_it_likes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kestrelctl.core.attempts.adoption.MOST_UNRECORDED", 100)
    desk = restarted(unfinished=[], cursor=5, count=1_000_000_000)
    desk.join("a", holds=[(77, 1, 104), (78, 1, 105)])
    assert desk.of(fx.Welcome)[-1].kill == [78]
    assert [number for number, _, _ in desk.held("a")] == [77]
    desk.join("b")
    desk.report("b", (79, 1, 999_999_999))
    assert desk.pool.state.jobs[1].cursor == 105
    assert final_records(desk) == []


def test_cancelling_kills_what_runs_and_drops_what_waits() -> None:
    desk = Desk()
    desk.join("a", "b")
    job = desk.submit(1000)
    answer = desk.cancel(job)
    assert answer.tasks == 1000
    assert sorted(kill.worker for kill in desk.of(fx.Kill)) == ["a", "b"]
    assert not desk.of(fx.JobEnded), "it ends when what ran is gone"
    for name in "ab":
        desk.report(name, outcome=Outcome.KILLED)
    assert desk.ended == [job]
    assert [state for _, state in final_records(desk)] == [TaskState.CANCELLED] * 2


def test_a_task_that_ended_before_the_kill_arrived_is_done() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit()
    desk.cancel(job)
    desk.report("a")
    assert final_records(desk) == [(0, TaskState.DONE)]


def test_only_the_owner_and_admins_cancel() -> None:
    desk = Desk()
    job = desk.submit(owner="ada")
    assert desk.cancel(job, by="bob").error == "not-allowed"
    assert desk.cancel(job, by="root", admin=True).error is None
    assert desk.cancel(job, by="ada").error == "not-found"


def test_a_retry_of_a_cancelled_job_goes_on_where_it_stopped() -> None:
    desk = Desk()
    desk.join("a")
    job = desk.submit(100)
    desk.report("a")
    desk.cancel(job)
    desk.report("a", outcome=Outcome.KILLED)
    record = [r for r in desk.records if isinstance(r, JobRecord)][-1]
    assert (record.state, record.counts.cancelled, record.counts.done) == ("cancelled", 99, 1)
    desk.tell(
        ev.Retry(
            at=desk.now,
            request="r",
            by="ada",
            admin=False,
            job_id=job,
            record=record,
            indexes=[(1, "cancelled")],
            rest=True,
        )
    )
    assert desk.answers[-1].tasks == 99
    desk.finish_all()
    record = [r for r in desk.records if isinstance(r, JobRecord)][-1]
    assert (record.state, record.counts.done, record.counts.cancelled) == ("done", 100, 0)
