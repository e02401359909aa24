"""`submit --environment`: what users can say, and what the manager makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_environment import TaskEnvironment
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.own_tags import own_tags_of
from kestrelctl.errors import NotFound
from kestrelctl.manager.requests.environments import no_environments, with_environment
from kestrelctl.protocol import requests as rq

SCIENCE = TaskEnvironment("science", "venv", "numpy\n")


def submitted(*words: str) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", *words)
    assert result.exit_code == 0, result.stderr
    return pool.last(rq.SubmitJob).spec


def test_submit_and_job_files_name_an_environment(tmp_path: Path) -> None:
    named = TaskEnvironment("science")
    assert submitted("--environment", "science", "--", "true").program.environment == named
    assert submitted("--", "true").program.environment is None
    path = tmp_path / "job.toml"
    path.write_text('command = ["true"]\nenvironment = "science"\n')
    assert submitted(str(path)).program.environment == named


def test_what_a_user_says_of_an_environment_beside_its_name_does_not_count() -> None:
    asked = JobSpec(
        program=Program(argv=("true",), environment=TaskEnvironment("science", "podman", "evil\n"))
    )
    assert with_environment(asked, lambda wanted: SCIENCE).program.environment == SCIENCE


def test_a_pool_without_classes_says_so() -> None:
    asked = JobSpec(program=Program(argv=("true",), environment=TaskEnvironment("science")))
    with pytest.raises(NotFound, match="there is no environment science"):
        with_environment(asked, no_environments)


def test_a_job_inside_an_environment_goes_to_workers_that_make_it_and_takes_it_along() -> None:
    spec = JobSpec(program=Program(argv=("true",), environment=SCIENCE))
    assert own_tags_of(spec) == ["environment:venv"]
    assert own_tags_of(JobSpec(program=Program(argv=("true",)))) == []
    assert Template.of(1, spec).program.environment == SCIENCE
    assert spec.head().program.environment == TaskEnvironment("science", "venv"), (
        "no recipe in lists"
    )


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        (TaskEnvironment(""), "1 to 32 characters"),
        (TaskEnvironment("a" * 33), "1 to 32 characters"),
        (TaskEnvironment("a", "venv", "x" * 65_537), "at most 65,536 characters"),
    ],
)
def test_names_and_recipes_have_bounds(environment: TaskEnvironment, problem: str) -> None:
    told = problem_with_job(JobSpec(program=Program(argv=("true",), environment=environment)))
    assert told is not None
    assert problem in told
