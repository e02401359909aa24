"""Where tasks start: what a job may say, who takes it, and what the command line makes of it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import CONTEXT, EXPLANATION, JOB, FakePool, job_with, run

from kestrelctl.cli.job.explain import conclusion
from kestrelctl.core.members.worker_class import WorkerClass, class_key
from kestrelctl.core.model.files import workdir
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import Shape, shape_key
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.refusal import Reason, Refusal
from kestrelctl.core.model.validate import problem_with_job
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.scheduling.match import Terms, match
from kestrelctl.manager.views import summary
from kestrelctl.protocol import answers as an
from kestrelctl.protocol.requests import SubmitJob
from kestrelctl.worker.isolation.file_view import FileView

LOCAL = msgspec.structs.replace(CONTEXT, own_directories=True)


def match_of(directory: str, *tags: str) -> Terms | Refusal:
    """What a worker with these tags says to a job that names a directory."""
    request, requires, *_ = shape_key(JobSpec(program=Program(argv=("true",), workdir=directory)))
    key = class_key(WorkerAd(tags=tags))
    return match(Shape(dict(request), requires), WorkerClass(key[0], dict(key[1])))


def test_only_a_worker_that_lets_users_choose_gets_a_job_with_a_directory() -> None:
    refused = match_of("/home/ada")
    assert isinstance(refused, Refusal)
    assert (refused.reason, refused.wanted) == (Reason.MISSING_TAGS, "WORKDIR")
    assert isinstance(match_of("/home/ada", workdir.TAG), Terms)
    assert isinstance(match_of(""), Terms)


def test_a_worker_is_told_the_directory() -> None:
    assert (
        Template.of(
            1, JobSpec(program=Program(argv=("true",), workdir="/home/ada"))
        ).program.workdir
        == "/home/ada"
    )
    assert b"workdir" not in msgspec.json.encode(
        Template.of(1, JobSpec(program=Program(argv=("true",))))
    )


@pytest.mark.parametrize("directory", ["work", "/a\0b", "/" + "x" * 4095])
def test_what_is_no_directory_is_refused(directory: str) -> None:
    problem = problem_with_job(JobSpec(program=Program(argv=("true",), workdir=directory)))
    assert problem is not None
    assert "directory" in problem


def test_other_users_do_not_learn_the_directory() -> None:
    assert summary(job_with(JOB, {"workdir": "/home/ada"})).spec.program.workdir == ""


# -- the command line ------------------------------------------------------------------------------


def submitted(*words: str, local: bool = True) -> str:
    """The directory of a job that is submitted so."""
    pool = FakePool()
    result = run(pool, "submit", *words, context=LOCAL if local else CONTEXT)
    assert result.exit_code == 0, result.stderr
    found = pool.last(SubmitJob).spec.program.workdir
    assert isinstance(found, str)
    return found


def test_here_is_the_default_on_a_pool_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    assert submitted("--", "./simulate") == str(tmp_path)
    assert submitted("--", "./simulate", local=False) == ""
    assert submitted("--workdir", "scratch", "--", "true") == ""
    assert submitted("--workdir", "sub", "--", "true") == str(tmp_path / "sub")
    assert submitted("--chdir", "sub", "--", "true") == str(tmp_path / "sub")
    assert submitted("--workdir", "/srv", "--", "true", local=False) == "/srv"


def test_what_a_task_submits_does_not_start_in_the_task_s_scratch_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch" / "sub").mkdir(parents=True)  # emptied when the task has ended
    monkeypatch.setenv("KESTREL_SCRATCH", str(tmp_path / "scratch"))
    for directory in (tmp_path / "scratch", tmp_path / "scratch" / "sub"):
        monkeypatch.chdir(directory)
        assert submitted("--", "true") == ""
        assert submitted("--workdir", ".", "--", "true") == str(directory)
    monkeypatch.chdir(tmp_path)
    assert submitted("--", "true") == str(tmp_path)


def test_a_directory_that_is_not_utf_8_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(directory)
    monkeypatch.chdir(os.fsdecode(directory))
    result = run(FakePool(), "submit", "--", "true", context=LOCAL)
    assert result.exit_code == 2
    assert "--workdir scratch" in result.stderr


def test_a_job_file_names_a_directory_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    file = tmp_path / "jobs" / "sweep.toml"
    monkeypatch.chdir(tmp_path)
    file.write_text('command = ["true"]\nworkdir = "data"\n')
    assert submitted(str(file)) == str(tmp_path / "jobs" / "data")
    file.write_text('command = ["true"]\nworkdir = "scratch"\n')
    assert submitted(str(file)) == ""
    file.write_text('command = ["true"]\n')
    assert submitted("jobs/sweep.toml") == str(tmp_path), "where it was submitted"


def test_a_current_directory_that_is_gone_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    result = run(FakePool(), "submit", "--", "true", context=LOCAL)
    os.chdir(tmp_path)
    assert result.exit_code == 2
    assert "--workdir scratch" in result.stderr


def test_job_info_says_where_tasks_start() -> None:
    for directory, told in (("/home/ada", "/home/ada"), ("", "scratch")):
        job = job_with(JOB, {"workdir": directory})
        shown = run(FakePool(ListJobs=an.Jobs(id="", jobs=[job])), "job", "info", "1").stdout
        assert f"directory       {told}\n" in shown


def test_a_pool_that_lets_nobody_choose_says_so() -> None:
    lacking = Refusal(Reason.MISSING_TAGS, wanted="WORKDIR")
    obstacle = an.Obstacle(workers=1, example="w1@x", refusal=lacking)
    told = msgspec.structs.replace(EXPLANATION, obstacles=[obstacle], could_run=0, ever=False)
    why, hint = conclusion(told)
    assert "workers that let jobs choose a directory" in why
    assert hint is not None
    assert "--workdir scratch" in hint


def test_an_operator_cannot_give_the_tag() -> None:
    result = run(FakePool(), "worker", "run", "--tags", "WorkDir", "--pool", "p")
    assert result.exit_code == 2
    assert "cannot be given" in result.stderr


# -- what a sandbox shows --------------------------------------------------------------------------


def test_a_sandbox_opens_the_directory_and_hides_the_worker_s_in_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    data = home / "state"
    (home / ".config" / "kestrel").mkdir(parents=True)
    data.mkdir()
    view = FileView(data, home=home)
    words = view.before_scratch(str(home))
    opened = words.index("--bind")
    assert words[opened : opened + 3] == ["--bind", str(home), str(home)]
    assert words[opened + 3 :] == [
        *("--tmpfs", str(home / ".config/kestrel")),
        *("--remount-ro", str(home / ".config/kestrel")),
        *("--tmpfs", str(data)),
    ]
    assert str(home) not in view.after_scratch(str(home))
    assert str(home) in view.after_scratch()


@pytest.mark.parametrize("directory", ["/", "/proc", "/dev/shm", "/sys/fs"])
def test_a_sandbox_opens_nothing_of_the_kernel(tmp_path: Path, directory: str) -> None:
    view = FileView(tmp_path)
    assert view.before_scratch(directory) == view.before_scratch()
