"""What tasks wrote, as files of whoever submits."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fake_pool import ENDED_JOB, FAILED_JOB, FakePool, log_of, run
from msgspec.structs import replace

from kestrelctl.errors import Incomplete, TasksFailed, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.job_answers import TaskOutput


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pool_of(*outputs: TaskOutput) -> FakePool:
    """A pool with a job of as many tasks, which has ended."""
    view = replace(ENDED_JOB, tasks=len(outputs))
    return FakePool(
        ListJobs=an.Jobs(id="", jobs=[view]),
        Watch=an.Jobs(id="", jobs=[view]),
        AllLogs=lambda r: an.LogPage(id="", outputs=list(outputs), after=None),
    )


def wrote(task_id: int, data: bytes) -> TaskOutput:
    return TaskOutput(task_id=task_id, data=data, size_bytes=len(data))


def test_each_task_has_a_file_by_its_number_in_directories_that_are_made(here: Path) -> None:
    pool = pool_of(wrote(1, b"one\n"), wrote(2, b"\xff\n"))
    result = run(pool, "job", "logs", "7", "--stderr", "--to", "errors/of-{n}.txt")
    assert (here / "errors/of-1.txt").read_bytes() == b"one\n"
    assert (here / "errors/of-2.txt").read_bytes() == b"\xff\n"
    assert result.stdout == "job 7: stderr of 2 tasks, to errors/of-{n}.txt\n"
    assert pool.last(rq.AllLogs).stream == "stderr"


def test_what_was_there_under_the_name_is_replaced(here: Path) -> None:
    (here / "out").write_text("long before")
    run(pool_of(wrote(1, b"new")), "job", "logs", "7", "--to", "out")
    assert (here / "out").read_text() == "new"


def test_a_long_output_comes_whole(here: Path) -> None:
    pool = pool_of(TaskOutput(task_id=1, more=True))
    pool.answers["Logs"] = lambda r: log_of(
        b"more" if r.offset else b"some", size_bytes=8, next_offset=None if r.offset else 4
    )
    run(pool, "job", "logs", "7", "--to", "out")
    assert (here / "out").read_text() == "somemore"


def test_what_cannot_be_had_is_told_when_the_rest_is_written(here: Path) -> None:
    lost = TaskOutput(task_id=1, why_missing="it was lost with its worker")
    result = run(pool_of(lost, wrote(2, b"two")), "job", "logs", "7", "--to", "{n}")
    assert (result.exit_code, (here / "2").read_text()) == (Incomplete.exit_status, "two")


def test_a_file_that_cannot_be_written_is_named(here: Path) -> None:
    (here / "taken").mkdir()
    result = run(pool_of(wrote(1, b"x")), "job", "logs", "7", "--to", "taken")
    assert "error: taken cannot be written\ncause: Is a directory\n" in result.stderr


def test_submit_waits_and_writes_both_streams(here: Path) -> None:
    pool = pool_of(wrote(1, b"x"), wrote(2, b"y"))
    words = ("--array", "1-2", "--stdout", "out-{n}", "--stderr", "err-{n}")
    result = run(pool, "submit", *words, "--", "true")
    assert result.exit_code == 0, result.stderr
    assert sorted(each.name for each in here.iterdir()) == ["err-1", "err-2", "out-1", "out-2"]


def test_what_one_stream_lacks_keeps_the_other_from_nobody(here: Path) -> None:
    pool = pool_of(wrote(1, b"x"))
    lost = TaskOutput(task_id=1, why_missing="it was lost with its worker")
    pool.answers["AllLogs"] = lambda r: an.LogPage(
        id="", outputs=[lost if r.stream == "stdout" else wrote(1, b"said")]
    )
    result = run(pool, "submit", "--stdout", "out", "--stderr", "err", "--", "true")
    assert result.exit_code == Incomplete.exit_status
    assert (here / "err").read_text() == "said"


def test_that_tasks_failed_is_told_before_what_cannot_be_had_of_them(here: Path) -> None:
    pool = pool_of(TaskOutput(task_id=1, why_missing="it was lost with its worker"))
    pool.answers["Watch"] = an.Jobs(id="", jobs=[replace(FAILED_JOB, tasks=1)])
    result = run(pool, "submit", "--stdout", "out", "--", "false")
    assert result.exit_code == TasksFailed.exit_status


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--array", "1-2", "--stdout", "out"), "out would be one file for 2 tasks"),
        (("--array", "1-2", "--stderr", "e{i}"), "e{i} would be one file for 2 tasks"),
        (("--stdout", "both", "--stderr", "both"), "both would be the file of both streams"),
        (("--join", "--stderr", "err"), "nothing would be in err: --join has stderr in stdout"),
    ],
)
def test_a_pattern_that_would_mix_what_was_written_is_refused(
    here: Path, words: tuple[str, ...], why: str
) -> None:
    pool = pool_of(wrote(1, b"x"))
    result = run(pool, "submit", *words, "--", "true")
    assert (result.exit_code, pool.count(rq.SubmitJob)) == (UsageError.exit_status, 0)
    assert f"error: {why}\n" in result.stderr


def test_the_files_of_logs_are_those_of_every_task(here: Path) -> None:
    pool = pool_of(wrote(1, b"x"), wrote(2, b"y"))
    for words in (("1", "--to", "{n}"), ("--all", "--to", "{n}"), ("-f", "--to", "{n}")):
        assert run(pool, "job", "logs", "7", *words).exit_code == UsageError.exit_status
    assert "one file for 2 tasks" in run(pool, "job", "logs", "7", "--to", "out").stderr
    assert not list(here.iterdir())
