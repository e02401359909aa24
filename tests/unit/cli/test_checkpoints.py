"""Checkpoints at the command line: what is asked for, and what is shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import JOB, FakePool, job_with, run
from msgspec.structs import replace

from kestrelctl.core import effects as fx
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.checkpoint import TAG, MadeCheckpoint
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.seal import Seals
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.handout import run_messages
from kestrelctl.protocol.job_answers import CheckpointView


def submitted(*words: str) -> JobSpec:
    pool = FakePool()
    found = run(pool, "submit", *words)
    assert found.exit_code == 0, found.stderr
    spec = pool.last(rq.SubmitJob).spec
    assert isinstance(spec, JobSpec)
    return spec


WISHES = ["--checkpoint", "state", "--checkpoint", "log/", "--checkpoint-every", "90"]


def test_a_job_says_what_it_goes_on_from() -> None:
    spec = submitted(*WISHES, "--checkpoint-exit", "85", "--", "./relax")
    assert spec.program.checkpoints == ("state", "log/")
    assert (spec.program.checkpoint_seconds, spec.program.checkpoint_exit) == (90.0, 85)
    plain = submitted("--", "true")
    assert (
        plain.program.checkpoints,
        plain.program.checkpoint_seconds,
        plain.program.checkpoint_exit,
    ) == ((), None, None)


@pytest.mark.parametrize("value", ['"state"', '["state"]'])
def test_a_job_file_may_say_it(tmp_path: Path, value: str) -> None:
    file = tmp_path / "job.toml"
    more = 'checkpoint-every = "1m"\ncheckpoint-exit = 85\n'
    file.write_text(f'command = ["./relax"]\ncheckpoint = {value}\n{more}')
    spec = submitted(str(file))
    assert spec.program.checkpoints == ("state",)
    assert (spec.program.checkpoint_seconds, spec.program.checkpoint_exit) == (60.0, 85)


def test_a_directory_of_ones_own_is_refused() -> None:
    found = run(FakePool(), "submit", "--checkpoint", "state", "--workdir", "/tmp", "--", "true")
    assert found.exit_code == 2
    assert "scratch directories" in found.stderr


def test_the_tag_of_workers_that_can_do_it_is_theirs_alone() -> None:
    words = ["worker", "run", "--pool", "p", "--credentials", "c", "--tags", TAG]
    found = run(FakePool(), *words)
    assert found.exit_code == 2
    assert f"the tag {TAG} cannot be given" in found.stderr


def test_such_a_job_asks_for_that_tag_and_workers_are_told_what_it_says() -> None:
    spec = JobSpec(
        program=Program(
            argv=("true",), checkpoints=("state",), checkpoint_seconds=5.0, checkpoint_exit=85
        ),
    )
    assert TAG.upper() in shape_key(spec)[1]
    assert TAG.upper() not in shape_key(JobSpec(program=Program(argv=("true",))))[1]
    template = Template.of(1, spec)
    assert template.program.checkpoints == ("state",)
    assert (template.program.checkpoint_seconds, template.program.checkpoint_exit) == (5.0, 85)


def test_job_tasks_shows_the_latest_where_there_are_some() -> None:
    task = an.TaskView(index=0, task_id=1, state=TaskState.RUNNING)
    plain = FakePool(ListTasks=an.Tasks(id="", tasks=[task]))
    assert "CHECKPOINT" not in run(plain, "-o", "table", "job", "tasks", "7").stdout
    view = CheckpointView(n=3, age_seconds=90.0)
    pool = FakePool(ListTasks=an.Tasks(id="", tasks=[task, replace(task, checkpoint=view)]))
    shown = run(pool, "-o", "table", "job", "tasks", "7").stdout
    assert "CHECKPOINT" in shown
    assert "3 (1m 30s ago)" in shown
    [_, told] = msgspec.json.decode(run(pool, "-o", "json", "job", "tasks", "7").stdout)
    assert told["checkpoint"]["n"] == 3
    assert told["checkpoint"]["age_seconds"] == 90.0


def test_job_info_says_how_many_attempts_went_on() -> None:
    says = {"checkpoints": ("state",), "checkpoint_seconds": 600.0, "checkpoint_exit": 85}
    pool = FakePool(
        ListTasks=an.Tasks(id="", tasks=[]),
        ListJobs=an.Jobs(id="", jobs=[job_with(replace(JOB, resumed=2), says)]),
    )
    shown = run(pool, "-o", "table", "job", "info", "7").stdout
    assert "state every 10m 00s, and exit code 85 goes on\n" in shown
    assert "resumed         2 attempts went on from a checkpoint\n" in shown


def test_what_attempts_go_on_from_travels_with_them_in_messages_that_fit() -> None:
    piece = Piece(sha256="0" * 64, size_bytes=1, url="https://share/" + "x" * 200)
    stored = StoredFile(sha256="0" * 64, size_bytes=400, pieces=(piece,) * 400)
    run_effect = fx.Run(
        worker="w@workers.pool/1",
        spans=[(10, 1, 0, 9, 0)],
        claims=[{"cpus": 1000}],
        templates=[],
        items=[],
        items_of=frozenset(),
        forget=[],
        checkpoints=[(number, MadeCheckpoint(1, stored)) for number in range(10, 19)],
    )
    messages = run_messages(run_effect, [], Seals(b"x" * 32), lambda span, why: None)
    assert len(messages) > 1
    assert all(codec.fits(codec.encode(message)) for message in messages)
    for message in messages:
        numbers = {first + k for first, _, _, n, _, _ in message.spans for k in range(n)}
        assert {number for number, _ in message.checkpoints} == numbers
