"""A map runs its command for each input, prints what tasks wrote, and ends as parallel does."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from cli_fake_pool import run
from runningpool import Exit, RunningPool, echo

from kestrelctl.cli.map import run as map_run
from kestrelctl.client import pool as client_pool
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import NotAllowed, OverQuota, Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_pool, "LONGEST_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(map_run, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(map_run, "GATHER_SECONDS", 60.0)  # all inputs come, however slow it is


def test_each_input_runs_once_and_its_output_is_printed() -> None:
    pool = RunningPool(echo)
    result = run(pool, "map", "echo", "{}", "{#}", ":::", "a", "b c", "$(touch pwned)", "it's", "")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == ["a 1", "b c 2", "$(touch pwned) 3", "it's 4", " 5"]
    assert pool.ran[2] == ("echo", "$(touch pwned)", "3")
    assert result.stderr == ""


def test_the_status_is_the_number_of_tasks_that_failed_and_errors_go_to_stderr() -> None:
    result = run(RunningPool(echo), "map", "echo", ":::", "a", "fail3", "fail1")
    assert result.exit_code == 2
    assert result.stdout == "a\nfail3\nfail1\n"
    assert result.stderr == "bad\nbad\n"


@pytest.mark.parametrize("mode", ["table", "jsonl"])
def test_what_did_not_come_of_a_long_output_is_told_and_where_it_may_be(mode: str) -> None:
    pool = RunningPool(
        lambda argv: Exit(stdout=b"end\n", lost_bytes=100_000 if argv[1] == "b" else 0)
    )
    result = run(pool, "map", "-o", mode, "fit", ":::", "a", "b")
    assert result.exit_code == 0
    assert "of the 97.7 KiB of standard output of input 2, 97.7 KiB did not come" in result.stderr
    hints = re.findall(r"kestrelctl job logs ([-\w ]+)", result.stderr)
    assert hints == ["7 1", "7 1 --stderr"]
    assert "input 1" not in result.stderr


def test_lost_and_cancelled_tasks_have_failed() -> None:
    states = {"a": TaskState.LOST, "b": TaskState.CANCELLED, "c": TaskState.DONE}
    pool = RunningPool(lambda argv: Exit(state=states[argv[1]]))
    assert run(pool, "map", "true", ":::", *states).exit_code == 2


def test_no_input_is_no_task() -> None:
    pool = RunningPool(echo)
    assert run(pool, "map", "echo", ":::").exit_code == 0
    assert pool.jobs == {}


def test_output_comes_in_the_order_of_the_ends_or_of_the_inputs() -> None:
    order = (2, 0, 1)
    found = run(RunningPool(echo, ends_first=order), "map", "echo", ":::", "a", "b", "c")
    assert found.stdout.split() == ["c", "a", "b"]
    kept = run(RunningPool(echo, ends_first=order), "map", "-k", "echo", ":::", "a", "b", "c")
    assert kept.stdout.split() == ["a", "b", "c"]


def test_a_tag_begins_each_line() -> None:
    pool = RunningPool(lambda _argv: Exit(stdout=b"one\n\nthree"))
    result = run(pool, "map", "--tag", "fit", ":::", "x", ":::", "y")
    assert result.stdout == "x y\tone\nx y\t\nx y\tthree"


def test_files_are_sources_and_columns_are_arguments(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_bytes(b"a,1\n\nb,2,3")
    pool = RunningPool(echo)
    result = run(pool, "map", "-k", "--colsep", ",", "echo", "{2}", "{1}", "::::", str(names))
    assert result.stdout.splitlines() == ["1 a", "", "2 b"]
    assert result.exit_code == 0


def test_null_bytes_may_end_lines(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_bytes(b"a\nb\0c\0")
    pool = RunningPool(echo)
    assert run(pool, "map", "-0", "echo", "::::", str(names)).exit_code == 0
    assert pool.ran == [("echo", "a\nb"), ("echo", "c")]
    refused = run(pool, "map", "echo", "::::", str(names))
    assert refused.exit_code == 2
    assert "line 2 of" in refused.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("map",), "there is no command"),
        (("map", ":::", "a"), "there is no command"),
        (("map", "echo {} | wc", ":::", "a"), "no shell reads the command"),
        (("map", "sh", "-c", "echo {}", ":::", "a"), "would run a part of an input as code"),
        (("map", "A=1", "env", ":::", "a"), "is no program"),
        (("map", "echo", "::::", "/no/such/file"), "/no/such/file cannot be read"),
        (("map", "echo", "{%}", ":::", "a"), "{%} has no meaning here"),
        (("map", "--resume", "echo", ":::", "a"), "--resume is by a log"),
        (("map", "--halt", "x", "echo", ":::", "a"), "--halt cannot be"),
        (("map", "-j", "0", "echo", ":::", "a"), "'-j'"),
        (("map", "echo", ":::", "x" * 200_000), "input 1 takes 200,000 bytes"),
        (("map", "echo", ":::", "\udcff"), "is not UTF-8"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_runs(
    words: tuple[str, ...], says: str
) -> None:
    pool = RunningPool(echo)
    result = run(pool, *words)
    assert result.exit_code == 2
    assert says in result.stderr
    assert pool.jobs == {}


def test_a_line_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_bytes(b"a\n\xff\n")
    result = run(RunningPool(echo), "map", "echo", "::::", str(names))
    assert result.exit_code == 2
    assert f"line 2 of {names} is not UTF-8" in result.stderr


def test_inputs_may_be_code_if_that_is_said() -> None:
    pool = RunningPool(echo)
    assert run(pool, "map", "--paste-items", "sh", "-c", "x {}", ":::", "a; b").exit_code == 0
    assert pool.ran == [("sh", "-c", "x a; b")]


def test_many_inputs_become_few_jobs_the_first_of_them_small(tmp_path: Path) -> None:
    names = tmp_path / "names"
    names.write_text("".join(f"{number}\n" for number in range(25_000)))
    pool = RunningPool(lambda _argv: Exit())
    assert run(pool, "map", "true", "::::", str(names)).exit_code == 0
    assert [len(exits) for exits in pool.jobs.values()] == [500, 10_000, 10_000, 4_500]
    assert [argv[1] for argv in pool.ran] == [str(number) for number in range(25_000)]
    assert len({spec.name for spec in pool.specs.values()}) == 1


def test_a_bound_of_running_tasks_holds_for_all_jobs_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_run, "MOST_IN_A_JOB", 2)
    pool = RunningPool(echo, ends_first=(0, 1))
    submit = pool.answers["SubmitJob"]
    assert callable(submit)

    def only_when_all_have_ended(request: rq.SubmitJob) -> an.AnyAnswer:
        assert all(len(pool._ended(job)) == len(pool.jobs[job]) for job in pool.jobs)
        assert request.spec.max_running == 3
        return submit(request)

    pool.answers["SubmitJob"] = only_when_all_have_ended
    result = run(pool, "map", "-j3", "echo", ":::", *"abcde")
    assert (result.exit_code, result.stdout.split()) == (0, [*"abcde"])


def test_options_of_submit_say_how_tasks_run() -> None:
    pool = RunningPool(echo)
    words = ("--memory", "2G", "--cpus", "0.5", "--max-failures", "3", "--env", "A=1")
    assert run(pool, "map", *words, "echo", ":::", "a").exit_code == 0
    spec = pool.specs[7]
    assert spec.request == {"cpus": 0.5, "memory": float(2 << 30)}
    assert (spec.max_failures, spec.program.env) == (3, {"A": "1"})


def test_a_quota_is_waited_for_while_own_tasks_are_under_way() -> None:
    pool = RunningPool(echo, ends_first=tuple(range(500)))
    submit = pool.answers["SubmitJob"]
    assert callable(submit)
    refused: list[int] = []

    def submit_some(request: rq.SubmitJob) -> an.AnyAnswer:
        if pool.jobs and len(pool._ended(7)) < 400:
            refused.append(1)
            raise OverQuota("too many")
        return submit(request)

    pool.answers["SubmitJob"] = submit_some
    result = run(pool, "map", "echo", ":::", *map(str, range(600)))
    assert result.exit_code == 0, result.stderr
    assert refused
    assert sorted(map(int, result.stdout.split())) == list(range(600))


def test_a_refusal_of_the_pool_keeps_its_status() -> None:
    pool = RunningPool(echo)
    pool.answers["SubmitJob"] = NotAllowed("no")
    assert run(pool, "map", "echo", ":::", "a").exit_code == 4


# -- halting ---------------------------------------------------------------------------------------


def test_when_it_halts_the_rest_is_cancelled_and_what_has_ended_still_comes() -> None:
    pool = RunningPool(echo, ends_first=(0, 1, 2, 3, 4))
    result = run(pool, "map", "--halt", "now,fail=1", "echo", ":::", "a", "fail7", *"cdefghij")
    assert result.exit_code == 7
    assert pool.cancelled == {7}
    assert result.stdout.split()[:2] == ["a", "fail7"]
    assert "j" not in result.stdout
    assert "no more is run, as --halt says, after: echo fail7" in result.stderr
    assert rq.HoldJobs not in {type(each) for each in pool.asked}


def test_running_tasks_are_waited_for_before_the_rest_is_cancelled() -> None:
    pool = RunningPool(echo, ends_first=(0, 1, 2, 3))
    result = run(pool, "map", "--halt", "soon,fail=1", "echo", ":::", "fail7", *"bcdefghij")
    assert result.exit_code == 7
    kinds = [type(each) for each in pool.asked if isinstance(each, rq.HoldJobs | rq.CancelJobs)]
    assert kinds == [rq.HoldJobs, rq.CancelJobs]


def test_a_share_is_of_all_inputs() -> None:
    pool = RunningPool(echo)
    result = run(pool, "map", "--halt", "soon,fail=50%", "echo", ":::", "fail1", "fail1", "a", "b")
    assert result.exit_code == 50


# -- the log ---------------------------------------------------------------------------------------


def test_the_log_has_a_line_for_each_task_and_a_run_goes_on_by_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("--joblog", str(log), "echo", ":::", "a", "fail3")
    assert run(RunningPool(echo), "map", *words).exit_code == 1
    header, first, second = log.read_text().splitlines()
    assert header.split("\t") == [
        "Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command",
    ]  # fmt: skip
    assert first == "1\tw1\t1000.500\t     0.250\t0\t2\t0\t0\techo a"
    assert second.endswith("\t3\t0\techo fail3")

    pool = RunningPool(echo)
    assert run(pool, "map", "--resume", *words, "c").exit_code == 0
    assert pool.ran == [("echo", "c")]
    pool = RunningPool(echo)
    assert run(pool, "map", "-k", "--resume-failed", *words, "c", "d").stdout == "fail3\nd\n"
    assert [line.split("\t")[0] for line in log.read_text().splitlines()[1:]] == [*"12324"]


def test_a_line_that_was_cut_off_is_written_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ("--joblog", str(log), "echo", ":::", "a", "b")
    run(RunningPool(echo), "map", *words)
    whole = log.read_text()
    log.write_text(whole[:-3])
    pool = RunningPool(echo)
    assert run(pool, "map", "--resume", *words).exit_code == 0
    assert pool.ran == [("echo", "b")]
    assert log.read_text() == whole


def test_without_resume_the_log_begins_anew(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("something else\n")
    words = ("--joblog", str(log), "echo", ":::", "a")
    assert run(RunningPool(echo), "map", *words).exit_code == 0
    assert len(log.read_text().splitlines()) == 2
    log.write_text("x\n")
    refused = run(RunningPool(echo), "map", "--resume", *words)
    assert refused.exit_code == 2
    assert "line 1 of --joblog" in refused.stderr


@pytest.mark.parametrize("wrong", [("--halt", "x", "echo", ":::", "a"), ("echo", "::::", "/no")])
def test_a_line_that_is_refused_leaves_the_log_of_an_earlier_run(
    tmp_path: Path, wrong: tuple[str, ...]
) -> None:
    log = tmp_path / "log"
    run(RunningPool(echo), "map", "--joblog", str(log), "echo", ":::", "a", "b")
    whole = log.read_text()
    assert run(RunningPool(echo), "map", "--joblog", str(log), *wrong).exit_code == 2
    assert log.read_text() == whole


def test_whoever_reads_the_objects_in_a_pipe_gets_each_when_its_task_has_ended() -> None:
    """A pipe is written to in large pieces, if nobody says otherwise."""
    pool = RunningPool(echo, ends_first=(0, 1))
    answer = pool.answers["ListTasks"]
    assert callable(answer)
    arrived: list[bytes] = []

    def look(request: rq.ListTasks) -> an.AnyAnswer:
        arrived.append(sys.stdout.buffer.getvalue())  # type: ignore[attr-defined]
        return answer(request)

    pool.answers["ListTasks"] = look
    assert run(pool, "map", "-o", "jsonl", "echo", ":::", "a", "b").exit_code == 0
    assert arrived[0] == b""
    assert json.loads(arrived[-1])["arguments"] == ["a"]


def test_in_json_each_task_is_an_object() -> None:
    result = run(RunningPool(echo), "map", "-o", "jsonl", "echo", ":::", "a", "fail3")
    assert result.exit_code == 1
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["number"], each["arguments"], each["stdout"]) for each in found] == [
        (1, ["a"], "a\n"),
        (2, ["fail3"], "fail3\n"),
    ]
    assert found[1]["task"]["exit_code"] == 3
    whole = run(RunningPool(echo), "map", "-o", "json", "echo", ":::", "a", "fail3")
    assert json.loads(whole.stdout) == found
    assert run(RunningPool(echo), "map", "-o", "quiet", "echo", ":::", "a").stdout == "1\n"


def test_an_error_cancels_what_has_not_ended() -> None:
    pool = RunningPool(echo, ends_first=(0,))
    pool.answers["ListTasks"] = NotAllowed("no")
    result = run(pool, "map", "echo", ":::", "a", "b")
    assert result.exit_code == 4
    assert pool.cancelled == {7}
    assert "cancelled: job 7" in result.stderr


def test_jobs_that_could_not_be_cancelled_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(map_run, "_FAREWELL_SECONDS", 0.0)
    pool = RunningPool(echo, ends_first=(0,))
    pool.answers |= {"ListTasks": NotAllowed("no"), "CancelJobs": Unreachable("away")}
    result = run(pool, "map", "echo", ":::", "a", "b")
    assert result.exit_code == 4
    assert "warning: not cancelled, and it goes on: job 7" in result.stderr
    assert "kestrelctl job cancel 7" in result.stderr
