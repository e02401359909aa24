"""What jobs and users took, on the command line."""

from __future__ import annotations

import json
import re

import pytest
from cli_fake_pool import ENDED_JOB, JOB, NOW, USED_BY_USERS, WORKER, FakePool, run
from msgspec.structs import replace

from kestrelctl.cli.job.view import memory_time
from kestrelctl.cli.manager.commands import parse_usage_interval
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

USED = replace(
    ENDED_JOB,
    attempts=1010,
    cpu_seconds=5400.0,
    wall_seconds=7200.0,
    wait_seconds=3000.0,
    memory_byte_seconds=1.5 * 2**30 * 3600,
    peak_bytes=3 << 20,
)
SPREAD = replace(
    USED,
    spread={
        "wait_seconds": [1.0, 5.0, 9.0, 12.0],
        "wall_seconds": [7.0, 8.0, 9.0, 10.0],
        "cpu_seconds": [0.5, 1.0, 2.0, 3.0],
        "peak_bytes": [1 << 20, 2 << 20, 3 << 20, 3 << 20],
    },
    spread_tasks=1000,
)


def test_job_info_shows_the_percentiles_of_what_its_tasks_took() -> None:
    found = run(FakePool(ListJobs=an.Jobs(id="", jobs=[SPREAD])), "job", "info", "7")
    assert found.exit_code == 0
    lines = [line.split() for line in found.stdout.splitlines()]
    assert ["memory", "time", "1.5", "GiB", "h"] in lines
    assert ["wait", "1.0", "s", "5.0", "s", "9.0", "s", "12", "s"] in lines
    assert ["memory", "1", "MiB", "2", "MiB", "3", "MiB", "3", "MiB"] in lines
    assert "percentiles" in found.stdout
    assert "sample" not in found.stdout
    sampled = replace(SPREAD, sampled=True)
    found = run(FakePool(ListJobs=an.Jobs(id="", jobs=[sampled])), "job", "info", "7")
    assert "of a sample of 1,000 ended tasks" in found.stdout
    one = replace(SPREAD, spread_tasks=1)
    found = run(FakePool(ListJobs=an.Jobs(id="", jobs=[one])), "job", "info", "7")
    assert re.search(r"^percentiles +of 1 ended task$", found.stdout, re.MULTILINE)


UNKNOWN = replace(
    SPREAD,
    memory_byte_seconds=None,
    peak_bytes=None,
    spread={name: spread for name, spread in SPREAD.spread.items() if name != "peak_bytes"},
)


def test_memory_that_nobody_knows_is_no_figure() -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[UNKNOWN]))
    shown = run(pool, "job", "info", "7").stdout
    assert ["memory", "-", "-", "-", "-"] in [line.split() for line in shown.splitlines()]
    assert "not known" in shown
    assert "0 B" not in shown
    listed = run(pool, "job", "history").stdout.splitlines()[-1]
    assert listed.split()[-1] == "-"
    assert "0 B" not in listed
    found = json.loads(run(pool, "-o", "json", "job", "history").stdout)[0]
    assert (found["peak_bytes"], found["memory_byte_seconds"]) == (None, None)


def test_of_how_many_tasks_the_memory_is_known_is_said() -> None:
    some = replace(SPREAD, spread_memory_tasks=12)
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[some])), "job", "info", "7").stdout
    assert "memory of 12  " in shown


def test_a_task_whose_memory_nobody_knows_has_none() -> None:
    short = an.TaskView(index=0, task_id=0, state=TaskState.DONE, wall_seconds=0.01)
    waits = an.TaskView(index=1, task_id=1, state=TaskState.WAITING)
    tasks = an.Tasks(id="", tasks=[short, waits])
    pool = FakePool(ListTasks=tasks)
    rows = [line.split() for line in run(pool, "job", "tasks", "7").stdout.splitlines()]
    assert ["0", "done", "10", "ms", "-"] in rows
    assert ["1", "waiting"] in rows
    found = json.loads(run(pool, "-o", "json", "job", "tasks", "7").stdout)
    assert found[0]["peak_bytes"] is None


def test_history_lists_ended_jobs_with_what_they_took() -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[USED]))
    found = run(pool, "job", "history", "--since", "1h", "--owner", "ada@example.org")
    assert found.exit_code == 0
    assert "2h 00m" in found.stdout
    asked = pool.last(rq.ListJobs)
    assert asked.used
    assert asked.ended_since == NOW - 3600
    assert asked.states == list(rq.ENDED_STATES)
    assert asked.owner == "ada@example.org"
    asked = run(pool, "-o", "json", "job", "history", "--state", "failed")
    assert json.loads(asked.stdout)[0]["wall_seconds"] == 7200.0
    assert pool.last(rq.ListJobs).states == ["failed"]
    assert run(pool, "job", "history", "--state", "active").exit_code == 2


def test_memory_time_of_short_tasks_is_told_in_seconds() -> None:
    gib = float(1 << 30)
    assert [memory_time(n) for n in (None, 0.0, 0.2, 1500.0, gib * 35, gib * 36, gib * 3600)] == [
        "",
        "",
        "0 B s",
        "1.46 KiB s",
        "35 GiB s",
        "0.01 GiB h",
        "1 GiB h",
    ]
    assert memory_time(None, 3) == "-", "nobody knows"


def test_user_usage_goes_back_as_far_as_it_is_told() -> None:
    pool = FakePool()
    found = run(pool, "user", "usage", "ada", "--since", "7d")
    assert found.exit_code == 0
    assert "ada@users.example.org" in found.stdout
    assert "1.5 GiB h" in found.stdout
    assert "5 GiB" in found.stdout
    assert "20 GiB" in run(FakePool(), "-o", "wide", "user", "usage").stdout
    assert "1970-01-12 00:00 UTC" in found.stderr
    assert pool.last(rq.UserUsage) == rq.UserUsage(user="ada", since=NOW - 7 * 86400)
    run(pool, "user", "usage", "--since", "99999d")
    assert pool.last(rq.UserUsage).since == 0.0
    assert run(pool, "user", "usage", "--since", "tomorrow").exit_code == 2


def test_all_pages_of_users_are_shown() -> None:
    first = replace(USED_BY_USERS, after="ada@users.example.org")
    second = replace(USED_BY_USERS, users=[an.UserLine(user="bob@users.example.org")])
    pool = FakePool(UserUsage=lambda asked: second if asked.after else first)
    found = run(pool, "-o", "quiet", "user", "usage")
    assert found.stdout.split() == ["ada@users.example.org", "bob@users.example.org"]


def test_what_runs_is_shown_with_what_it_uses() -> None:
    use = an.RunningUse(
        tasks=2, wall_seconds=800.0, cpu_seconds=120.0, memory_bytes=3 << 20, since=NOW - 61
    )
    view = replace(JOB, running_use=use)
    found = run(FakePool(ListJobs=an.Jobs(id="", jobs=[view])), "job", "info", "7")
    assert "2 tasks with 2m 00s of processor time in 13m 20s, 3 MiB" in found.stdout
    runs = [
        an.RunningTask(
            job_id=7,
            task_id=17,
            sent_at=NOW - 400,
            said_at=NOW - 61,
            wall_seconds=339.0,
            cpu_seconds=61.0,
            memory_bytes=3 << 20,
        ),
        an.RunningTask(job_id=8, task_id=1, sent_at=NOW - 1),
    ]
    worker = replace(WORKER, runs=runs)
    found = run(FakePool(ListWorkers=an.Workers(id="", workers=[worker])), "worker", "info", "w1")
    lines = [line.split() for line in found.stdout.splitlines()]
    assert [
        "7",
        "17",
        "6m",
        "40s",
        "ago",
        "5m",
        "39s",
        "1m",
        "01s",
        "3",
        "MiB",
        "1m",
        "01s",
        "ago",
    ] in lines
    assert ["8", "1", "1.0", "s", "ago"] in lines


def test_an_interval_of_usage_is_a_duration_of_a_second_at_least() -> None:
    assert parse_usage_interval("1s") == 1.0
    assert parse_usage_interval("never") == 0.0
    for wrong in ("0", "0.5", "-1", "nan", "soon"):
        with pytest.raises(UsageError):
            parse_usage_interval(wrong)
