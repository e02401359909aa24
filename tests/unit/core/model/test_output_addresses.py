"""What tasks leave, at an address: what a job may say, who gets its tasks, and what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fake_pool import EXPLANATION, JOB, FakePool, job_with, run
from msgspec.structs import replace

from kestrelctl.core.model.files.outputs import place_of, problem_with_output_address
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.grammar.why_waiting import conclusion
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.requests import SubmitJob

TO = "file:///shared/ada@users.pool/run"
WORDS = ("--output", "*.csv", "--output-to", TO)


def submitted(*words: str) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", *words)
    assert result.exit_code == 0, result.stderr
    return pool.last(SubmitJob).spec


def problem(address: str) -> str:
    return (
        problem_with_output_address(Program(argv=("x",), outputs=("*",), output_to=address)) or ""
    )


def test_an_address_goes_with_the_job() -> None:
    spec = submitted(*WORDS, "--", "true")
    assert spec.program.output_to == TO
    assert problem_with_job(spec) is None
    template = Template.of(7, spec, "ada@users.pool")
    assert (template.program.output_to, template.owner) == (TO, "ada@users.pool")
    assert spec.head().program.output_to == TO


def test_a_job_file_says_it_too(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(f'command = ["true"]\noutput = "*"\noutput-to = "{TO}"\n')
    assert submitted(str(path)).program.output_to == TO


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://host/x", "nothing says how files are written by https"),
        ("http://localhost/x", "nothing says how files are written by https"),
        ("s3://bucket/key", "file: addresses only"),
        ("ftp://host/x", "file: addresses only"),
        ("results", "is no address"),
        ("/shared/results", "is no address"),
        ("file:results", "absolute"),
        ("file://host/x", "absolute"),
        ("file:///shared/../x", "no .."),
        ("file:///shared/%2e%2e/x", "no .."),
        ("file:///shared/a b", "no spaces"),
        ("file://me:secret@/x", "no user"),
        ("file:///", "names one"),
        ("file:///x?y", "question mark"),
    ],
)
def test_other_addresses_are_refused_with_the_reason(address: str, said: str) -> None:
    assert said in problem(address)
    pool = FakePool()
    result = run(pool, "submit", "--keep", "*", "--output-to", address, "--", "true")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not pool.count(SubmitJob)


def test_a_path_may_hold_anything_else() -> None:
    for address in (TO, f"{TO}/", "file:///shared/a%20b%E9"):
        assert problem(address) == ""


def test_each_task_has_a_directory_there() -> None:
    assert place_of(TO, 7) == place_of(f"{TO}/", 7) == f"{TO}/7"


def test_an_address_without_globs_is_refused() -> None:
    spec = JobSpec(program=Program(argv=("x",), output_to=TO))
    assert "--keep GLOB" in (problem_with_job(spec) or "")


def test_the_pool_has_nothing_to_fetch_then() -> None:
    pool = FakePool()
    result = run(pool, "submit", *WORDS, "--fetch", "home", "--", "true")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr
    assert not pool.count(SubmitJob)


def test_only_workers_that_write_there_get_a_job() -> None:
    assert shape_key(submitted(*WORDS, "--", "true"))[1] == {"OUTPUTS", "OUTPUT-TO-FILE"}
    assert shape_key(submitted("--keep", "*", "--", "true"))[1] == {"OUTPUTS"}


def test_a_pool_none_of_whose_workers_writes_there_says_so() -> None:
    lacking = Refusal(Reason.MISSING_TAGS, wanted="OUTPUT-TO-FILE")
    obstacle = an.Obstacle(workers=1, example="w1@x", refusal=lacking)
    told = replace(EXPLANATION, obstacles=[obstacle], could_run=0, ever=False)
    why, hint = conclusion(told)
    assert "write what tasks leave to file: addresses" in why
    assert "without --output-to" in (hint or "")


def test_people_are_told_where_the_files_are() -> None:
    tasks = [an.TaskView(index=n, task_id=n, state=TaskState.DONE, output_files=2) for n in (1, 2)]
    pool = FakePool(
        ListTasks=an.Tasks(id="", tasks=tasks),
        ListJobs=an.Jobs(
            id="",
            jobs=[job_with(JOB, {"outputs": ("*.csv",), "output_to": TO})],
        ),
    )
    shown = run(pool, "job", "info", "7").stdout
    assert f"outputs go to   {TO}\n" in shown
    assert f"files           4 files of 2 tasks, at {TO}\n" in shown
