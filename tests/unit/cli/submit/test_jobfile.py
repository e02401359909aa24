"""Job files, of today and of 2009."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_fake_pool import FakePool, FakeShare, run

from kestrelctl.cli.submit.job_file import JobFile, looks_like_job_file, read_job_file
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import Begin, JobSpec
from kestrelctl.errors import UsageError
from kestrelctl.protocol.requests import SubmitJob


def written(directory: Path, name: str, text: str) -> Path:
    file = directory / name
    file.write_text(text)
    return file


def submitted(file: Path, *args: str) -> JobSpec:
    pool = FakePool()
    result = run(pool, "submit", str(file), *args)
    assert result.exit_code == 0, result.stderr
    spec = pool.last(SubmitJob).spec
    assert isinstance(spec, JobSpec)
    return spec


def test_a_toml_file_says_what_options_say(tmp_path: Path) -> None:
    (tmp_path / "points.json").write_text('[{"x": 1}, {"x": 2}]')
    spec = submitted(
        written(
            tmp_path,
            "sweep.toml",
            """
            command = ["./fit", "{x}"]
            cleanup = ["rm", "-f", "lock"]
            from-json = "points.json"
            name = "sweep"
            priority = 200
            cpus = 0.5
            memory = "1.5GiB"
            requires = ["LINUX", "GPU,X86"]
            max-running = 10
            max-failures = 3
            max-losses = 2
            time-limit = "1h30m"
            on-worker-lost = "wait"
            env = { MODE = "fast", LEVEL = 3 }
            """,
        )
    )
    assert spec == JobSpec(
        program=Program(
            argv=("./fit", "{x}"),
            cleanup=("rm", "-f", "lock"),
            placeholders=Placeholders.ARRAY,
            time_limit_seconds=5400.0,
            env={"MODE": "fast", "LEVEL": "3"},
        ),
        count=2,
        items=('{"x":1}', '{"x":2}'),
        name="sweep",
        priority=200,
        request={"cpus": 0.5, "memory": 3 << 29},
        requires=("LINUX", "GPU", "X86"),
        max_running=10,
        max_failures=3,
        max_losses=2,
        on_worker_lost=spec.on_worker_lost,
    )
    assert spec.on_worker_lost.value == "wait"


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "j.toml", 'command = ["x"]\npriority = 1\nname = "a"')
    spec = submitted(file, "--priority", "2")
    assert (spec.priority, spec.name) == (2, "a")


def test_a_command_as_one_line_goes_to_the_shell(tmp_path: Path) -> None:
    file = written(tmp_path, "j.toml", 'command = "a | b {}"\narray = "1-3"')
    spec = submitted(file)
    assert spec.program.argv == ("/bin/sh", "-c", "a | b {}")
    assert (spec.first, spec.count) == (1, 3)


def test_the_sample_of_2009_runs_as_it_did(tmp_path: Path) -> None:
    text = "[job]\nqueue=5\ncommand=./run_task.sh\ncleanup=./cleanup.sh\nrequires=foo BAR\n  baz\n"
    spec = submitted(written(tmp_path, "sample.job", text))
    assert (spec.first, spec.count, spec.step) == (0, 5, 1)
    assert spec.requires == ("FOO", "BAR", "BAZ")
    assert spec.program.argv == ("/bin/sh", "-c", './run_task.sh "$KESTREL_TASK_ID"')
    assert spec.program.cleanup == ("/bin/sh", "-c", './cleanup.sh "$KESTREL_TASK_ID"')


def test_a_command_of_2009_finds_the_task_number_in_its_last_argument(tmp_path: Path) -> None:
    text = "[job]\ncommand=echo it is;\n  echo 100% '$HOME' x\n"
    job = read_job_file(written(tmp_path, "j.job", text))
    env = os.environ | {"KESTREL_TASK_ID": "42"}
    output = subprocess.run(job.argv, env=env, capture_output=True, text=True, check=True).stdout
    assert output == "it is\n100% $HOME x 42\n"


def test_a_job_file_of_2009_needs_no_more_than_a_command(tmp_path: Path) -> None:
    job = read_job_file(written(tmp_path, "j", "[job]\ncommand = true\n"))
    assert job == JobFile(("/bin/sh", "-c", 'true "$KESTREL_TASK_ID"'), {})


@pytest.mark.parametrize(
    ("name", "text", "error", "hint"),
    [
        ("j.toml", "command = ['x']\nmax_running = 3", "unknown key max_running", "max-running"),
        ("j.toml", "command = ['x']\nwait = true", "unknown key wait", None),
        ("j.toml", "name = 'x'", "there is no command", "command ="),
        ("j.toml", "command = [1]", "a word of command is no string", "quotes"),
        ("j.toml", "command = ", "is not TOML", None),
        ("j.toml", f"command = 'x'\ncpus = {'9' * 5000}", "is not TOML", None),
        ("j.toml", f"command = {'[' * 5000}{']' * 5000}", "cannot be read", None),
        ("j.toml", "command = 'x'\nname = ['a']", "name is neither text nor a number", None),
        ("j.toml", "command = 'x'\npriority = true", "priority is neither", None),
        ("j.toml", "command = 'x'\nenv = 'A=1'", "env is not a table", None),
        ("j.toml", "command = 'x'\neach-line = 3", "each-line is not text", None),
        ("j.toml", "command = 'x'\nhold = 1", "hold is not true or false", None),
        ("j.toml", "command = 'x'\nenv = {'A=B' = 'c'}", "'A=B' has an equals sign", None),
        ("j.toml", "command = 'x'\nstdin = []", "stdin takes one value, not 0", None),
        ("j.toml", "command = 'x'\nstdin = ['a', 'b']", "stdin takes one value, not 2", None),
        ("j.toml", "command = 'x'\nafter-each = []", "after-each takes one value", None),
        ("j.job", "[job]\ncommand=x\nrequire=A", "unknown key require", "requires"),
        ("j.job", "[job]\nqueue=0\ncommand=x", "queue = 0", "queue=5"),
        ("j.job", f"[job]\nqueue={'9' * 5000}\ncommand=x", "is no number of tasks", "queue=5"),
        ("j.job", "[job]\nqueue=5", "has no command", "command="),
        ("j.job", "[jbo]\nqueue=5", "not a job file", None),
        ("run.sh", "#!/bin/sh\necho", "not a job file", None),
        ("bytes", "\udcff", "not a job file", None),
    ],
)
def test_a_wrong_file_is_refused(
    tmp_path: Path, name: str, text: str, error: str, hint: str | None
) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=error) as caught:
        read_job_file(file)
    if hint is not None:
        assert hint in (caught.value.hint or "")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    result = run(FakePool(), "submit", str(tmp_path / "none.toml"))
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr


def test_a_file_without_a_name_is_refused_in_a_job_file_too(tmp_path: Path) -> None:
    file = written(tmp_path, "j.toml", 'command = ["x"]\ninput = [""]')
    result = run(FakePool(), "submit", str(file))
    assert result.exit_code == 2
    assert "it is empty, and names no file" in result.stderr


@pytest.mark.parametrize("key", ["workdir", "stdin", "from-json", "each-line", "input"])
def test_a_name_with_a_null_byte_is_refused_in_words(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, "j.toml", f'command = ["x"]\n{key} = "a\\u0000b"')
    result = run(FakePool(), "submit", str(file))
    assert result.exit_code == 2
    assert "it has a null byte" in result.stderr


@pytest.mark.parametrize("key", ["priority", "max-failures", "stop-after"])
def test_a_fraction_is_no_whole_number(tmp_path: Path, key: str) -> None:
    file = written(tmp_path, "j.toml", f'command = ["x"]\n{key} = 2.7')
    result = run(FakePool(), "submit", str(file))
    assert result.exit_code == 2
    assert f"invalid value for '--{key}': 2.7 is no whole number" in result.stderr


def test_a_moment_may_be_written_as_toml_has_it(tmp_path: Path) -> None:
    text = 'command = ["x"]\nbegin = 2030-12-24T18:00:00Z\ndeadline = 2030-12-25T00:00:00+01:00'
    pool = FakePool()
    result = run(pool, "submit", str(written(tmp_path, "j.toml", text)))
    assert result.exit_code == 0, result.stderr
    spec = pool.last(SubmitJob).spec
    assert spec.begin == Begin(at=1924365600.0)
    assert spec.deadline_at == 1924383600.0


def test_a_job_file_may_begin_with_the_mark_of_windows(tmp_path: Path) -> None:
    for name, text in (("j.toml", "command = ['x']"), ("j.job", "[job]\ncommand = x")):
        read_job_file(written(tmp_path, name, f"\ufeff{text}"))


def test_wrong_values_are_refused_as_on_the_command_line(tmp_path: Path) -> None:
    file = written(tmp_path, "j.toml", 'command = ["x"]\nmemory = "lots"')
    result = run(FakePool(), "submit", str(file))
    assert result.exit_code == 2
    assert "not a size: 'lots'" in result.stderr


def test_what_looks_like_a_job_file(tmp_path: Path) -> None:
    assert looks_like_job_file("missing.toml")
    assert looks_like_job_file(str(written(tmp_path, "plain", "")))
    assert not looks_like_job_file("sleep")
    assert not looks_like_job_file("echo " + "x" * 300), "too long for the name of a file"


def test_a_name_that_no_file_can_have_is_told_of_as_that(tmp_path: Path) -> None:
    name = str(tmp_path / ("x" * 300))
    result = run(FakePool(), "submit", "--stdin", name, "--", "true")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-2:] == [
        f"error: {name} cannot be used",
        "cause: File name too long",
    ]


def test_a_job_file_and_a_command_exclude_each_other(tmp_path: Path) -> None:
    file = written(tmp_path, "j.toml", 'command = ["x"]')
    result = run(FakePool(), "submit", str(file), "--", "sleep", "1")
    assert result.exit_code == 2
    assert "a job file takes no words of a command" in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "executable", "here", "there"),
    [
        ("job.sh", "echo hi", False, "sh job.sh", "sh job.sh"),
        ("job.sh", "#!/bin/bash\necho hi", False, "/bin/bash job.sh", "/bin/bash job.sh"),
        ("job.sh", "#!/bin/bash\necho hi", True, "./job.sh", "/bin/bash job.sh"),
        ("job", "echo hi", True, "sh job", "sh job"),
        ("my job.py", "print()", False, "python3 'my job.py'", "python3 'my job.py'"),
        ("table.csv", "1,2", False, "PROGRAM table.csv", "PROGRAM table.csv"),
    ],
)
def test_what_is_no_job_file_is_run_by_the_command_that_is_hinted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    text: str,
    executable: bool,
    here: str,
    there: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, name, text).chmod(0o755 if executable else 0o644)
    result = run(FakePool(), "submit", "--array", "1-3", name, "a b")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        f"hint: to run it as a command: kestrelctl submit --array 1-3 -- {here} 'a b'; where tasks "
        f"begin in a directory of their own: kestrelctl submit --array 1-3 --input "
        f"{shlex.quote(name)} -- {there} 'a b'"
    )
    for words in re.findall(r"kestrelctl (submit .*?)(?=;|$)", result.stderr.splitlines()[-1]):
        pool = FakePool()
        assert run(pool, *shlex.split(words), share=FakeShare()).exit_code == 0
        argv = pool.last(SubmitJob).spec.program.argv
        assert argv[-1] == "a b"
        assert shutil.which(argv[0]) or argv[0] == "PROGRAM"


def test_a_program_of_the_machine_that_is_no_job_file_is_started_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy("/bin/true", tmp_path / "model")
    result = run(FakePool(), "submit", "model")
    assert result.stderr.endswith("\nhint: to run it as a command: kestrelctl submit -- ./model\n")
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "model")
    result = run(FakePool(), "submit", "bin/model")
    assert result.stderr.endswith("kestrelctl submit -- bin/model\n")


def test_a_wrong_option_is_told_before_a_hint_that_would_repeat_it(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n")
    result = run(FakePool(), "submit", "--memory", "2048", str(script))
    assert result.stderr.startswith("error: 2048 lacks its unit\n")
    assert "to run it as a command" not in result.stderr


def test_what_is_so_or_not_is_said_with_true(tmp_path: Path) -> None:
    text = 'command = ["ls"]\nhold = true\njoin = true\nstop-after = 3\n'
    spec = submitted(written(tmp_path, "sweep.toml", text))
    assert (spec.held, spec.program.join, spec.stop_after) == (True, True, 3)
