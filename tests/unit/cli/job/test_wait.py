"""Waiting for jobs to end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import msgspec
import pytest
from cli_fake_pool import ENDED_JOB, EXPLANATION, FAILED_JOB, JOB, RUNNABLE, FakePool, job_with, run

from kestrelctl.cli.job import wait
from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import (
    Busy,
    KestrelError,
    NotAllowed,
    NotFound,
    TasksFailed,
    TimedOut,
    Unreachable,
    UsageError,
)
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(wait, "PROGRESS_INTERVAL_SECONDS", 0.001)


def watched(*answers: list[an.JobView] | KestrelError) -> FakePool:
    """A pool that answers one after the other to `watch`, the last one for ever."""
    left = list(answers)

    def answer(_request: rq.Watch) -> an.Jobs:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, KestrelError):
            raise found
        return an.Jobs(id="", jobs=found)

    return FakePool(Watch=answer)


def job(job_id: int, state: str) -> an.JobView:
    return msgspec.structs.replace(JOB, job_id=job_id, state=state)


async def states_of(pool: FakePool, jobs: str) -> dict[int, str]:
    views = await wait.until_ended(pool, jobs, Screen(quiet=True))
    return {view.job_id: view.state for view in views}


async def test_a_job_that_has_ended_is_not_waited_for() -> None:
    assert await states_of(watched([job(7, "failed")]), "last") == {7: "failed"}


async def test_the_end_is_pushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "INTERVAL_SECONDS", 3600.0)
    pool = watched([job(7, "active")])
    pool.ends = [job(7, "done")]
    assert await states_of(pool, "7") == {7: "done"}
    assert pool.count(rq.Watch) == 1


async def test_a_push_that_was_lost_is_made_up_for_by_asking_again() -> None:
    pool = watched([job(7, "active")], [job(7, "active")], [job(7, "cancelling")], [job(7, "done")])
    assert await states_of(pool, "7") == {7: "done"}
    assert pool.count(rq.Watch) == 4


async def test_several_jobs_are_waited_for_each() -> None:
    pool = watched([job(3, "active"), job(5, "done"), job(6, "active")], [job(6, "active")])
    pool.ends = [job(3, "failed"), job(6, "done")]
    assert await states_of(pool, "3-6") == {3: "failed", 5: "done", 6: "done"}


async def test_what_a_selection_means_is_settled_at_the_start() -> None:
    pool = watched([job(3, "active"), job(5, "done")], [job(3, "done")])
    await states_of(pool, "all")
    assert pool.last(rq.Watch).jobs == "3"


async def test_other_peoples_ends_do_not_matter() -> None:
    pool = watched([job(7, "active")], [job(7, "done")])
    pool.ends = [job(8, "failed")]
    assert await states_of(pool, "7") == {7: "done"}


async def test_a_late_answer_does_not_undo_an_end() -> None:
    views = {7: job(7, "done")}
    wait._update(views, [job(7, "active"), job(8, "active")])
    assert views == {7: job(7, "done"), 8: job(8, "active")}


async def test_no_jobs_have_ended_at_once() -> None:
    assert await states_of(watched([]), "all") == {}


async def test_a_refused_selection_is_an_error() -> None:
    with pytest.raises(NotFound):
        await states_of(watched(NotFound("there is no job 9")), "9")


async def test_a_manager_that_is_restarted_is_waited_for() -> None:
    away = [TimedOut("no answer"), Unreachable("gone"), Unreachable("gone")]
    pool = watched([job(7, "active")], *away, [job(7, "done")])
    assert await states_of(pool, "7") == {7: "done"}


async def test_an_account_with_too_much_under_way_is_waited_for() -> None:
    pool = watched([job(7, "active")], Busy("too many requests wait"), [job(7, "done")])
    assert await states_of(pool, "7") == {7: "done"}


async def test_a_pool_that_stays_away_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "PATIENCE_SECONDS", 0.0)
    pool = watched([job(7, "active")], Unreachable("gone"))
    with pytest.raises(Unreachable, match="gone"):
        await states_of(pool, "7")


async def test_whoever_stops_waiting_hears_that_the_job_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = asyncio.Event()

    def answer(_request: rq.Watch) -> an.Jobs:
        asked.set()
        return an.Jobs(id="", jobs=[JOB])

    waiting = asyncio.create_task(wait.until_ended(FakePool(Watch=answer), "7", Screen()))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert capsys.readouterr().err == (
        "the pool goes on with it; to stop it: kestrelctl job cancel 7\n"
    )


async def test_whoever_stops_waiting_is_told_to_cancel_what_he_waited_for_and_no_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of `all`, those that came later are not meant, and `last` is another one by then."""
    asked = asyncio.Event()

    def answer(request: rq.Watch) -> an.Jobs:
        if request.jobs != "all":
            asked.set()
        states = {3: "active", 4: "cancelling", 5: "done", 9: "active"}
        return an.Jobs(id="", jobs=[job(*each) for each in states.items()])

    waiting = asyncio.create_task(wait.until_ended(FakePool(Watch=answer), "all", Screen()))
    await asked.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert capsys.readouterr().err.endswith("kestrelctl job cancel 3-4,9\n")


@pytest.mark.parametrize("turns", range(5))
async def test_whoever_stops_waiting_just_as_an_end_is_told_has_stopped(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """In whichever turn of the loop, from the end that is told to the one who waits."""
    monkeypatch.setattr(wait, "INTERVAL_SECONDS", 60.0)
    told: asyncio.Queue[an.JobView] = asyncio.Queue()

    class Telling(FakePool):
        async def pushed(self) -> AsyncIterator[an.Ended]:
            while True:
                yield an.Ended(id="", job=await told.get())

    pool = Telling(Watch=an.Jobs(id="", jobs=[JOB]))
    waiting = asyncio.create_task(wait.until_ended(pool, "7", Screen(quiet=True)))
    for _ in range(5):
        await asyncio.sleep(0)
    told.put_nowait(job(8, "done"))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(5.0):
            await waiting


async def test_that_no_worker_could_ever_run_it_is_said_at_once_and_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wait, "LOOK_SECONDS", 0.0)
    stuck = msgspec.structs.replace(JOB, running=0)
    pool = watched(*[[stuck]] * 4, [job(7, "done")])
    pool.answers["ExplainJob"] = EXPLANATION
    await wait.until_ended(pool, "7", Screen())
    assert pool.count(rq.ExplainJob) > 1
    assert capsys.readouterr().err == (
        "warning: job 7 waits: no worker could ever run it; the closest is w1, which has 8 cpus "
        "where 64 cpus are wanted\n"
        "hint: add such a worker, or: kestrelctl job cancel 7; waiting goes on, as such a worker "
        "may join\n"
    )


async def test_a_job_that_loses_the_last_worker_for_it_is_told_of_later(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wait, "LOOK_SECONDS", 0.0)
    stuck = msgspec.structs.replace(JOB, running=0)
    pool = watched(*[[stuck]] * 4, [job(7, "done")])
    answers = [RUNNABLE, RUNNABLE, EXPLANATION]
    pool.answers["ExplainJob"] = lambda _: answers.pop(0) if len(answers) > 1 else answers[0]
    await wait.until_ended(pool, "7", Screen())
    assert capsys.readouterr().err.count("no worker could ever run it") == 1


@pytest.mark.parametrize(
    "view",
    [
        JOB,
        job_with(msgspec.structs.replace(JOB, running=0), {"argv": ()}),
        msgspec.structs.replace(JOB, running=0, hold=Hold("bob", 0.0, "")),
    ],
    ids=["runs", "anothers", "held"],
)
async def test_nobody_asks_why_of_a_job_that_runs_is_held_or_is_anothers(
    view: an.JobView,
) -> None:
    pool = watched([view], [job(7, "done")])
    await wait.until_ended(pool, "7", Screen())
    assert pool.count(rq.ExplainJob) == 0


async def test_nobody_is_told_to_release_a_job_of_somebody_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    theirs = job_with(msgspec.structs.replace(JOB, hold=Hold("bob", 0.0, "")), {"argv": ()})
    await wait.until_ended(watched([theirs], [job(7, "done")]), "7", Screen())
    assert capsys.readouterr().err == ("warning: job 7 is on hold by bob\nhint: waiting goes on\n")


async def test_a_quiet_user_waits_without_a_word() -> None:
    pool = watched([msgspec.structs.replace(JOB, running=0)], [job(7, "done")])
    await wait.until_ended(pool, "7", Screen(quiet=True))
    assert pool.count(rq.ExplainJob) == 0


async def test_all_done_passes() -> None:
    pool = FakePool()
    await wait.check(pool, [ENDED_JOB])
    assert not pool.asked


async def test_failures_are_counted_and_explained() -> None:
    tasks = [
        an.TaskView(index=0, task_id=1, state=TaskState.FAILED, exit_code=1, worker="w1@x/a"),
        an.TaskView(index=1, task_id=2, state=TaskState.FAILED, signal=9),
        an.TaskView(index=2, task_id=3, state=TaskState.LOST, reason="time-limit"),
        an.TaskView(index=3, task_id=4, state=TaskState.CANCELLED),
    ]
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=tasks))
    with pytest.raises(TasksFailed) as caught:
        await wait.check(pool, [FAILED_JOB])
    assert caught.value.message == "job 7: 2 of 1,000 tasks not done (1 failed, 1 lost)"
    assert caught.value.cause == "task 1 on w1: exit code 1; task 2: signal 9; task 3: time-limit"
    assert caught.value.hint == "kestrelctl job tasks 7 --state failed"


async def test_the_hint_names_a_state_that_there_is() -> None:
    cancelled = msgspec.structs.replace(JOB, state="cancelled", cancelled=999, waiting=0)
    with pytest.raises(TasksFailed) as caught:
        await wait.check(FakePool(), [cancelled])
    assert caught.value.hint == "kestrelctl job tasks 7 --state cancelled"


async def test_other_jobs_that_failed_are_mentioned() -> None:
    views = [ENDED_JOB, FAILED_JOB, job(8, "failed"), job(9, "failed")]
    with pytest.raises(TasksFailed, match=r"job 7: .*; 2 other jobs not done either"):
        await wait.check(FakePool(), views)


def test_job_wait_prints_the_jobs_and_ends_with_what_came_of_them() -> None:
    result = run(watched([FAILED_JOB, job(8, "done")]), "job", "wait", "7-8", "-o", "jsonl")
    assert [json.loads(line)["state"] for line in result.stdout.splitlines()] == ["failed", "done"]
    assert result.exit_code == 3


def test_job_wait_gives_up_after_the_given_time() -> None:
    result = run(watched([JOB]), "job", "wait", "7", "--timeout", "0.01")
    assert result.exit_code == 6
    assert "error: the jobs have not ended in the given time\n" in result.stderr


async def test_the_end_of_anothers_job_is_told_without_reasons() -> None:
    pool = FakePool(ListTasks=NotAllowed("job 7 belongs to bob"))
    with pytest.raises(TasksFailed) as caught:
        await wait.check(pool, [FAILED_JOB])
    assert caught.value.cause is None


async def test_that_tasks_failed_is_told_though_nobody_says_why() -> None:
    with pytest.raises(TasksFailed, match="2 of 1,000 tasks not done"):
        await wait.check(FakePool(ListTasks=Unreachable("the server is away")), [FAILED_JOB])


async def test_a_service_is_not_waited_for() -> None:
    service = job_with(job(7, "active"), service=True)
    with pytest.raises(UsageError, match="job 7 is a service"):
        await states_of(watched([service]), "7")
    both = [service, job(8, "done")]
    assert await states_of(watched(both), "7-8") == {8: "done"}


async def test_a_service_with_a_deadline_is_waited_for() -> None:
    until = job_with(job(7, "active"), service=True, deadline_at=5.0)
    ended = msgspec.structs.replace(until, state="cancelled", stopped_by="deadline")
    assert await states_of(watched([until], [ended]), "7") == {7: "cancelled"}


async def test_that_a_job_is_on_hold_is_said_once_and_waiting_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hold = Hold("bob@example.org", 5.0, "disk full")
    held = msgspec.structs.replace(job(7, "active"), hold=hold)
    pool = watched([held], [held], [job(7, "active")], [job(7, "done")])
    [view] = await wait.until_ended(pool, "7", Screen(color=False))
    assert view.state == "done"
    assert capsys.readouterr().err == (
        "warning: job 7 is on hold by bob@example.org: disk full\n"
        "hint: kestrelctl job release 7; waiting goes on\n"
    )


async def test_that_a_deadline_stopped_a_job_is_said() -> None:
    view = msgspec.structs.replace(job(7, "cancelled"), stopped_by="deadline")
    with pytest.raises(TasksFailed, match="; stopped by its deadline"):
        await wait.check(FakePool(), [view])  # type: ignore[arg-type]


async def test_how_many_failed_tasks_stopped_a_job_is_said() -> None:
    view = msgspec.structs.replace(
        job(7, "failed"), stopped_by="failed tasks", done=0, failed=2, lost=1
    )
    with pytest.raises(TasksFailed, match="; stopped after 3 failed tasks"):
        await wait.check(FakePool(), [view])  # type: ignore[arg-type]


# -- any one ---------------------------------------------------------------------------------------


def ended_at(seconds: float, view: an.JobView) -> an.JobView:
    return msgspec.structs.replace(view, ended_at=seconds)


def test_the_first_that_ends_is_enough() -> None:
    both = [job(3, "active"), job(5, "active")]
    pool = watched(both, [ended_at(9.0, job(5, "failed"))], [ended_at(9.0, job(3, "done"))])
    result = run(pool, "job", "wait", "--any", "3,5", "-o", "quiet")
    assert (result.exit_code, result.stdout) == (3, "5\n")


def test_of_several_that_have_ended_the_first_counts() -> None:
    views = [ended_at(9.0, job(3, "failed")), ended_at(8.0, job(5, "done")), job(6, "active")]
    result = run(watched(views), "job", "wait", "--any", "3-6", "-o", "quiet")
    assert (result.exit_code, result.stdout) == (0, "5\n")


def test_where_there_is_none_there_is_no_first() -> None:
    result = run(watched([]), "job", "wait", "--any", "all")
    assert result.exit_code == NotFound.exit_status
    assert "there is no job to wait for" in result.stderr


# -- a command at the end --------------------------------------------------------------------------

SAY = "echo $KESTREL_JOB $KESTREL_OUTCOME $KESTREL_DONE $KESTREL_FAILED $KESTREL_TASKS"


def test_a_command_is_run_when_a_job_has_ended(capfd: pytest.CaptureFixture[str]) -> None:
    result = run(watched([FAILED_JOB]), "job", "wait", "7", "-o", "quiet", "--on-end", SAY)
    assert (result.exit_code, result.stdout) == (3, "7\n")
    assert capfd.readouterr() == ("", "7 failed 998 1 1000\n")


def test_it_is_run_for_each_job_as_it_ends(capfd: pytest.CaptureFixture[str]) -> None:
    pool = watched([job(3, "active"), job(5, "done")], [job(3, "active")], [job(3, "failed")])
    run(pool, "job", "wait", "3,5", "--on-end", "echo $KESTREL_JOB $KESTREL_OUTCOME")
    assert capfd.readouterr().err == "5 done\n3 failed\n"


def test_of_any_one_it_is_run_for_that(capfd: pytest.CaptureFixture[str]) -> None:
    views = [ended_at(9.0, job(3, "done")), ended_at(8.0, job(5, "done"))]
    run(watched(views), "job", "wait", "--any", "3,5", "--on-end", "echo $KESTREL_JOB")
    assert capfd.readouterr().err == "5\n"


def test_who_ran_out_of_time_has_it_run_for_what_had_ended(
    capfd: pytest.CaptureFixture[str],
) -> None:
    pool = watched([job(3, "active"), job(5, "done")], [job(3, "active")])
    words = ("--timeout", "0.05", "--on-end", "echo $KESTREL_JOB")
    result = run(pool, "job", "wait", "3,5", *words)
    assert result.exit_code == TimedOut.exit_status
    assert capfd.readouterr().err == "5\n"


@pytest.mark.parametrize(
    ("command", "why"),
    [("exit 4", "exit code 4"), ("kill -9 $$", "signal 9")],
    ids=["code", "kill"],
)
def test_its_failure_is_told_and_changes_nothing_else(command: str, why: str) -> None:
    result = run(watched([ENDED_JOB]), "job", "wait", "7", "--on-end", command)
    assert result.exit_code == 0
    assert f"warning: the command of --on-end for job 7 failed: {why}" in result.stderr


def test_a_command_that_cannot_be_started_is_told_of() -> None:
    result = run(watched([ENDED_JOB]), "job", "wait", "7", "--on-end", "x" * 5_000_000)
    assert result.exit_code == 0
    assert "job 7 failed: Argument list too long" in result.stderr


def test_it_talks_to_the_same_pool(capfd: pytest.CaptureFixture[str]) -> None:
    run(watched([ENDED_JOB]), "job", "wait", "7", "--pool", "lab", "--on-end", "echo $KESTREL_POOL")
    assert capfd.readouterr().err == "lab\n"


def test_a_submission_with_a_command_waits(capfd: pytest.CaptureFixture[str]) -> None:
    pool = watched([ENDED_JOB])
    result = run(pool, "submit", "--on-end", "echo $KESTREL_OUTCOME", "--", "ls")
    assert result.exit_code == 0
    assert pool.last(rq.SubmitJob).watch
    assert capfd.readouterr().err == "done\n"


def test_a_service_has_no_end_for_a_command() -> None:
    result = run(FakePool(), "submit", "--service", "--on-end", "ls", "--", "serve")
    assert result.exit_code == 2
    assert "does not end by itself" in result.stderr
