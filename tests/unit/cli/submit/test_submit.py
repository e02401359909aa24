"""From a command line to a job."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from cli_fake_pool import EXPLANATION, FAILED_JOB, JOB, FakePool, run
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.cli.submit.items import read_elements, read_lines
from kestrelctl.client.upload import pieces
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.errors import NotAllowed, UsageError
from kestrelctl.grammar import described_job
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec
from kestrelctl.protocol.codec import MAX_ITEM_BYTES
from kestrelctl.protocol.requests import ListTasks, SubmitJob, UploadItems


def submitted(*args: str, stdin: bytes | None = None) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", *args, stdin=stdin)
    assert result.exit_code == 0, result.stderr
    spec = pool.last(SubmitJob).spec
    assert isinstance(spec, JobSpec)
    return spec


def refused(*args: str) -> str:
    pool = FakePool()
    result = run(pool, "submit", *args)
    assert result.exit_code == 2
    assert not pool.asked, "nothing is sent that is wrong"
    return result.stderr


# -- the command -----------------------------------------------------------------------------------


def test_a_command_is_a_job_of_one_task() -> None:
    assert submitted("--", "sleep", "1") == JobSpec(program=Program(argv=("sleep", "1")))


def test_options_after_the_dashes_belong_to_the_command() -> None:
    assert submitted("--name", "x", "--", "ls", "--name", "-o").program.argv == (
        "ls",
        "--name",
        "-o",
    )


def test_dashes_may_be_left_out_before_a_command() -> None:
    assert submitted("--priority", "3", "ls", "-l", "--name").program.argv == ("ls", "-l", "--name")


def test_dashes_of_the_command_stay() -> None:
    assert submitted("--", "git", "log", "--", "x").program.argv == ("git", "log", "--", "x")


def test_after_dashes_a_job_file_is_a_command(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.touch()
    assert submitted("--", str(file)).program.argv == (str(file),)


def test_all_options_reach_the_pool() -> None:
    spec = submitted(
        *("--array", "0-9:3", "--name", "n", "--priority", "255", "--cpus", "0.5"),
        *("--memory", "2G", "--requires", "A,B", "--requires", "C", "--max-running", "4"),
        *("--isolation", "bubblewrap"),
        *("--max-failures", "2", "--max-losses", "3", "--time-limit", "15m"),
        *(
            "--retry-memory",
            "3G,4G",
            "--success-exit",
            "0,3",
            "--retry-on",
            "75,SIGKILL",
            "--backoff",
            "5s",
        ),
        *("--max-backoff", "1h", "--stop-signal", "INT", "--stop-grace", "30s"),
        *("--on-worker-lost", "wait", "--env", "A=1", "--env", "B=x=y", "--", "run", "{}"),
    )
    assert (spec.program.success_exits, spec.retry_on) == (((0, 0), (3, 3)), ((75, 75), (-9, -9)))
    assert (spec.backoff_seconds, spec.max_backoff_seconds) == (5.0, 3600.0)
    assert spec.retry_memory_bytes == (3 << 30, 4 << 30)
    assert (spec.program.stop_signal, spec.program.stop_grace_seconds) == ("INT", 30.0)
    assert (spec.first, spec.count, spec.step) == (0, 4, 3)
    assert (spec.name, spec.priority) == ("n", 255)
    assert spec.request == {"cpus": 0.5, "memory": 2 << 30}
    assert spec.requires == ("A", "B", "C", "isolation:bubblewrap")
    assert (spec.max_running, spec.max_failures, spec.max_losses) == (4, 2, 3)
    assert (spec.program.time_limit_seconds, spec.on_worker_lost.value) == (900.0, "wait")
    assert spec.program.env == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((), "there is no command"),
        (("--",), "there is no command"),
        (("--", ""), "the command is empty"),
        (("--array", "9-1", "--", "x"), "runs backwards"),
        (("--array", "1-2000000000", "--", "x"), "1 to 1,000,000,000 tasks"),
        (("--array", "1", "--each-line", "f", "--", "x"), "exclude each other"),
        (("--priority", "256", "--", "x"), "priority"),
        (("--cpus", "0", "--", "x"), "0.001 to 1,000,000 cpus, not 0"),
        (("--memory", "5Q", "--", "x"), "not a size"),
        (("--time-limit", "0", "--", "x"), "not a duration"),
        (("--max-running", "0", "--", "x"), "max-running"),
        (("--on-worker-lost", "cry", "--", "x"), "on-worker-lost"),
        (("--env", "A", "--", "x"), "not a variable"),
        (("--env", "=1", "--", "x"), "not a variable"),
        (("--name", "x" * 201, "--", "x"), "200 characters"),
        (("--each-line", "/nonexistent", "--", "x"), "cannot be read"),
        (("--", "a\udcff"), "not UTF-8"),
        (("--", "x" * 10_000_000), "and a program gets at most 131,071 in one"),
        (("--", *["x" * 100_000] * 19), "too large"),
        (("--", "&" * 130_000), "too large"),
    ],
)
def test_what_is_wrong_is_refused_before_it_is_sent(args: tuple[str, ...], error: str) -> None:
    assert error in refused(*args)


@pytest.mark.parametrize(
    "option",
    ["input", "stdin", "each-line", "from-json", "fetch", "stdout", "stderr", "workdir"],
)
def test_a_file_without_a_name_is_refused_and_not_passed_over(option: str) -> None:
    """`--input ""` would send the whole current directory, and `--stdin ""` would send nothing."""
    assert f"--{option} is empty" in refused(f"--{option}", "", "--", "x")


# -- items -----------------------------------------------------------------------------------------


def test_each_line_is_a_task(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes("one\n\ntwo words\r\nthree\u2028x".encode())
    spec = submitted("--each-line", str(file), "--", "echo", "{}")
    assert spec.items == ("one", "", "two words", "three\u2028x")
    assert (spec.count, spec.first, spec.step) == (4, 0, 1)


def test_lines_come_from_standard_input() -> None:
    assert submitted("--each-line", "-", "--", "echo", stdin=b"a\nb\n").items == ("a", "b")


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"", "is empty"), (b"a\nb\xff\n", "line 2 of"), (b"a\nb\nc\0\n", "line 3 of")],
)
def test_lines_that_cannot_be_items_are_refused(tmp_path: Path, data: bytes, error: str) -> None:
    file = tmp_path / "lines"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=error):
        read_lines(file)


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r\0\ufeff", exclude_categories=["Cs"])))
)
def test_lines_are_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    file = tmp_path_factory.mktemp("lines") / "f"
    file.write_text("".join(f"{line}\n" for line in ["", *lines]), newline="")
    assert read_lines(file) == ("", *lines)


def test_each_element_of_a_json_array_is_a_task(tmp_path: Path) -> None:
    file = tmp_path / "items.json"
    file.write_text('[ {"x": 1.50, "s": "ä"}, "plain \\n text", [1, 2], 3, null ]')
    assert submitted("--from-json", str(file), "--", "echo").items == (
        '{"x":1.5,"s":"ä"}',
        "plain \n text",
        "[1,2]",
        "3",
        "null",
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ('{"a": 1}', "one object, not an array"),
        ("[]", "an empty array"),
        ("3", "one number"),
        ("nope", "is not JSON"),
        ("[" * 100_000, "items.json cannot be read"),
        ('["ok",\n{"a": "x\\u0000"}]', "line 2 of .*items.json has a null byte"),
    ],
)
def test_json_that_is_no_array_is_refused(tmp_path: Path, text: str, error: str) -> None:
    file = tmp_path / "items.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=error):
        read_elements(file)


def test_a_backslash_before_a_number_is_no_null_byte(tmp_path: Path) -> None:
    file = tmp_path / "items.json"
    file.write_text('["C:\\\\u0000"]')
    assert read_elements(file) == ("C:\\u0000",)


def test_a_file_that_is_not_utf_8_is_made_so_by_the_line_that_is_hinted(tmp_path: Path) -> None:
    file = tmp_path / "my lines"
    file.write_bytes("ä\n".encode("latin-1"))
    with pytest.raises(UsageError, match="is not UTF-8") as found:
        read_lines(file)
    made = subprocess.run(shlex.split(found.value.hint or ""), capture_output=True, check=True)
    assert made.stdout.decode() == "ä\n"


def test_many_items_go_ahead_of_the_job_in_pieces(tmp_path: Path) -> None:
    lines = [f'item {n} "quoted" & <tagged>' for n in range(20_000)]
    file = tmp_path / "lines"
    file.write_text("\n".join(lines))
    pool = FakePool()
    result = run(pool, "submit", "--each-line", str(file), "--", "echo", "{}")
    assert result.exit_code == 0
    uploads = [request for request in pool.asked if isinstance(request, UploadItems)]
    submit = pool.last(SubmitJob)
    assert len(uploads) > 3
    assert {upload.upload for upload in uploads} == {submit.upload} != {""}
    assert [line for upload in uploads for line in upload.lines] == lines
    assert submit.spec.items is None
    assert submit.spec.count == len(lines)
    assert all(len(codec.encode(upload)) < codec.MAX_PAYLOAD_BYTES for upload in uploads)


@given(st.lists(st.text(max_size=50_000).map(lambda s: s * 3), max_size=20))
def test_pieces_fit_and_lose_nothing(items: list[str]) -> None:
    found = list(pieces([item for item in items if item.isprintable()]))
    assert [item for piece in found for item in piece] == [i for i in items if i.isprintable()]
    for piece in found:
        size = codec.text_bytes(codec.encode(UploadItems(upload="u", lines=piece)))
        assert size < MAX_ITEM_BYTES + 100


def test_an_item_that_fits_into_no_message_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("short\n" + "\x01" * 100_000)
    assert "the item of task 1 is too large" in refused("--each-line", str(file), "--", "echo")


# -- what it says ----------------------------------------------------------------------------------


def test_it_says_what_was_submitted_and_what_to_do_next() -> None:
    result = run(FakePool(), "submit", "--array", "1-1000", "--", "x")
    assert result.stdout == "job 7: 1,000 tasks\n"
    assert result.stderr == "next: kestrelctl job wait 7, or kestrelctl job tasks 7\n"
    result = run(FakePool(), "--pool", "lab", "submit", "ls")
    lines = "next: kestrelctl --pool lab job wait 7, or kestrelctl --pool lab job tasks 7\n"
    assert result.stderr == lines, "as it stands it can be typed"


def test_who_submits_a_service_is_not_told_to_wait_for_its_end() -> None:
    result = run(FakePool(), "submit", "--service", "--copies", "2", "--", "x")
    assert result.stderr == "next: kestrelctl job scale 7 N, or kestrelctl job tasks 7\n"


def test_for_scripts_it_prints_the_id() -> None:
    assert run(FakePool(), "submit", "-o", "quiet", "--", "x").stdout == "7\n"


def test_in_json_it_prints_the_object_and_nothing_else() -> None:
    result = run(FakePool(), "submit", "-o", "json", "--", "x")
    assert json.loads(result.stdout) == {"job_id": 7, "tasks": 1000, "repeated": False}
    assert result.stderr == ""


def test_it_warns_if_no_worker_could_ever_run_it() -> None:
    result = run(FakePool(ExplainJob=EXPLANATION), "submit", "--cpus", "64", "--", "x")
    assert result.exit_code == 0
    assert (
        "warning: job 7 waits: no worker could ever run it; "
        "the closest is w1, which has 8 cpus where 64 cpus are wanted\n"
        "hint: add such a worker, or: kestrelctl job cancel 7\n"
    ) in result.stderr


@pytest.mark.parametrize(
    ("command", "items", "warns"),
    [
        ("echo {y}", None, "{y} in the command stays as it is"),
        (
            "echo {y} {x} {z} {y}",
            '[{"x": 1}]',
            "{y}, {z} in the command stay as they are",
        ),
        ("echo {} {n} {i} ${HOME}", None, "{}, {n}, {i} in the command stay as they are"),
        ("echo {x}", '[{"x": 1}]', ""),
        ("echo {a b} ${x} {;}", None, ""),
    ],
)
def test_placeholders_that_nothing_fills_are_told_of(
    tmp_path: Path, command: str, items: str | None, warns: str
) -> None:
    file = tmp_path / "items.json"
    file.write_text(items or "")
    given = ("--from-json", str(file)) if items else ()
    result = run(FakePool(), "submit", *given, "--paste-items", "--", "sh", "-c", command)
    assert ("in the command" in result.stderr) is bool(warns)
    assert warns in result.stderr


def test_it_warns_in_json_as_json() -> None:
    result = run(FakePool(ExplainJob=EXPLANATION), "submit", "-o", "json", "--", "x")
    assert "no worker could ever" in json.loads(result.stderr)["warning"]["message"]


def test_a_quiet_user_is_not_warned() -> None:
    pool = FakePool(ExplainJob=EXPLANATION)
    assert run(pool, "submit", "-q", "--", "x").stderr == ""
    assert not pool.last(SubmitJob).explain, "to find out why costs the manager a look at all"


@pytest.mark.parametrize("options", [(), ("-q",), ("--array", "1-9"), ("--hold",)])
def test_a_submission_is_one_request(options: tuple[str, ...]) -> None:
    pool = FakePool(ExplainJob=EXPLANATION)
    assert run(pool, "submit", *options, "--", "x").exit_code == 0
    assert [type(request) for request in pool.asked] == [SubmitJob]


def test_a_job_is_checked_once_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[JobSpec] = []

    def check(spec: JobSpec) -> str | None:
        checked.append(spec)
        return problem_with_job(spec)

    monkeypatch.setattr(described_job, "problem_with_job", check)
    spec = submitted("--array", "1-9", "--env", "A=1", "--", "x", "{}")
    assert checked == [spec]


def test_a_refusal_of_the_pool_is_an_error_with_its_status() -> None:
    error = NotAllowed("you may not submit", cause="not on the list", hint="ask ada")
    result = run(FakePool(SubmitJob=error), "submit", "--", "x")
    assert result.exit_code == 4
    assert result.stderr == "error: you may not submit\ncause: not on the list\nhint: ask ada\n"


# -- waiting ---------------------------------------------------------------------------------------


def test_waiting_ends_well_if_all_tasks_are_done() -> None:
    pool = FakePool()
    result = run(pool, "submit", "--wait", "--", "x")
    assert result.exit_code == 0
    assert result.stdout == "job 7 done: 1,000 tasks in 1m 00s\n"
    assert pool.last(SubmitJob).watch


def test_waiting_ends_badly_if_a_task_failed() -> None:
    pool = FakePool(Watch=an.Jobs(id="", jobs=[FAILED_JOB]))
    result = run(pool, "submit", "--wait", "--", "x")
    assert result.exit_code == 3
    assert result.stdout == "job 7 failed: 1,000 tasks in 1m 00s\n"
    assert (
        "error: job 7: 2 of 1,000 tasks not done (1 failed, 1 lost)\n"
        "cause: task 17 on w1: exit code 2\n"
        "hint: kestrelctl job tasks 7 --state failed\n"
    ) in result.stderr
    assert [state.value for state in pool.last(ListTasks).states] == ["failed", "lost"]


def test_waiting_prints_the_ended_job_as_json() -> None:
    pool = FakePool(Watch=an.Jobs(id="", jobs=[FAILED_JOB]))
    result = run(pool, "submit", "--wait", "-o", "json", "--", "x")
    assert json.loads(result.stdout)["failed"] == 1
    assert json.loads(result.stderr)["error"]["code"] == "tasks-failed"


def test_progress_waits_too_and_shows_nothing_in_a_pipe() -> None:
    pool = FakePool(Watch=an.Jobs(id="", jobs=[JOB]))
    pool.ends = [FAILED_JOB]
    result = run(pool, "submit", "--progress", "--", "x")
    assert result.exit_code == 3
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("--service", "--wait", "--", "x"), "nothing to wait for"),
        (("--copies", "3", "--", "x"), "--copies says how many tasks a service has"),
        (("--service", "--copies", "3", "--array", "1-2", "--", "x"), "--copies says how many"),
        (("--service", "--max-failures", "2", "--", "x"), "however it ends"),
        (("--retry-on", "75", "--", "x"), "max_failures"),
        (("--retry-memory", "2G", "--", "x"), "without a request of memory"),
    ],
)
def test_contradictions_are_refused(args: tuple[str, ...], word: str) -> None:
    result = run(FakePool(), "submit", *args)
    assert result.exit_code == 2
    assert word in result.stderr


def test_copies_of_a_service_are_its_tasks() -> None:
    spec = submitted("--service", "--copies", "3", "--", "x")
    assert (spec.service, spec.count) == (True, 3)


# -- on hold ---------------------------------------------------------------------------------------


def test_a_job_is_submitted_on_hold_and_the_next_step_is_its_release() -> None:
    assert submitted("--hold", "--", "ls").held
    assert not submitted("--", "ls").held
    assert "next: kestrelctl job release 7" in run(FakePool(), "submit", "--hold", "ls").stderr


def test_a_job_may_be_held_after_failures_in_a_row() -> None:
    assert submitted("--hold-after", "20", "--", "ls").hold_after == 20
    assert submitted("--", "ls").hold_after is None


def test_standard_error_may_go_into_standard_output() -> None:
    assert submitted("--join", "--", "ls").program.join
    assert not submitted("--", "ls").program.join


def test_a_job_may_be_stopped_after_failed_tasks() -> None:
    assert submitted("--stop-after", "3", "--", "ls").stop_after == 3
    assert submitted("--", "ls").stop_after is None
    assert "never fails" in refused("--service", "--hold-after", "3", "--", "ls")


@pytest.mark.parametrize("tags", [" ", ","])
def test_a_tag_that_is_empty_is_refused_and_not_passed_over(tags: str) -> None:
    pool = FakePool()
    result = run(pool, "submit", "--requires", tags, "--", "true")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --requires names no tag\nhint: write --requires LINUX")
    assert not pool.asked


@pytest.mark.parametrize("otherwise", ["wait", "run"])
def test_what_becomes_of_a_job_when_its_parents_fail_needs_parents(otherwise: str) -> None:
    """It was taken, and meant nothing."""
    options = ("--if-parent-fails", otherwise)
    assert "--after JOB" in refused(*options, "--", "ls")
    assert submitted(*options, "--after", "7", "--", "ls").if_parent_fails == otherwise
    assert submitted(*options, "--after-each", "7", "--", "ls").if_parent_fails == otherwise
    assert submitted("--if-parent-fails", "cancel", "--", "ls") == submitted("--", "ls")
