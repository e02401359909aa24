"""Stages on a command line and in job files, and what is shown of them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import JOB, NOW, TASK, FakePool, job_with, run
from msgspec.structs import replace

from kestrelctl.core.model.job.stage import Stage, StageRun
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.answers import GraphJob
from kestrelctl.protocol.job_answers import StageSum
from kestrelctl.protocol.requests import SubmitJob, UploadItems

RUNS = replace(TASK, state=TaskState.RUNNING, stage="in", exit_code=None)
ENDED = replace(TASK, stages=(StageRun("setup", 2.0, 3), StageRun("run", 1.5)))


def submitted(*args: str) -> tuple[Stage, ...]:
    pool = FakePool()
    result = run(pool, "submit", *args)
    assert result.exit_code == 0, result.stderr
    found = pool.last(SubmitJob).spec.program.stages
    assert isinstance(found, tuple)
    return found


def refused(*args: str) -> str:
    pool = FakePool()
    result = run(pool, "submit", *args)
    assert (result.exit_code, pool.asked) == (2, [])
    return result.stderr


def test_options_say_what_is_done_before_and_after_a_command() -> None:
    assert submitted(
        "--stage-out", "put 'a b' {n}", "--setup", "module load x", "--stage-in=get {}",
        "--stage-limit", "out=10m", "--stage-limit=in=90", "--stage-tries", "out=5",
        "--", "true",
    ) == (
        Stage(name="setup", argv=("module", "load", "x")),
        Stage(name="in", argv=("get", "{}"), time_limit_seconds=90.0),
        Stage(name="out", argv=("put", "a b", "{n}"), time_limit_seconds=600.0, tries=5),
    )  # fmt: skip


def test_without_them_a_job_has_no_stages() -> None:
    assert submitted("--", "true") == ()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--setup", "echo 'x"), "quote as in a shell"),
        (("--setup", " "), "there is no word in it"),
        (("--stage-limit", "out=5m"), "--stage-out COMMAND"),
        (("--stage-tries", "in=5"), "--stage-in COMMAND"),
        (("--setup", "x", "--stage-limit", "run=5m"), "NAME=… with setup, in, out"),
        (("--setup", "x", "--stage-limit", "5m"), "NAME=…"),
        (("--setup", "x", "--stage-limit", "setup=soon"), "not a duration"),
        (("--setup", "x", "--stage-tries", "setup=many"), "not a number of tries"),
        (("--setup", "x", "--stage-tries", "setup=0"), "1 to 100 times"),
        (("--setup", "x", "--stage-tries", "setup=101"), "1 to 100 times"),
        (("--setup", "x", "--stage-tries", "setup=1", "--stage-tries", "setup=2"), "given twice"),
        (("--setup", "x", "--service"), "no stages"),
    ],
)
def test_what_says_nothing_of_a_stage_is_refused(words: tuple[str, ...], why: str) -> None:
    assert why in refused(*words, "--", "true")


def test_a_placeholder_that_nothing_fills_is_remarked_upon() -> None:
    result = run(FakePool(), "submit", "--stage-in", "get {seed}", "--", "true")
    assert "{seed} in the command stays as it is" in result.stderr


STAGED = """
command = ["./fit", "{n}"]
[stage.setup]
command = "module load fit"
[stage.out]
command = ["put", "{n}"]
time-limit = "10m"
tries = 5
"""


def test_a_job_file_has_a_table_for_each_stage(tmp_path: Path) -> None:
    file = tmp_path / "fit.toml"
    file.write_text(STAGED)
    assert submitted(str(file)) == (
        Stage(name="setup", argv=("/bin/sh", "-c", "module load fit")),
        Stage(name="out", argv=("put", "{n}"), time_limit_seconds=600.0, tries=5),
    )
    assert submitted(str(file), "--setup", "true")[0].argv == ("true",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[stage.run]\ncommand = "x"', "unknown key run"),
        ('[stage.out]\ncommand = "x"\nretries = 3', "unknown key retries"),
        ("[stage.out]\ntries = 3", "the stage out has no command"),
        ('[stage.out]\ncommand = "x"\ntries = [3]', "tries is neither text nor a number"),
        ('[stage]\nout = "x"', "stage.out is not a table"),
        ('stage = "x"', "stage is not a table"),
    ],
)
def test_what_is_no_stage_of_a_job_file_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'command = ["true"]\n{text}\n')
    assert why in refused(str(file))


def test_jobs_of_one_file_share_stages_and_have_their_own(tmp_path: Path) -> None:
    file = tmp_path / "flow.toml"
    file.write_text(
        """
        [stage.setup]
        command = ["load"]
        [job.a]
        command = ["a"]
        [job.b]
        command = ["b"]
        [job.b.stage.out]
        command = ["put"]
        tries = 2
        [job.c]
        command = ["c"]
        [job.c.stage.setup]
        command = ["other"]
        """
    )
    pool = FakePool()
    assert run(pool, "submit", str(file)).exit_code == 0
    lines = pool.last(UploadItems).lines
    a, b, c = (msgspec.json.decode(line, type=GraphJob).spec.program.stages for line in lines)
    load = Stage(name="setup", argv=("load",))
    assert a == (load,)
    assert b == (load, Stage(name="out", argv=("put",), tries=2))
    assert c == (Stage(name="setup", argv=("other",)),)


def tasks(*args: str, stages: list[str]) -> str:
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=[RUNS, ENDED], stages=stages))
    return run(pool, "job", "tasks", "7", *args).stdout


def test_a_list_of_tasks_shows_the_stages_of_a_job_that_has_some() -> None:
    heading, runs, ended = tasks(stages=["setup"]).splitlines()
    assert heading.split()[:3] == ["TASK", "STATE", "STAGE"]
    assert runs.split()[:3] == ["17", "running", "in"]
    assert ended.split()[:3] == ["17", "failed", "w1"]
    assert "STAGE" not in tasks(stages=[])


def test_in_json_a_task_has_the_times_of_its_stages() -> None:
    runs, ended = json.loads(tasks("-o", "json", stages=["setup"]))
    assert (runs["stage"], runs["stages"]) == ("in", [])
    assert ended["stages"] == [
        {"name": "setup", "wall_seconds": 2.0, "tries": 3},
        {"name": "run", "wall_seconds": 1.5, "tries": 1},
    ]


def test_job_info_says_how_stages_went() -> None:
    view = replace(
        job_with(
            JOB,
            {"stages": (Stage(name="out", argv=("put", "a b"), time_limit_seconds=60.0, tries=3),)},
        ),
        submitted_at=NOW - 60,
        stage_sums=[
            StageSum(name="run", tasks=1000, mean_seconds=1.5),
            StageSum(name="out", tasks=998, mean_seconds=2.5, repeated=7),
        ],
    )
    pool = FakePool(ListJobs=an.Jobs(id="", jobs=[view]))
    shown = run(pool, "job", "info", "7").stdout
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert "stage out put 'a b' (1m 00s a try, up to 3 tries)" in lines
    assert "STAGE TASKS MEAN REPEATED" in lines
    assert "out 998 2.5 s 7" in lines
    assert "run 1,000 1.5 s 0" in lines
