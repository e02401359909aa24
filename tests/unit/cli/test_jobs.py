"""What `kestrelctl job` and `kestrelctl worker` ask, and what they show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_fake_pool import (
    ENDED_JOB,
    EXPLANATION,
    FAILED_JOB,
    JOB,
    NOW,
    POOL,
    RUNNABLE,
    TASK,
    WORKER,
    FakePool,
    job_with,
    log_of,
    run,
)

from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.hold import Hold
from kestrelctl.core.model.job.spec import OnWorkerLost
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.errors import KestrelError, NotFound
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import TaskOutput
from kestrelctl.protocol.views import QuarantineView, SaturatedClass, UnmetShape

replace = msgspec.structs.replace


def test_a_list_has_one_line_for_each_job_and_totals_beside_it() -> None:
    jobs = [ENDED_JOB, replace(FAILED_JOB, job_id=8, name="")]
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=jobs)), "job", "list")
    assert result.stdout == (
        "JOB  NAME        STATE   TASKS  WAITING  RUNNING   DONE  FAILED    TIME  REASON\n"
        "  7  sweep       done    1,000        0        0  1,000       0  1m 00s\n"
        "  8  ./fit '{}'  failed  1,000        0        0    998       1  1m 00s\n"
    )
    assert result.stderr == "2 jobs; tasks: 1,998 done, 1 failed, 1 lost\n"


def test_a_list_is_read_where_the_clock_is_behind_that_of_the_manager() -> None:
    line = run(FakePool(), "job", "list", now=JOB.submitted_at - 30).stdout.splitlines()[1]
    assert "  0 ms" in line


def test_a_long_command_does_not_make_a_list_wide() -> None:
    long = job_with(replace(ENDED_JOB, name=""), {"argv": ("sh", "-c", "x" * 3000)})
    line = run(FakePool(ListJobs=an.Jobs(id="", jobs=[long])), "job", "list").stdout.splitlines()[1]
    assert line.startswith("  7  sh -c xxx")
    assert len(line) < 150


PRIVATE = job_with(
    replace(JOB, name="", owner="bob@example.org", running=0, waiting=999), {"argv": ()}
)


def test_of_anothers_job_a_list_says_that_it_is_private_and_asks_no_more() -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[PRIVATE]))
    line = run(pool, "job", "list").stdout.splitlines()[1]
    assert line.startswith("  7  (private)  active")
    assert not pool.count(rq.ExplainJob)


def test_of_a_guest_a_list_says_whose_it_is() -> None:
    guest = job_with(
        replace(PRIVATE, owner="ada@users.b.example.org"),
        guest=GuestOf(pool="b.example.org", job_id=0, user="", loan=""),
    )
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[guest]))
    line = run(pool, "job", "list").stdout.splitlines()[1]
    assert line.startswith("  7  guest of b.example.org: ada  active")


def test_all_about_anothers_job_is_what_the_pool_says() -> None:
    said = run(FakePool(ListJobs=an.Jobs(id="", jobs=[PRIVATE])), "job", "info", "7").stdout
    assert "(private)" in said
    assert "1,000 (" not in said, "its numbers are not known"


def test_a_list_says_why_jobs_wait() -> None:
    stuck = replace(JOB, running=0, waiting=999)
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[stuck]), ExplainJob=EXPLANATION)
    assert "no worker could ever run it; the closest is w1" in run(pool, "job", "list").stdout


def test_a_list_asks_only_about_jobs_that_are_stuck_and_only_for_people() -> None:
    jobs = [JOB, ENDED_JOB]
    for mode in ("table", "wide"):
        pool = FakePool(ListJobs=an.Jobs(id="", jobs=jobs))
        run(pool, "job", "list", "-o", mode)
        assert not pool.count(rq.ExplainJob)
    many = [replace(JOB, job_id=n, running=0) for n in range(50)]
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=many))
    run(pool, "job", "list", "-o", "json")
    assert not pool.count(rq.ExplainJob)
    run(pool, "job", "list")
    asked = [request.job for request in pool.asked if isinstance(request, rq.ExplainJob)]
    assert asked == [str(n) for n in range(30, 50)]


def test_a_list_survives_a_job_that_ends_meanwhile() -> None:
    stuck = replace(JOB, running=0)
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[stuck]), ExplainJob=KestrelError("it ended"))
    assert run(pool, "job", "list").exit_code == 0


def test_a_list_passes_its_filters_on() -> None:
    pool = FakePool()
    words = ["--state", "active", "--owner", JOB.owner, "--name", "night*", "-o", "quiet"]
    assert run(pool, "job", "list", "7-9", *words).stdout == "7\n"
    request = pool.last(rq.ListJobs)
    assert (request.jobs, request.states, request.owner) == ("7-9", ["active"], JOB.owner)
    assert request.name == "night*"


def pool_of(count: int, page: int = 500) -> FakePool:
    """A pool with so many jobs, of which one answer holds no more than a page."""

    def answer(request: rq.ListJobs) -> an.Jobs:
        end = count if request.before is None else request.before - 1
        first = max(1, end + 1 - min(request.limit or page, page))
        return an.Jobs(
            id="",
            jobs=[replace(ENDED_JOB, job_id=n) for n in range(first, end + 1)],
            before=first if first > 1 else None,
            total=count if request.before is None else None,
        )

    return FakePool(ListJobs=answer)


@pytest.mark.parametrize(("limit", "shown"), [("1000", 1000), ("0", 1069), ("3000", 1069)])
def test_a_list_has_as_many_jobs_as_were_asked_for(limit: str, shown: int) -> None:
    result = run(pool_of(1069), "job", "list", "--limit", limit, "-o", "quiet")
    assert result.stdout.split() == [str(n) for n in range(1070 - shown, 1070)]


def test_a_list_that_is_cut_says_of_how_many() -> None:
    said = run(pool_of(1069), "job", "list").stderr
    assert said.startswith("the newest 100 of 1,069 jobs, --limit 0 shows all; tasks: ")
    assert "newest" not in run(pool_of(1069), "job", "list", "--limit", "0").stderr
    told = json.loads(run(pool_of(1069), "job", "list", "-o", "json").stderr)
    assert told["warning"]["message"] == "only the newest 100 of 1,069 jobs"
    assert not run(pool_of(100), "job", "list", "-o", "json").stderr


def test_no_jobs_are_said_to_people_only() -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[]))
    result = run(pool, "job", "list")
    assert (result.stdout, result.stderr) == ("", "no jobs\n")
    assert run(pool, "job", "list", "-o", "json").stdout == "[]\n"


def test_info_of_no_job_is_not_found() -> None:
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=[])), "job", "info", "7")
    assert result.exit_code == 7


def test_info_shows_times_of_day_as_distances() -> None:
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=[ENDED_JOB])), "job", "info", "7")
    assert "submitted       1m 05s ago\n" in result.stdout
    assert "tasks           1,000 (1-1000)\n" in result.stdout


# -- tasks -----------------------------------------------------------------------------------------


def paged(total: int, page: int = 1000) -> FakePool:
    """A job of `total` tasks, given out in pages."""

    def answer(request: rq.ListTasks) -> an.Tasks:
        if request.ids:
            assert len(request.ids) <= page
            indexes = range(len(request.ids))
            found = [replace(TASK, index=i, task_id=request.ids[i]) for i in indexes]
            return an.Tasks(id="", tasks=found)
        first = request.after + 1
        end = min(first + page, total)
        found = [replace(TASK, index=i, task_id=i) for i in range(first, end)]
        return an.Tasks(id="", tasks=found, after=end - 1 if end < total else None)

    return FakePool(ListTasks=answer)


def test_tasks_come_in_pages_and_are_all_shown_in_a_pipe() -> None:
    pool = paged(2500)
    result = run(pool, "job", "tasks", "7", "-o", "quiet")
    assert result.stdout.split() == [str(n) for n in range(2500)]
    assert pool.count(rq.ListTasks) == 3


def test_a_table_of_many_pages_has_one_heading() -> None:
    lines = run(paged(2500), "job", "tasks", "7").stdout.splitlines()
    assert len(lines) == 2501
    assert lines[0] == ("TASK  STATE   WORKER   TIME    CPU  MEMORY  REASON")
    assert lines[1] == "   0  failed  w1      1.5 s  40 ms   3 MiB  exit code 2"


@pytest.mark.parametrize(("limit", "shown"), [("10", 10), ("1000", 1000), ("1500", 1500)])
def test_a_limit_cuts_and_says_so(limit: str, shown: int) -> None:
    result = run(paged(2500), "job", "tasks", "7", "--limit", limit)
    assert len(result.stdout.splitlines()) == shown + 1
    assert result.stderr == f"only the first {shown:,}; --limit 0 shows all\n"


def test_a_limit_that_cuts_nothing_is_not_mentioned() -> None:
    result = run(paged(10), "job", "tasks", "7", "--limit", "10")
    assert len(result.stdout.splitlines()) == 11
    assert result.stderr == ""


def test_many_tasks_in_json_are_one_array() -> None:
    found = json.loads(run(paged(2500), "job", "tasks", "7", "-o", "json").stdout)
    assert [task["task_id"] for task in found] == list(range(2500))


def test_tasks_are_chosen_by_id_and_state() -> None:
    pool = paged(0)
    result = run(pool, "job", "tasks", "7", "3,5-1504", "--state", "failed", "-o", "quiet")
    assert result.stdout.split() == ["3", *map(str, range(5, 1505))]
    assert pool.last(rq.ListTasks).states == [TaskState.FAILED]


def test_the_item_of_each_task_is_a_column_where_the_job_has_items() -> None:
    with_items = [replace(TASK, task_id=n, item=f"{n}.csv") for n in (1, 2)]
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=with_items))
    shown = run(pool, "job", "tasks", "7").stdout.splitlines()
    assert pool.last(rq.ListTasks).items
    assert shown[0].split()[-2:] == ["ITEM", "REASON"]
    assert shown[1].endswith("1.csv  exit code 2")
    found = json.loads(run(pool, "job", "tasks", "7", "-o", "json").stdout)
    assert [task["item"] for task in found] == ["1.csv", "2.csv"]


def test_a_running_task_shows_how_long_it_has_run_and_its_wait_is_named_so() -> None:
    task = replace(TASK, state=TaskState.RUNNING, wall_seconds=65.0, wait_seconds=7.0)
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=[task]))
    heading, line = run(pool, "job", "tasks", "7", "-o", "wide").stdout.splitlines()
    assert "WAIT " in heading
    assert "1m 05s" in line
    assert "7.0 s" in line


# -- logs ------------------------------------------------------------------------------------------

ONE = an.Jobs(id="", jobs=[job_with(replace(ENDED_JOB, tasks=1), first=4)])


def in_pieces(data: bytes, size: int = 4, skipped: int = 0) -> FakePool:
    """A task whose output comes in pieces, its beginning lost."""

    def answer(request: rq.Logs) -> an.Log:
        start = max(request.offset, skipped)
        end = start + size
        return log_of(
            data[start:end],
            size_bytes=len(data),
            skipped_bytes=start - request.offset,
            why_missing="worker w1 is away" if start > request.offset else "",
            next_offset=end if end < len(data) else None,
        )

    return FakePool(Logs=answer, ListJobs=ONE)


def test_logs_are_the_bytes_that_the_task_wrote() -> None:
    data = bytes(range(256)) * 3
    pool = in_pieces(data, 100)
    result = run(pool, "job", "logs", "7")
    assert result.stdout_bytes == data
    assert pool.count(rq.Logs) == 8
    assert pool.last(rq.Logs).task_id == 4
    assert pool.last(rq.Logs).stream == "stdout"


@pytest.mark.parametrize("mode", ["table", "wide", "quiet"])
def test_logs_are_the_same_bytes_in_every_mode_for_people(mode: str) -> None:
    assert run(in_pieces(b"\x00\xff"), "job", "logs", "7", "-o", mode).stdout_bytes == b"\x00\xff"


def test_logs_say_what_is_missing() -> None:
    result = run(in_pieces(b"0123456789", 4, skipped=6), "job", "logs", "7")
    assert result.stdout == "6789"
    assert result.exit_code == 13
    assert result.stderr == (
        "warning: 6 bytes of task 4 are missing here\n"
        "error: 6 bytes of the output of task 4 cannot be had\n"
        "cause: worker w1 is away\n"
        "hint: let tasks write what must last into a file of their own\n"
    )


def test_logs_say_what_was_cut_off() -> None:
    cut = log_of(b"0123", cut_bytes=6, why_missing="there is too much")
    result = run(FakePool(Logs=cut, ListJobs=ONE), "job", "logs", "7")
    assert (result.stdout, result.exit_code) == ("0123", 13)
    assert "error: 6 bytes of the output of task 4 cannot be had" in result.stderr
    result = run(FakePool(Logs=cut, ListJobs=ONE), "job", "logs", "7", "-o", "json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["size_bytes"], found["cut_bytes"]) == (13, 10, 6)


def outputs(*found: TaskOutput) -> FakePool:
    """A pool whose manager has these, two on each page."""

    def answer(request: rq.AllLogs) -> an.LogPage:
        start = request.after + 1
        end = start + 2
        after = end - 1 if end < len(found) else None
        return an.LogPage(id="", outputs=list(found[start:end]), after=after)

    return FakePool(AllLogs=answer)


def short(task_id: int, data: bytes = b"x\n") -> TaskOutput:
    return TaskOutput(task_id=task_id, data=data, size_bytes=len(data))


def long(task_id: int) -> TaskOutput:
    return TaskOutput(task_id=task_id, more=True)


def test_short_outputs_of_all_tasks_are_asked_for_page_by_page() -> None:
    pool = outputs(*(short(n) for n in range(1, 6)))
    result = run(pool, "job", "logs", "7", "--all", "--stderr")
    assert result.stdout == "".join(f"==> task {n} <==\nx\n" for n in range(1, 6))
    assert (pool.count(rq.AllLogs), pool.count(rq.Logs)) == (3, 0)
    assert pool.last(rq.AllLogs).stream == "stderr"


def test_long_outputs_among_them_come_whole_and_in_order() -> None:
    pool = outputs(long(1), short(2), *(long(n) for n in range(3, 20)), short(20))
    pool.answers["Logs"] = lambda request: log_of(
        f"{request.task_id}:{request.offset}\n".encode(),
        size_bytes=8,
        next_offset=4 if request.offset == 0 else None,
    )
    result = run(pool, "job", "logs", "7", "--all")
    parts = {n: f"{n}:0\n{n}:4\n" for n in range(1, 20)} | {2: "x\n", 20: "x\n"}
    assert result.stdout == "".join(f"==> task {n} <==\n{parts[n]}" for n in range(1, 21))


def test_a_slow_output_does_not_gather_all_that_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kestrelctl.cli.job.task_logs._MOST_HELD", 5)
    pool = outputs(long(1), *(short(n) for n in range(2, 40)))
    asked_before: list[int] = []

    def answer(request: rq.Logs) -> an.Log:
        asked_before.append(pool.count(rq.AllLogs))
        end = None if request.offset else 5
        return log_of(b"long\n", size_bytes=10, next_offset=end)

    pool.answers["Logs"] = answer
    result = run(pool, "job", "logs", "7", "--all")
    assert result.stdout.count("==> task") == 39
    first, second = asked_before
    assert second - first <= 5, "the second piece comes before the last page"


def test_all_logs_are_shown_before_it_is_said_in_one_line_what_is_missing() -> None:
    def answer(request: rq.Logs) -> an.Log:
        if request.task_id == 3:
            raise NotFound("it cannot be had just now")
        return log_of(b"x\n", skipped_bytes=2, why_missing="away")

    lost = TaskOutput(task_id=9, why_missing="it was lost with its worker")
    pool = outputs(*(long(n) for n in range(1, 5)), short(8), lost)
    pool.answers["Logs"] = answer
    result = run(pool, "job", "logs", "7", "--all")
    assert result.stdout.count("==> task") == 6
    assert result.exit_code == 13
    assert result.stderr == (
        "error: 6 bytes of the output of 5 tasks (1, 2, 3, 4, 9) cannot be had\n"
        "cause: away\n"
        "hint: let tasks write what must last into a file of their own\n"
    )
    found = json.loads(run(pool, "job", "logs", "7", "--all", "-o", "json").stdout)
    assert [log["why_missing"] for log in found] == [
        "away",
        "away",
        "it cannot be had just now",
        "away",
        "",
        "it was lost with its worker",
    ]


def test_logs_in_json_are_text_with_what_is_known_of_it() -> None:
    result = run(
        in_pieces(b"0123\xff5", 2, skipped=2), "job", "logs", "7", "--stderr", "-o", "json"
    )
    assert json.loads(result.stdout) == {
        "job_id": 7,
        "task_id": 4,
        "stream": "stderr",
        "size_bytes": 6,
        "skipped_bytes": 2,
        "cut_bytes": 0,
        "why_missing": "worker w1 is away",
        "text": "23�5",
        "base64": "MjP/NQ==",  # because the text is not exact
    }


@pytest.mark.parametrize(
    ("task", "stream", "told"),
    [
        ({"stderr_bytes": 5}, "stdout", "task 4 wrote nothing to stdout; try --stderr"),
        ({"stdout_bytes": 5}, "stderr", "task 4 wrote nothing to stderr; try --stdout"),
        (
            {"exit_code": None, "reason": "cannot-start: No such file or directory: './x'"},
            "stdout",
            "task 4 wrote nothing, to stdout nor to stderr; it failed: cannot-start: "
            "No such file or directory: './x'",
        ),
        ({}, "stderr", "task 4 wrote nothing, to stdout nor to stderr; it failed: exit code 2"),
        (
            {"state": TaskState.DONE, "exit_code": 0},
            "stderr",
            "task 4 wrote nothing, to stdout nor to stderr",
        ),
        (
            {"state": TaskState.RUNNING, "exit_code": None},
            "stdout",
            "task 4 is running, and wrote nothing to stdout yet",
        ),
    ],
)
def test_silence_is_remarked_upon_and_nobody_is_sent_to_where_nothing_is(
    task: dict[str, Any], stream: str, told: str
) -> None:
    view = replace(TASK, task_id=4, **task)
    pool = FakePool(Logs=log_of(b""), ListJobs=ONE, ListTasks=an.Tasks(id="", tasks=[view]))
    result = run(pool, "job", "logs", "7", f"--{stream}")
    assert (result.stdout, result.stderr) == ("", f"{told}\n")
    assert pool.last(rq.ListTasks).ids == [4]
    assert run(pool, "job", "logs", "7", "-o", "json").stderr == ""


def test_of_many_that_wrote_nothing_that_is_said() -> None:
    result = run(outputs(), "job", "logs", "7", "--all")
    assert result.stderr == "no task of job 7 wrote anything to stdout\n"


@pytest.mark.parametrize("words", [(), ("7",), ("7", "5"), ("7", "5", "-o", "json")])
def test_the_output_of_a_task_is_one_request(words: tuple[str, ...]) -> None:
    pool = FakePool()
    assert "hello" in run(pool, "job", "logs", *words).stdout
    assert [type(request) for request in pool.asked] == [rq.Logs]
    assert pool.last(rq.Logs).task_id == (5 if "5" in words else None)


def test_all_logs_have_headings_or_are_an_array() -> None:
    pool = outputs(short(1, b"hello\n"), short(2, b"\xff"))
    result = run(pool, "job", "logs", "7", "--all")
    assert result.stdout_bytes == b"==> task 1 <==\nhello\n==> task 2 <==\n\xff"
    found = json.loads(run(pool, "job", "logs", "7", "--all", "-o", "json").stdout)
    assert [(log["task_id"], log["base64"]) for log in found] == [(1, None), (2, "/w==")]


def test_one_task_and_all_exclude_each_other() -> None:
    assert run(FakePool(), "job", "logs", "7", "1", "--all").exit_code == 2


def test_all_about_a_job_is_what_it_was_submitted_with_and_what_it_took() -> None:
    whole = job_with(
        replace(ENDED_JOB, cpu_seconds=3605.0, wall_seconds=7200.0, peak_bytes=3 << 20),
        {
            "time_limit_seconds": 90.0,
            "env": {"MODE": "fast and good"},
            "cleanup": ("rm", "-f", "lock"),
        },
        max_failures=3,
        on_worker_lost=OnWorkerLost.WAIT,
    )
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[whole]))
    said = run(pool, "job", "info", "7").stdout
    for label, value in (
        ("time limit", "1m 30s"),
        ("max failures", "3"),
        ("max losses", "5"),
        ("on worker lost", "wait"),
        ("variables", "'MODE=fast and good'"),
        ("cleanup", "rm -f lock"),
        ("processor time", "1h 00m"),
        ("memory used", "3 MiB at most"),
    ):
        assert any(line.startswith(label) and line.endswith(value) for line in said.splitlines()), (
            label,
            said,
        )
    assert pool.last(rq.ListJobs).details
    found = json.loads(run(pool, "job", "info", "7", "-o", "json").stdout)
    program = found["spec"]["program"]
    assert (program["env"], program["time_limit_seconds"]) == ({"MODE": "fast and good"}, 90.0)
    assert found["cpu_seconds"] == 3605.0


def test_a_job_says_how_much_was_written_and_where_it_is() -> None:
    tasks = [
        replace(TASK, worker="w1@x/a", stdout_bytes=10, stderr_bytes=2),
        replace(TASK, worker="w2@x/a", stdout_bytes=5000),
        replace(TASK, worker="w3@x/a", stdout_bytes=70 << 20, reason="output-limit"),
    ]
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=tasks[:1]))
    assert "12 B of 1 task, all with the manager\n" in run(pool, "job", "info", "7").stdout
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=tasks, after=99))
    assert (
        "of the first 3 tasks that ended: 70 MiB of 3 tasks; of 2 the manager has the last 4 KiB, "
        "the rest is on w2, w3; 1 cut off at the limit\n"
    ) in run(pool, "job", "info", "7").stdout
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=[TASK]))
    assert "output" not in run(pool, "job", "info", "7").stdout


# -- workers ---------------------------------------------------------------------------------------


def test_a_worker_whose_memory_is_all_taken_shows_that_none_is_free() -> None:
    full = replace(WORKER, free={"cpus": 0.0, "memory": 0.0})
    line = run(FakePool(ListWorkers=an.Workers(id="", workers=[full])), "worker", "list").stdout
    assert re.search(r" 4 +0 +8 GiB +0 B ", line)


# -- explain ---------------------------------------------------------------------------------------


def test_an_explanation_shows_the_closest_fit_first_and_a_conclusion() -> None:
    result = run(FakePool(ExplainJob=EXPLANATION), "job", "explain", "7")
    assert result.stdout == (
        "job 7 (sweep): 998 tasks waiting\n"
        "\n"
        "WORKERS  FOR EXAMPLE  REASON        WANTED   FOUND\n"
        "      3  w1           too-small     64 cpus  8 cpus\n"
        "     12  w2           missing-tags  GPU      LINUX\n"
        "\n"
        "No worker could ever run it; "
        "the closest is w1, which has 8 cpus where 64 cpus are wanted.\n"
        "hint: add such a worker, or: kestrelctl job cancel 7\n"
    )


def busy(*reasons: Reason) -> an.JobExplanation:
    """Every worker that could run the job is taken, for these reasons."""
    obstacles = [an.Obstacle(workers=2, example="w@x", refusal=Refusal(r)) for r in reasons]
    return replace(RUNNABLE, could_run=0, obstacles=obstacles)


@pytest.mark.parametrize(
    ("explanation", "why", "hint"),
    [
        (replace(RUNNABLE, waiting=0), "nothing waits", None),
        (
            replace(
                RUNNABLE,
                waiting=0,
                job_reasons=[Refusal(Reason.BACKOFF, found="2 tasks, next in 3 s")],
            ),
            "tasks that failed pause before they are tried again (found 2 tasks, next in 3 s)",
            "kestrelctl job tasks 7 --state failed",
        ),
        (RUNNABLE, "2 workers could take a task at once", None),
        (
            replace(busy(Reason.BUSY), tasks_ahead=9_000),
            "every worker that could run it is taken or away (2 busy); "
            "9,000 tasks of other jobs come first",
            None,
        ),
        (
            replace(busy(Reason.BUSY), tasks_ahead=1),
            "every worker that could run it is taken or away (2 busy); "
            "1 task of other jobs comes first",
            None,
        ),
        (
            replace(RUNNABLE, job_reasons=[Refusal("max-running", "at most 1", "1")]),
            "as many of its tasks run as --max-running allows (wanted at most 1, found 1)",
            None,
        ),
        (
            replace(RUNNABLE, job_reasons=[Refusal(Reason.BACKOFF, found="3 tasks")]),
            "tasks that failed pause before they are tried again (found 3 tasks)",
            "kestrelctl job tasks 7 --state failed",
        ),
        (
            replace(RUNNABLE, could_run=0, job_reasons=[Refusal(Reason.NO_WORKERS)], ever=False),
            "there are no workers",
            "kestrelctl worker run --help",
        ),
        (
            busy(Reason.BUSY, Reason.BUSY, Reason.DRAINING, Reason.TOO_SMALL),
            "every worker that could run it is taken or away (4 busy, 2 draining)",
            None,
        ),
        (
            busy(Reason.OFFLINE, Reason.QUARANTINED),
            "every worker that could run it is taken or away (2 offline, 2 quarantined)",
            "kestrelctl worker list",
        ),
        (
            replace(busy(Reason.MISSING_TAGS), ever=False),
            "no worker could ever run it; the closest is w, which lacks ",
            "add such a worker, or: kestrelctl job cancel 7",
        ),
    ],
)
def test_a_conclusion_is_one_clause(
    explanation: an.JobExplanation, why: str, hint: str | None
) -> None:
    assert conclusion(explanation) == (why, hint)


def test_every_reason_can_be_told() -> None:
    for reason in Reason:
        for explanation in (
            replace(RUNNABLE, job_reasons=[Refusal(reason)]),
            busy(reason),
            replace(busy(reason), ever=False),
        ):
            assert conclusion(explanation)[0]


def test_an_explanation_in_json_carries_the_conclusion() -> None:
    result = run(FakePool(ExplainJob=EXPLANATION), "job", "explain", "7", "-o", "json")
    told = {name for name in an.JobExplanation.__struct_fields__ if name != "id"}
    assert told <= set(json.loads(result.stdout)), "what the words say, the data do, too"
    found = json.loads(result.stdout)
    assert found["obstacles"][0]["refusal"]["reason"] == "too-small"
    assert found["conclusion"].startswith("no worker could ever run it")
    assert not {"id", "type"} & set(found)


# -- changes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("job", "cancel", "7"), "cancelled job 7 (999 tasks)\n"),
        (("job", "hold", "7", "--reason", "disk full"), "held job 7 (998 tasks)\n"),
        (("job", "release", "7"), "released job 7 (998 tasks)\n"),
        (("job", "retry", "7", "3,5-6"), "retried job 7 (2 tasks)\n"),
        (("job", "forget", "7"), "forgot job 7\n"),
        (("worker", "drain", "w1"), "draining worker w1\n"),
        (("worker", "resume", "w1"), "resumed worker w1\n"),
    ],
)
def test_changes_are_told(args: tuple[str, ...], said: str) -> None:
    assert run(FakePool(), *args).stdout == said


def test_retry_names_tasks() -> None:
    pool = FakePool()
    run(pool, "job", "retry", "7", "3,5-6")
    assert pool.last(rq.RetryJobs).task_ids == [3, 5, 6]


def test_of_several_jobs_only_those_are_retried_that_have_failed_tasks() -> None:
    lost = replace(ENDED_JOB, job_id=9, lost=2)
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[replace(FAILED_JOB, job_id=6), ENDED_JOB, lost]))
    assert run(pool, "job", "retry", "6-9", "--failed").stdout == "retried job 7 (2 tasks)\n"
    assert pool.last(rq.ListJobs).jobs == "6-9"
    assert pool.last(rq.RetryJobs).jobs == "6,9"


def test_when_no_job_has_failed_tasks_none_is_retried() -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[ENDED_JOB]))
    result = run(pool, "job", "retry", "6-9", "--failed")
    assert (result.stdout, result.stderr) == ("", "none of these jobs has failed tasks\n")
    assert not pool.count(rq.RetryJobs)


def test_no_change_is_told_too() -> None:
    pool = FakePool(CancelJobs=an.Changed(id="", what=[]))
    result = run(pool, "job", "cancel", "all")
    assert (result.stdout, result.stderr) == ("", "none of these jobs is active\n")


def test_what_is_forgotten_is_counted_and_what_is_kept_is_said() -> None:
    jobs = [str(n) for n in range(1, 1070)]
    answers = iter(
        [
            an.Changed(id="", what=jobs[:1000], kept=3, left=69),
            an.Changed(id="", what=jobs[1000:], kept=3),
        ]
    )
    pool = FakePool(ForgetJobs=lambda _: next(answers))
    result = run(pool, "job", "forget", "all")
    assert result.stdout == "forgot 1,069 jobs\n"
    assert result.stderr == "3 jobs kept: not ended yet\n"
    none = FakePool(ForgetJobs=an.Changed(id="", what=[], kept=1))
    assert run(none, "job", "forget", "all").stderr == (
        "none of these jobs has ended\n1 job kept: not ended yet\n"
    )


def test_ids_of_no_job_in_a_range_are_told_of() -> None:
    pool = FakePool(CancelJobs=an.Changed(id="", what=["7"], tasks=4, kept=2, missing=3))
    result = run(pool, "job", "cancel", "5-10")
    assert result.stdout == "cancelled job 7 (4 tasks)\n"
    assert result.stderr == (
        "2 jobs kept: not active any more\n3 ids in these ranges are of no job\n"
    )


def test_single_tasks_are_cancelled() -> None:
    pool = FakePool(CancelJobs=an.Changed(id="", what=["7"], tasks=4))
    result = run(pool, "job", "cancel", "7", "--task", "3,7-9")
    assert result.stdout == "cancelled tasks of job 7 (4 tasks)\n"
    assert pool.last(rq.CancelJobs).task_ids == [3, 7, 8, 9]
    assert result.stderr == ""
    over = FakePool(CancelJobs=an.Changed(id="", what=[]))
    assert run(over, "job", "cancel", "7", "--task", "3").stderr == "these tasks have ended\n"
    some = FakePool(CancelJobs=an.Changed(id="", what=["7"], tasks=1))
    told = run(some, "job", "cancel", "7", "--task", "3,3,7-9").stderr
    assert told == "3 of these 4 tasks had ended\n"
    some = FakePool(RetryJobs=an.Changed(id="", what=["7"], tasks=2))
    told = run(some, "job", "retry", "7", "3-5").stderr
    assert told == "1 of these 3 tasks did not end badly\n"


def test_why_a_job_is_held_is_sent_along() -> None:
    pool = FakePool()
    run(pool, "job", "hold", "7", "--reason", "disk full")
    assert pool.last(rq.HoldJobs).reason == "disk full"
    long = run(pool, "job", "hold", "7", "--reason", "x" * 201)
    assert (long.exit_code, "at most 200 characters" in long.stderr) == (2, True)


def test_a_hold_or_release_that_changes_nothing_says_so() -> None:
    none = an.Changed(id="", what=[], kept=1)
    held = run(FakePool(HoldJobs=none), "job", "hold", "7")
    assert held.stderr == ("no job held\n1 job kept: on hold before, or not active any more\n")
    free = run(FakePool(ReleaseJobs=none), "job", "release", "7")
    assert free.stderr == "no job released\n1 job kept: not on hold\n"
    assert (held.exit_code, free.exit_code) == (0, 0)


def test_more_jobs_than_one_request_may_hold_are_held_in_pieces() -> None:
    answers = iter(
        [an.Changed(id="", what=["1"], tasks=2, left=1), an.Changed(id="", what=["2"], tasks=3)]
    )
    pool = FakePool(HoldJobs=lambda _: next(answers))
    assert run(pool, "job", "hold", "all").stdout == "held jobs 1, 2 (5 tasks)\n"


def test_a_job_on_hold_is_shown_as_held_and_by_whom_since_when_and_why() -> None:
    hold = Hold("bob@example.org", NOW - 120, "disk full")
    pool = FakePool(
        ListJobs=an.Jobs(id="", jobs=[job_with(replace(JOB, hold=hold), hold_after=20)], total=1)
    )
    assert " held " in run(pool, "job", "list").stdout
    told = run(pool, "job", "info", "7").stdout
    assert re.search(r"state +held", told)
    assert re.search(r"on hold +by bob@example.org, 2m 00s ago: disk full", told)
    assert re.search(r"hold after +20 failures in a row", told)
    [found] = json.loads(run(pool, "-o", "json", "job", "list").stdout)
    assert (found["state"], found["hold"]["reason"]) == ("active", "disk full")


def test_a_held_job_waits_for_its_release() -> None:
    why = Refusal(Reason.HELD, found="by bob@example.org: disk full")
    explanation = replace(EXPLANATION, job_reasons=[why])
    assert conclusion(explanation) == (
        "it is on hold by bob@example.org: disk full",
        "kestrelctl job release 7",
    )


@pytest.mark.parametrize("command", ["cancel", "hold", "release", "forget"])
def test_jobs_are_named_by_ids_or_by_name_and_not_by_both(command: str) -> None:
    pool = FakePool()
    assert run(pool, "job", command, "--name", "night*").exit_code == 0
    assert pool.asked[-1].jobs == "name:night*"  # type: ignore[union-attr]
    assert run(pool, "job", command, "7", "--name", "night*").exit_code == 2
    assert run(pool, "job", command).exit_code == 2


def test_workers_are_drained_and_resumed_by_the_admin() -> None:
    pool = FakePool()
    for args in (("worker", "drain", "w1"), ("worker", "resume", "w1"), ("worker", "list")):
        run(pool, *args)
    assert [as_admin for _, as_admin in pool.opened] == [True, True, False]


# -- workers ---------------------------------------------------------------------------------------


def of_workers(*names: str, page: int = 2) -> FakePool:
    workers = [replace(WORKER, worker=name) for name in names]

    def answer(request: rq.ListWorkers) -> an.Workers:
        left = [w for w in workers if w.worker > request.after]
        left = [w for w in left if all(name in w.worker for name in request.names)]
        after = left[page - 1].worker if len(left) > page else None
        return an.Workers(id="", workers=left[:page], after=after)

    return FakePool(ListWorkers=answer)


def test_workers_come_in_pages() -> None:
    names = [f"w{n}@x/r" for n in range(5)]
    result = run(of_workers(*names), "worker", "list", "-o", "quiet")
    assert result.stdout.split() == names
    assert "5 workers: 5 idle\n" in run(of_workers(*names), "worker", "list").stderr


def test_a_worker_is_found_by_its_name_or_by_a_part_of_its_address() -> None:
    pool = of_workers("w1@x/a", "w10@x/b", "w2@y/c")
    assert run(pool, "worker", "info", "w1", "-o", "quiet").stdout == "w1@x/a\n"
    assert run(pool, "worker", "info", "y/", "-o", "quiet").stdout == "w2@y/c\n"
    assert run(pool, "worker", "info", "@x").exit_code == 2
    assert run(pool, "worker", "info", "z").exit_code == 7


def test_a_quarantined_worker_says_for_how_long() -> None:
    view = replace(
        WORKER, state="quarantined", quarantined_until=1_000_030.0, quarantined_for="lost 5 times"
    )
    pool = FakePool(ListWorkers=an.Workers(id="", workers=[view]))
    assert "quarantined for 30 s more\n" in run(pool, "worker", "info", "w1").stdout
    assert "lost 5 times\n" in run(pool, "worker", "info", "w1").stdout
    assert "lost 5 times\n" in run(pool, "worker", "list").stdout


def test_a_worker_that_offers_more_than_counts_is_told_apart() -> None:
    view = replace(WORKER, assets={"cpus": 512.0}, offered_cpus=1e6)
    pool = FakePool(ListWorkers=an.Workers(id="", workers=[view]))
    assert "of the 1,000,000 that it offers" in run(pool, "worker", "info", "w1").stdout
    assert "offers 1,000,000 cpus\n" in run(pool, "worker", "list").stdout


# -- the pool --------------------------------------------------------------------------------------


def test_a_store_that_fails_is_shown_first() -> None:
    pool = FakePool(PoolStatus=replace(POOL, store_error="disk full"))
    assert run(pool, "pool", "status").stdout.startswith(
        "store         FAILING: disk full; nothing is handed out\n"
    )
    assert "FAILING" not in run(FakePool(), "pool", "status").stdout


def test_what_a_store_lost_and_cannot_read_is_shown() -> None:
    notes = ["3 commits were missing", "1 job cannot be read and set aside: 17"]
    said = run(FakePool(PoolStatus=replace(POOL, store_notes=notes)), "pool", "status").stdout
    assert [line for line in said.splitlines() if line.startswith("store")] == [
        f"store         NOTE: {note}" for note in notes
    ]


def test_the_status_says_what_the_pool_lacks() -> None:
    unmet = [UnmetShape(shape="4 cpus", tasks=1200), UnmetShape(shape="1 cpu, GPU", tasks=1)]
    full = [SaturatedClass(worker_class="8 cpus", workers=3, assets=["cpus", "memory"])]
    pool = FakePool(PoolStatus=replace(POOL, unmet=unmet, saturated=full))
    said = " ".join(run(pool, "pool", "status").stdout.split())
    assert "unmet 1,200 tasks that ask for 4 cpus" in said
    assert "unmet 1 task that asks for 1 cpu, GPU" in said
    assert "saturated 3 workers with 8 cpus: no cpus, no memory left" in said


def test_other_pools_are_named_before_or_after_the_command(tmp_path: Path) -> None:
    pool = FakePool()
    run(pool, "--pool", "lab", "pool", "status")
    run(pool, "pool", "status", "--pool", "office")
    run(pool, "pool", "status")
    assert [wanted for wanted, _ in pool.opened] == ["lab", "office", ""]


def test_pool_status_says_who_is_in_quarantine_and_why() -> None:
    found = QuarantineView("w3@workers.pool/1", 0.0, "lost 5 times within 60 s")
    said = run(FakePool(PoolStatus=replace(POOL, quarantined=[found])), "pool", "status").stdout
    assert "quarantined   w3/1 for 0 ms more: lost 5 times within 60 s" in said


def test_info_says_what_stopped_a_job() -> None:
    job = replace(FAILED_JOB, stopped_by="failed tasks")
    stopped = job_with(job, {"join": True}, stop_after=2)
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=[stopped])), "job", "info", "7")
    assert "failed, stopped after 2 failed tasks\n" in result.stdout
    assert re.search(r"stop after +2 failed tasks\n", result.stdout)
    assert re.search(r"standard error +into standard output\n", result.stdout)


def test_info_of_a_job_without_a_name_ends_with_its_number() -> None:
    view = replace(JOB, name="")
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[view])), "job", "info", "7").stdout
    assert [line for line in shown.splitlines() if line != line.rstrip()] == []


def test_info_tells_variables_from_the_environment_in_which_tasks_run() -> None:
    view = job_with(JOB, {"environment": TaskEnvironment("science", "venv"), "env": {"LANG": "C"}})
    shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[view])), "job", "info", "7").stdout
    labels = [line.split("  ")[0] for line in shown.splitlines() if not line.startswith(" ")]
    assert len(labels) == len(set(labels))
    assert re.search(r"^environment +science$", shown, re.MULTILINE)
    assert re.search(r"^variables +LANG=C$", shown, re.MULTILINE)


def test_info_says_how_many_workers_a_job_spans() -> None:
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[job_with(JOB, span=4)], total=1))
    assert re.search(r"spans +4 workers at once", run(pool, "job", "info", "7").stdout)
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[JOB], total=1))
    assert "spans" not in run(pool, "job", "info", "7").stdout
