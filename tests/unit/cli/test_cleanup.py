"""The command that runs after each task, and options that take a command or a class."""

from __future__ import annotations

from pathlib import Path

from cli_fake_pool import FakePool, run

from kestrelctl.protocol import requests as rq


def test_a_command_runs_after_each_task(tmp_path: Path) -> None:
    pool = FakePool()
    run(pool, "submit", "--cleanup", "rm -f 'a lock'", "--", "true")
    assert pool.last(rq.SubmitJob).spec.program.cleanup == ("rm", "-f", "a lock")
    file = tmp_path / "j.toml"
    file.write_text('command = ["true"]\ncleanup = ["rm", "lock"]\n')
    run(pool, "submit", str(file))
    assert pool.last(rq.SubmitJob).spec.program.cleanup == ("rm", "lock")
    run(pool, "submit", str(file), "--cleanup", "rm other")
    assert pool.last(rq.SubmitJob).spec.program.cleanup == ("rm", "other")
    said = run(pool, "submit", "--cleanup", "--return", "x", "--", "true").stderr
    assert "the option before it takes a command" in said


def test_a_variable_is_no_environment_class() -> None:
    said = run(FakePool(), "submit", "--environment", "A=1", "--", "true").stderr
    assert "--environment names a class of environments" in said
