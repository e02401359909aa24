"""Every command in every mode, the form of errors, and the status that each ends with."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import click
import msgspec
import pytest
from cli_fake_pool import EXPLANATION, JOB, FakePool, run

from kestrelctl.cli.command import CommonOption
from kestrelctl.cli.main import COMMANDS, kestrelctl
from kestrelctl.cli.screen import Mode
from kestrelctl.core.model import TaskState
from kestrelctl.errors import BY_CODE, KestrelError, NotAllowed
from kestrelctl.protocol import answers as an

#: Each command that talks to a pool, and the name that it prints when quiet.
COMMAND_LINES = {
    "submit -- sleep 1": "7",
    "submit --wait -- sleep 1": "7",
    "job list": "7",
    "job info 7": "7",
    "job tasks 7": "17",
    "job wait 7": "7",
    "job cancel 7": "7",
    "job logs 7 17": "hello",
    "job logs 7 --all": "==> task 17 <==\nhello",
    "job retry 7": "7",
    "job explain 7": "7",
    "job forget 7": "7",
    "worker list": "w1@workers.example.org/k3bW0",
    "worker info w1": "w1@workers.example.org/k3bW0",
    "worker drain w1": "w1@workers.example.org/k3bW0",
    "worker resume w1": "w1@workers.example.org/k3bW0",
    "pool status": "ok",
}
#: Those that do not; their modules have tests of their own.
WITHOUT_POOL = {"up", "down", "bench", "worker run", "manager run"}
MANY = {"job list", "job tasks 7", "job wait 7", "job logs 7 --all", "worker list"}


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command of the tree, by its full name."""
    context = click.Context(kestrelctl)
    for name in COMMANDS:
        command = kestrelctl.get_command(context, name)
        if isinstance(command, click.Group):
            for verb, leaf in command.commands.items():
                yield f"{name} {verb}", leaf
        else:
            assert command is not None
            yield name, command


LEAVES = dict(leaves())


def test_no_command_is_forgotten_here() -> None:
    lines = [f"{line} " for line in COMMAND_LINES]
    tested = {name for name in LEAVES if any(line.startswith(f"{name} ") for line in lines)}
    assert tested | WITHOUT_POOL == set(LEAVES)


@pytest.mark.parametrize("line", COMMAND_LINES)
@pytest.mark.parametrize("mode", ["table", "wide"])
def test_a_table_is_printed(line: str, mode: str) -> None:
    result = run(FakePool(), "-o", mode, *line.split())
    assert result.exit_code == 0, result.stderr
    assert result.stdout
    assert "\x1b" not in result.stdout
    assert not re.search(r"[ \t]+$", result.stdout, re.MULTILINE)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_json_is_one_document(line: str) -> None:
    result = run(FakePool(), "-o", "json", *line.split())
    assert result.exit_code == 0
    assert result.stderr == ""
    assert isinstance(json.loads(result.stdout), list if line in MANY else dict)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_jsonl_is_one_object_on_each_line(line: str) -> None:
    result = run(FakePool(), "-o", "jsonl", *line.split())
    assert result.exit_code == 0
    (text,) = result.stdout.splitlines()
    found = json.loads(run(FakePool(), "-o", "json", *line.split()).stdout)
    assert json.loads(text) == (found[0] if line in MANY else found)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_quiet_prints_bare_names(line: str) -> None:
    result = run(FakePool(), "-o", "quiet", *line.split())
    assert result.exit_code == 0
    assert result.stdout == f"{COMMAND_LINES[line]}\n"


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_whoever_asks_for_silence_hears_nothing_but_data(line: str) -> None:
    assert run(FakePool(), "-q", *line.split()).stderr == ""


def test_json_shows_every_field_also_when_it_is_zero() -> None:
    (job,) = json.loads(run(FakePool(), "job", "list", "-o", "json").stdout)
    assert set(job) == set(an.JobView.__struct_fields__)
    assert (job["failed"], job["ended_at"], job["argv"]) == (0, None, ["./fit", "{}"])
    (task,) = json.loads(run(FakePool(), "job", "tasks", "7", "-o", "json").stdout)
    assert set(task) == set(an.TaskView.__struct_fields__)


def test_the_mode_may_stand_before_or_after_the_command_or_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_json = run(FakePool(), "job", "list", "-o", "json").stdout
    assert run(FakePool(), "-o", "json", "job", "list").stdout == as_json
    assert run(FakePool(), "-o", "table", "job", "list", "--output=json").stdout == as_json
    monkeypatch.setattr("cli_fake_pool.CliRunner", _with(KESTREL_OUTPUT="json"))
    assert run(FakePool(), "job", "list").stdout == as_json
    assert run(FakePool(), "job", "list", "-o", "quiet").stdout == "7\n"


def test_a_mode_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(FakePool(), "job", "list", "-o", "yaml")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: not an output mode: 'yaml'\nhint: choose from table, wide, json, jsonl, quiet\n"
    )
    monkeypatch.setattr("cli_fake_pool.CliRunner", _with(KESTREL_OUTPUT="yaml"))
    assert run(FakePool(), "job", "list").exit_code == 2


def _with(**environment: str) -> object:
    from click.testing import CliRunner

    return lambda env: CliRunner(env={**env, **environment})


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", *COMMANDS, *LEAVES])
def test_help_works_everywhere(name: str) -> None:
    result = run(FakePool(), *name.split(), "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: kestrelctl {name}".rstrip())
    assert run(FakePool(), *name.split(), "-h").stdout == result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_each_says_of_itself(name: str) -> None:
    command = kestrelctl.get_command(click.Context(kestrelctl), name)
    assert command is not None
    assert (command.help or "").partition("\n")[0] == COMMANDS[name][1]


@pytest.mark.parametrize("name", LEAVES)
def test_every_command_has_the_common_options(name: str) -> None:
    options = {p.name for p in LEAVES[name].params if isinstance(p, CommonOption)}
    assert {"output", "no_color", "quiet", "verbose"} <= options
    assert ("pool" in options) == (name not in WITHOUT_POOL - {"bench"})


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_is_explained_or_explains_itself(name: str) -> None:
    plain = {"workers", "port", "log_format"}
    for param in LEAVES[name].params:
        if isinstance(param, click.Option):
            assert param.help or param.name in plain, param.name


def test_without_a_command_there_is_help_and_status_2() -> None:
    for args in ((), ("job",)):
        result = run(FakePool(), *args)
        assert result.exit_code == 2
        assert "Commands:" in result.stderr
        assert result.stdout == ""


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BY_CODE.values(), ids=list(BY_CODE))
def test_every_error_ends_with_its_status(kind: type[KestrelError]) -> None:
    result = run(FakePool(ListJobs=kind("it is so", hint="do this")), "job", "list")
    assert result.exit_code == kind.exit_status
    assert result.stdout == ""
    assert result.stderr == "error: it is so\nhint: do this\n"


def test_an_error_in_json_is_one_object() -> None:
    error = NotAllowed("no", cause="because", hint="kestrelctl up")
    result = run(FakePool(ListJobs=error), "job", "list", "-o", "jsonl")
    assert result.exit_code == 4
    assert json.loads(result.stderr) == {
        "error": {
            "code": "not-allowed",
            "message": "no",
            "cause": "because",
            "hint": "kestrelctl up",
        }
    }


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("jb list", "error: there is no command 'jb'\nhint: did you mean job?\n"),
        ("xyzzy", "error: there is no command 'xyzzy'\nhint: kestrelctl --help\n"),
        ("job list --bogus", "error: no such option '--bogus'"),
        ("job info", "error: missing argument 'JOB'\nhint: kestrelctl job info --help\n"),
        ("job lsit", "error: no such command 'lsit'"),
        (
            "job wait 9-5",
            "error: the range 9-5 runs backwards\nhint: write 5-9 instead\n",
        ),
    ],
)
def test_a_wrong_command_line_is_an_error_like_any_other(line: str, error: str) -> None:
    result = run(FakePool(), *line.split())
    assert result.exit_code == 2
    assert result.stderr.startswith(error)
    assert "Usage:" not in result.stderr


@pytest.mark.parametrize(
    "line",
    ["job list --bogus -o json", "-o json job lsit", "job info -ojson", "job info --output=jsonl"],
)
def test_a_command_line_that_cannot_be_read_still_says_its_mode(line: str) -> None:
    assert json.loads(run(FakePool(), *line.split()).stderr)["error"]["code"] == "usage"


def test_the_mode_of_the_command_to_run_is_not_that_of_kestrelctl() -> None:
    result = run(FakePool(), "submit", "--bogus", "--", "kubectl", "-o", "json")
    assert result.stderr.startswith("error: ")


def test_a_defect_is_reported_without_a_traceback_unless_wanted() -> None:
    pool = FakePool(ListJobs=ZeroDivisionError("oops"))
    result = run(pool, "job", "list")
    assert result.exit_code == 1
    assert result.stderr == (
        "error: this should not have happened\n"
        "cause: ZeroDivisionError: oops\n"
        "hint: with -v it says where\n"
    )
    assert "Traceback" in run(pool, "job", "list", "-v").stderr


def test_an_interrupt_ends_with_130() -> None:
    def interrupt(_request: object) -> an.Jobs:
        raise KeyboardInterrupt

    result = run(FakePool(ListJobs=interrupt), "job", "list")
    assert result.exit_code == 130
    assert "error" not in result.stderr


def test_control_characters_of_others_reach_no_terminal() -> None:
    job = msgspec.structs.replace(JOB, name="\x1b[2J\n")
    result = run(FakePool(ListJobs=an.Jobs(id="", jobs=[job])), "job", "list")
    assert "\\x1b[2J" in result.stdout
    assert "\x1b" not in result.stdout
    result = run(FakePool(ListJobs=NotAllowed("\x1b[2J")), "job", "list")
    assert "\x1b" not in result.stderr


def test_the_page_of_exit_codes_has_them_all() -> None:
    page = (Path(__file__).parents[2] / "docs" / "exit-codes.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", page, re.MULTILINE))
    assert rows == {str(kind.exit_status): code for code, kind in BY_CODE.items()}


# -- commands that talk to no pool yet -------------------------------------------------------------


def test_up_and_down_speak_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.local import control
    from kestrelctl.local.state import PoolState

    calls: list[tuple[object, ...]] = []

    async def up(name: str, workers: int, executor: str) -> PoolState:
        calls.append((name, workers, executor))
        return PoolState(
            name=name, pid=1, domain="d", host="h", port=1, user="u", password_file="p",
            admin="a", admin_password_file="q", workers=4, server_pid=2, manager_pid=3,
            worker_pids=[4],
        )  # fmt: skip

    async def down(name: str) -> None:
        calls.append((name,))

    monkeypatch.setattr(control, "up", up)
    monkeypatch.setattr(control, "down", down)
    result = run(FakePool(), "up", "--name", "test", "--workers", "4")
    assert result.stdout == "pool test is up: 4 workers\n"
    assert result.stderr == "next: kestrelctl submit --pool test --array 1-10 -- echo {}\n"
    assert json.loads(run(FakePool(), "up", "-o", "json").stdout)["workers"] == 4
    assert run(FakePool(), "down", "-o", "quiet").stdout == "default\n"
    assert calls == [("test", 4, "process"), ("default", 0, "process"), ("default",)]


def test_a_worker_is_run_with_its_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kestrelctl.worker import entry
    from kestrelctl.worker.options import WorkerOptions

    seen: list[WorkerOptions] = []
    monkeypatch.setattr(entry, "run", lambda options: seen.append(options) or 143)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    line = "worker run --pool p.example.org --credentials c --sessions 3 --cpus 2 --memory 1G"
    result = run(FakePool(), *line.split(), "--tags", "A,B", "--no-tls", "-v")
    assert result.exit_code == 143, "the status is the daemon's"
    assert seen == [
        WorkerOptions(
            pool="p.example.org", credentials=Path("c"), data_dir=tmp_path / "kestrel" / "worker",
            sessions=3, cpus=2.0, memory_bytes=1 << 30, tags=("A", "B"), tls=False, verbose=True,
        )
    ]  # fmt: skip
    run(FakePool(), "worker", "run", "--pool", "p", "--credentials", "c", "--data-dir", "d")
    assert seen[1] == WorkerOptions(pool="p", credentials=Path("c"), data_dir=Path("d"))


def test_a_manager_is_run_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.manager import daemon
    from kestrelctl.manager.options import ManagerOptions

    seen: list[ManagerOptions] = []
    monkeypatch.setattr(daemon, "run", seen.append)
    line = "manager run --domain d --secret-file s --data-dir x"
    assert run(FakePool(), *line.split()).exit_code == 0
    line += " --host h --port 1 --worker-host w1 --worker-host w2 --user-host u --admin a@u"
    run(FakePool(), *line.split(), "--log-format", "json", "-v")
    plain = ManagerOptions(domain="d", secret_file=Path("s"), data_dir=Path("x"))
    assert seen == [
        plain,
        ManagerOptions(
            domain="d", secret_file=Path("s"), data_dir=Path("x"), host="h", port=1,
            worker_hosts=("w1", "w2"), user_hosts=("u",), admins=("a@u",), log_format="json",
            verbose=True,
        ),
    ]  # fmt: skip


def test_a_bench_is_run_as_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kestrelctl.bench import run as bench_run
    from kestrelctl.bench.machine import Machine
    from kestrelctl.bench.result import LatencyMs, Result, Run

    plans: list[tuple[bench_run.Plan, object]] = []
    machine = Machine(2, "cpu", 1, "k", "3", "0.12", "0.1", "now")
    found = Run(
        sleep="0", executor="process", jobs=10, workers=2, makespan_seconds=1.0,
        tasks_per_second=10.0, bound_seconds=0, utilisation=0, lost=0, duplicates=0,
        dispatch_latency_ms=LatencyMs(1, 2), manager_rss_mb=1, server_cpu_seconds=1,
        manager_cpu_seconds=1, worker_cpu_seconds=1, reference_2009_seconds=None,
    )  # fmt: skip

    async def bench(plan: bench_run.Plan, pool: object, progress: object) -> Result:
        plans.append((plan, pool))
        return Result(machine, 1000.0, [found])

    monkeypatch.setattr(bench_run, "bench", bench)
    monkeypatch.setattr(sys, "argv", ["x", "bench", "--jobs", "10"])
    result = run(FakePool(), "bench")
    assert result.exit_code == 0, result.stderr
    assert "tasks/s" in result.stdout
    assert plans[0] == (bench_run.Plan(command="kestrelctl bench --jobs 10"), None)
    line = f"bench --jobs 10 --workers 2 --sleep 0,1 --sleep 0-10 --report {tmp_path} -o json"
    result = run(FakePool(), *line.split())
    assert json.loads(result.stdout)["runs"][0]["tasks_per_second"] == 10.0
    plan = plans[1][0]
    assert (plan.jobs, plan.workers, plan.sleeps) == (10, 2, ("0", "1", "0-10"))
    assert plan.report == tmp_path
    pool = FakePool()
    assert run(pool, "bench", "--pool", "lab", "-o", "quiet").stdout == "10\n"
    assert plans[2][1] is pool


def test_help_of_bench_names_the_defaults_of_a_plan() -> None:
    from kestrelctl.bench.run import Plan

    text = " ".join(run(FakePool(), "bench", "--help").stdout.split())
    for default in (f"{Plan().jobs:,}", str(Plan().workers), ",".join(Plan().sleeps)):
        assert f"[default: {default}]" in text


# -- on a terminal ---------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Standard output is a terminal of 60 columns; what was written there is in `text`."""
    written = SimpleNamespace(text="")

    def write(text: str) -> None:
        written.text += text

    stdout = SimpleNamespace(isatty=lambda: True, write=write, flush=lambda: None)
    monkeypatch.setattr("kestrelctl.cli.screen.sys", SimpleNamespace(stdout=stdout, stderr=stdout))
    monkeypatch.setenv("COLUMNS", "60")
    return written


def test_on_a_terminal_a_table_is_coloured_and_fits(terminal: SimpleNamespace) -> None:
    run(FakePool(ExplainJob=EXPLANATION), "job", "explain", "7")
    lines = terminal.text.splitlines()
    assert lines[2].startswith("\x1b[1mWORKERS")
    run(FakePool(), "worker", "list", "-o", "wide")
    rows = re.sub(r"\x1b\[\d+m", "", terminal.text).splitlines()
    assert any("…" in row for row in rows)
    assert "\x1b[32midle\x1b[0m" in terminal.text


def test_without_colour_there_is_none(terminal: SimpleNamespace) -> None:
    run(FakePool(), "--no-color", "worker", "list")
    assert "w1" in terminal.text
    assert "\x1b" not in terminal.text


def test_of_many_tasks_a_terminal_shows_the_first_hundred(terminal: SimpleNamespace) -> None:
    tasks = [an.TaskView(index=n, task_id=n, state=TaskState.DONE) for n in range(500)]
    run(FakePool(ListTasks=an.Tasks(id="", tasks=tasks)), "job", "tasks", "7")
    lines = terminal.text.splitlines()
    assert len(lines) == 1 + 100 + 1
    assert lines[-1] == "only the first 100; --limit 0 shows all"


def test_modes_are_what_the_documents_say() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert re.findall(r"^\| `-o (\w+)` \|", page, re.MULTILINE) == [mode.value for mode in Mode]
