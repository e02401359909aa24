"""Which stages a job may have, who runs them, and what may be reported of them."""

from __future__ import annotations

import pytest
from jobkit import job_spec
from msgspec.structs import replace

from kestrelctl.core.model.job.shape import shape_key
from kestrelctl.core.model.job.spec import HEAD_CHARACTERS, JobSpec
from kestrelctl.core.model.job.stage import MOST_TRIES, TAG, Stage, StageRun
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import Outcome, Result, bounded
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.protocol.handout import problem_with_size

OUT = Stage(name="out", argv=("put", "{n}"))


def job(*stages: Stage, **more: object) -> JobSpec:
    return job_spec(stages=stages, **more)


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ((replace(OUT, name="run"),), "stages are setup, in, out, not 'run'"),
        ((replace(OUT, name="Out"),), "not 'Out'"),
        ((OUT, replace(OUT, tries=2)), "two commands for the stage out"),
        ((replace(OUT, argv=()),), "stage out: the command is empty"),
        ((replace(OUT, argv=("",)),), "the command is empty"),
        ((replace(OUT, argv=("put", "\0")),), "NUL"),
        ((replace(OUT, tries=0),), "1 to 100 times, not 0"),
        ((replace(OUT, tries=MOST_TRIES + 1),), "1 to 100 times, not 101"),
        ((replace(OUT, time_limit_seconds=0.0),), "more than 0 seconds"),
        ((replace(OUT, time_limit_seconds=float("inf")),), "more than 0 seconds"),
    ],
)
def test_what_is_no_stage_is_refused(stages: tuple[Stage, ...], why: str) -> None:
    assert why in (problem_with_job(job(*stages)) or "")


def test_a_service_has_no_stages() -> None:
    assert "has no stages" in (problem_with_job(job(OUT, service=True)) or "")


def test_stages_with_limits_at_their_bounds_are_fine() -> None:
    stages = [
        Stage(name=name, argv=("x",), time_limit_seconds=1e-3, tries=tries)
        for name, tries in (("in", 1), ("out", MOST_TRIES), ("setup", 2))
    ]
    assert problem_with_job(job(*stages)) is None


def test_a_job_with_stages_goes_only_to_workers_that_run_them() -> None:
    assert TAG.upper() in shape_key(job(OUT))[1]
    assert TAG.upper() not in shape_key(job())[1]
    assert Template.of(1, job(OUT)).program.stages == (OUT,)


def test_stages_count_into_the_size_of_a_job() -> None:
    large = replace(OUT, argv=("x" * 600_000,))
    assert "command, environment and stages take" in (problem_with_size(job(large)) or "")
    assert problem_with_size(job(OUT)) is None


def test_the_head_of_a_job_has_the_beginnings_of_its_stages() -> None:
    [shown] = job(replace(OUT, argv=("x" * 5000, "y"), tries=3)).head().program.stages
    assert (shown.name, shown.tries) == ("out", 3)
    assert sum(map(len, shown.argv)) <= HEAD_CHARACTERS + 1


def test_what_cannot_be_of_stages_is_not_believed() -> None:
    said = (
        StageRun("out", 1e11, 10**30),
        StageRun("paint", 1.0),
        StageRun("setup", -5.0, -5),
        StageRun("setup", 2.0, 2),
    )
    result = Result(1, 1, 0, Outcome.DONE, 1000.0, 1.0, stages=said)
    kept = bounded(result, 1000.0, 1060.0).stages
    assert [(run.name, run.tries) for run in kept] == [("setup", 2), ("out", MOST_TRIES)]
    assert kept[1].wall_seconds <= 60.0 + 3600.0


def test_what_can_be_of_stages_is_kept() -> None:
    said = (StageRun("setup", 2.5, 2), StageRun("run", 30.0), StageRun("out", 0.25))
    result = Result(1, 1, 0, Outcome.DONE, 1000.0, 30.0, stages=said)
    assert bounded(result, 1000.0, 1060.0) == result


def test_an_attempt_had_its_place_for_all_of_its_stages() -> None:
    runs = (StageRun("setup", 2.5, 2), StageRun("run", 30.0), StageRun("out", 0.25))
    staged = Result(1, 1, 0, Outcome.DONE, 1000.0, 30.0, stages=runs)
    assert staged.held_seconds() == 32.75
    plain = Result(1, 1, 0, Outcome.DONE, 1000.0, 30.0, stored_seconds=2.0)
    assert plain.held_seconds() == 32.0
