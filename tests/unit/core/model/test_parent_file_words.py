"""`--input job:12`: what another job's tasks left is named, waited for, and one of a job file."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import FakePool, FakeShare, run

from kestrelctl.core.model.files.parent_files import ParentFiles
from kestrelctl.core.model.job.after import After, WantedEnd
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol.answers import GraphJob
from kestrelctl.protocol.requests import SubmitJob, UploadItems


def submitted(*words: str) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", *words, "--", "true")
    assert result.exit_code == 0, result.stderr
    return pool.last(SubmitJob).spec


def refusal(*words: str) -> str:
    pool = FakePool()
    result = run(pool, "submit", *words, "--", "true")
    assert result.exit_code == 2, result.stderr
    assert not pool.count(SubmitJob)
    return result.stderr


def graph(path: Path, text: str) -> list[GraphJob]:
    """The jobs of a file, as the pool is told of them."""
    path.write_text(text)
    pool = FakePool()
    result = run(pool, "submit", str(path), share=FakeShare())
    assert result.exit_code == 0, result.stderr
    return [msgspec.json.decode(line, type=GraphJob) for line in pool.last(UploadItems).lines]


def test_files_of_a_job_come_in_a_directory_and_the_job_is_waited_for() -> None:
    spec = submitted("--input", "job:12", "--input", "job:9=parts")
    assert spec.program.parent_files == (
        ParentFiles(name="job-12", job_id=12),
        ParentFiles(name="parts", job_id=9),
    )
    assert spec.after == (After(9, 9), After(12, 12))
    assert spec.program.inputs == ()


def test_how_a_job_is_waited_for_stays_as_it_was_said() -> None:
    spec = submitted("--input", "job:12", "--after", "11-13:ended")
    assert spec.after == (After(11, 13, WantedEnd.ENDED),)


def test_who_waits_for_a_failure_gets_no_files_of_it() -> None:
    assert "--after 12:ended" in refusal("--input", "job:12", "--after", "12:failed")


def test_tasks_that_wait_one_for_one_get_the_files_of_their_own() -> None:
    spec = submitted("--input", "job:12", "--input", "job:9", "--after-each", "12")
    assert spec.program.parent_files == (
        ParentFiles(name="job-12", job_id=12, each=True),
        ParentFiles(name="job-9", job_id=9),
    )
    assert spec.after == (After(9, 9),)


@pytest.mark.parametrize("word", ["job:", "job:x", "job:0", "job:-1", "job:1e3", "job:٣"])
def test_what_is_no_job_is_refused(word: str) -> None:
    refusal("--input", word)


def test_a_name_is_that_of_a_directory_and_there_once() -> None:
    assert "two inputs are called" in refusal("--input", "job:1=a", "--input", "job:2=a")
    assert "scratch directory's own" in refusal("--input", "job:1=../a")


def test_a_directory_of_the_users_is_no_place_for_them(tmp_path: Path) -> None:
    refusal("--input", "job:1", "--workdir", str(tmp_path))


def test_jobs_of_one_file_name_each_other(tmp_path: Path) -> None:
    text = """
    command = "true"
    output = "x"
    [job.last]
    input = ["job:first", "job:7"]
    [job.first]
    """
    first, last = graph(tmp_path / "flow.toml", text)
    assert first.spec.name == "first"
    assert last.after == (After(0, 0),)
    assert last.spec.after == (After(7, 7),)
    assert last.spec.program.parent_files == (
        ParentFiles(name="first", job_id=0, placed=True),
        ParentFiles(name="job-7", job_id=7),
    )


def test_a_file_says_itself_how_the_other_must_end(tmp_path: Path) -> None:
    text = """
    command = "true"
    output = "x"
    [job.fit-1]
    [job.fit-2]
    [job.all]
    input = ["job:fit-1=a", "job:fit-2=b"]
    after = "fit-*:ended"
    """
    assert graph(tmp_path / "flow.toml", text)[2].after == (After(0, 1, WantedEnd.ENDED),)


def test_files_of_jobs_and_files_of_this_machine_come_together(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("1\n")
    text = """
    command = "true"
    [job.first]
    output = "x"
    [job.last]
    input = ["table", "job:first"]
    """
    last = graph(tmp_path / "flow.toml", text)[1].spec
    assert [each.name for each in (*last.program.inputs, *last.program.parent_files)] == [
        "table",
        "first",
    ]


def test_jobs_of_one_file_whose_tasks_wait_one_for_one(tmp_path: Path) -> None:
    text = """
    command = "true"
    array = "1-3"
    output = "x"
    [job.first]
    [job.last]
    input = "job:first"
    after-each = "first"
    """
    last = graph(tmp_path / "flow.toml", text)[1]
    assert (last.after, last.after_each) == ((), 0)
    assert last.spec.program.parent_files == (
        ParentFiles(name="first", job_id=0, placed=True, each=True),
    )


def test_the_latest_job_may_be_meant() -> None:
    spec = submitted("--input", "job:last=parts", "--after-each", "last")
    assert (spec.after_each, spec.after) == (7, ())
    assert spec.program.parent_files == (ParentFiles(name="parts", job_id=7, each=True),)
