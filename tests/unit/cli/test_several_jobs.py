"""Commands that take several jobs, the last one if none is named, or those in a state."""

from __future__ import annotations

import json

import msgspec
import pytest
from cli_fake_pool import ENDED_JOB, FakePool, job_with, run

from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

replace = msgspec.structs.replace


def jobs_of(request: rq.ListJobs) -> an.Jobs:
    """Jobs 7 and 9, by their ids, or both."""
    wanted = {"7": [7], "9": [9], "last": [9]}.get(request.jobs, [7, 9])
    return an.Jobs(id="", jobs=[replace(ENDED_JOB, job_id=n, name=f"n{n}") for n in wanted])


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("cancel", rq.CancelJobs),
        ("hold", rq.HoldJobs),
        ("release", rq.ReleaseJobs),
        ("forget", rq.ForgetJobs),
        ("wait", rq.Watch),
        ("graph", rq.DrawGraph),
        ("list", rq.ListJobs),
        ("history", rq.ListJobs),
    ],
)
@pytest.mark.parametrize(
    ("words", "selection"),
    [
        (["1", "2", "3"], "1,2,3"),
        (["1,", "2,", "3"], "1,2,3"),
        (["1 2 3"], "1,2,3"),
        (["1-3", "all", "last"], "1-3,all,last"),
        (["3,5-9", "12"], "3,5-9,12"),
    ],
)
def test_jobs_may_be_several_words(
    command: str, kind: type[rq.Request], words: list[str], selection: str
) -> None:
    pool = FakePool()
    assert run(pool, "job", command, *words).exit_code == 0
    assert pool.last(kind).jobs == selection


def test_numbers_with_a_blank_between_are_never_one_number() -> None:
    pool = FakePool()
    run(pool, "job", "tasks", "7", "1 2")
    assert pool.last(rq.ListTasks).ids == [1, 2]
    run(pool, "submit", "--array", "1 2", "--", "true")
    assert pool.last(rq.SubmitJob).spec.ids() == "1,2"
    assert "not a job to wait for" in run(pool, "submit", "--after", "1 2", "--", "true").stderr


@pytest.mark.parametrize(
    ("text", "one", "several"),
    [("1,001", "1001", "1"), ("12,345,067", "12345067", "12,345,67"), ("5-1,000", "1000", "1,0")],
)
def test_a_number_with_commas_between_thousands_is_no_selection(
    text: str, one: str, several: str
) -> None:
    """`cancel 1,001` cancelled job 1."""
    pool = FakePool()
    for words in (
        ("job", "cancel", text),
        ("job", "cancel", "7", "--task", text),
        ("submit", "--array", text, "--", "x"),
    ):
        result = run(pool, *words)
        assert result.exit_code == UsageError.exit_status
        assert "one number, or several?" in result.stderr
        assert f"write {one}, or {several}" in result.stderr
    assert not pool.asked


@pytest.mark.parametrize("text", ["1,100", "100,200", "1,2,3", "0,1", "001,002", "7,10", "1,0"])
def test_numbers_that_may_be_several_are(text: str) -> None:
    pool = FakePool()
    assert run(pool, "job", "cancel", text).exit_code == 0
    assert pool.last(rq.CancelJobs).jobs == text


def test_each_of_several_jobs_is_shown() -> None:
    pool = FakePool(ListJobs=jobs_of)
    said = run(pool, "job", "info", "7", "9").stdout
    assert [line.split() for line in said.splitlines() if line.startswith("job ")] == [
        ["job", "7", "n7"],
        ["job", "9", "n9"],
    ]
    assert "\n\njob " in said
    data = json.loads(run(pool, "job", "info", "7-9", "-o", "json").stdout)
    assert [each["job_id"] for each in data] == [7, 9]
    assert json.loads(run(pool, "job", "info", "7", "-o", "json").stdout)["job_id"] == 7


def test_each_of_several_jobs_is_explained() -> None:
    pool = FakePool(ListJobs=jobs_of)
    assert run(pool, "job", "explain", "7", "9").exit_code == 0
    assert [each.job for each in pool.asked if isinstance(each, rq.ExplainJob)] == ["7", "9"]


def test_that_there_is_no_job_to_show_is_an_error() -> None:
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=[])), "job", "info", "all")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        7,
        "error: none of your jobs is active",
    )


def test_the_files_of_several_jobs_have_a_directory_each() -> None:
    result = run(FakePool(ListJobs=jobs_of), "job", "fetch", "7", "9", "--to", "here")
    assert result.exit_code == 2
    assert "each job has a directory of its own" in result.stderr


@pytest.mark.parametrize("command", ["info", "wait", "tasks", "logs", "explain", "story", "graph"])
def test_what_shows_or_waits_is_about_the_last_job_if_none_is_named(command: str) -> None:
    one = job_with(replace(ENDED_JOB, tasks=1, ids="0"), first=0)
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[one]))
    assert run(pool, "job", command).exit_code == 0
    first = pool.asked[0]
    assert getattr(first, "jobs", None) == "last" or getattr(first, "job", None) == "last"


@pytest.mark.parametrize("command", ["tasks", "logs"])
def test_which_one_the_last_job_is_is_told(command: str) -> None:
    one = job_with(replace(ENDED_JOB, tasks=1, ids="0"), first=0)
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[one]))
    assert "job 7 (sweep), your last one\n" in run(pool, "job", command).stderr
    assert "your last one" not in run(pool, "job", command, "7").stderr


@pytest.mark.parametrize("command", ["cancel", "hold", "release", "forget"])
def test_what_changes_jobs_must_be_told_which(command: str) -> None:
    pool = FakePool()
    result = run(pool, "job", command)
    assert (result.exit_code, pool.asked) == (2, [])
    assert "which jobs?" in result.stderr


def test_only_what_may_be_many_jobs_is_asked_for_again() -> None:
    answers = iter([an.Changed(id="", what=["3", "8"], left=5), an.Changed(id="", what=["9"])])
    pool = FakePool(ForgetJobs=lambda _: next(answers))
    assert run(pool, "job", "forget", "3", "5-9", "all").stdout == "forgot jobs 3, 8, 9\n"
    asked = [each.jobs for each in pool.asked if isinstance(each, rq.ForgetJobs)]
    assert asked == ["3,5-9,all", "5-9,all"]


def test_failed_tasks_are_those_that_failed_or_were_lost() -> None:
    pool = FakePool()
    assert run(pool, "job", "tasks", "7", "--failed").exit_code == 0
    assert pool.last(rq.ListTasks).states == [TaskState.FAILED, TaskState.LOST]


def test_states_are_asked_for_as_lists_show_them() -> None:
    pool = FakePool()
    run(pool, "job", "list", "--state", "running", "--where", "JobPrio > 100")
    request = pool.last(rq.ListJobs)
    assert request.states == ["active"]
    assert request.where == "(JobPrio > 100) && ((Running > 0))"
    run(pool, "job", "list", "--state", "active", "--state", "FAILED")
    request = pool.last(rq.ListJobs)
    assert (request.states, request.where) == (["active", "failed"], "")
