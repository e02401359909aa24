"""Every command in every mode, the form of errors, and the status that each ends with."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import click
import msgspec
import pytest
from benchkit import MACHINE, a_result, a_run, a_sweep
from cli_fake_pool import EXPLANATION, JOB, FakePool, run
from click.testing import CliRunner
from commandlines import COMMAND_LINES, EVERYTHING, LEAVES, WITHOUT_POOL

from kestrelctl.bench.bounds import Sleep
from kestrelctl.bench.collected_runs import CollectedRuns
from kestrelctl.bench.estimate import Expectation, ExpectedRun
from kestrelctl.bench.pool_size import PoolSize
from kestrelctl.bench.reference import SLEEPS_2009
from kestrelctl.bench.result import to_json
from kestrelctl.bench.run import BenchPlan
from kestrelctl.cli.command import CommonOption, Invocation, Noun
from kestrelctl.cli.job.commands import MODULES, job
from kestrelctl.cli.main import COMMANDS, kestrelctl
from kestrelctl.cli.show.screen import Mode
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import BY_CODE, KestrelError, NotAllowed, UsageError
from kestrelctl.protocol import answers as an


@pytest.fixture(autouse=True)
def state_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing is left in the state of whoever runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))


MANY = {
    "job list",
    "job history",
    "job tasks 7",
    "job wait 7",
    "job logs 7 --all",
    "worker list",
    "pool events",
    "worker group list",
    "worker properties",
    "trigger list",
    "trigger log",
    "worker commands",
    "worker run-command clean-cache days=3 --all",
    "pool policy list",
    "pool asset list",
    "environment list",
    "flock pools",
    "flock policy list",
    "user usage",
    "user list",
    "group list",
}


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
    assert (job["failed"], job["ended_at"], job["spec"]["program"]["argv"]) == (
        0,
        None,
        ["./fit", "{}"],
    )
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


def test_no_empty_name_means_the_current_directory() -> None:
    """A shell makes one of a variable that is not set."""
    taken = []
    for name, context in EVERYTHING.items():
        for param in context.command.get_params(context):
            with suppress(click.UsageError, KestrelError, ValueError):
                if isinstance(param.type.convert("", param, context), Path):
                    taken.append(f"{name} {param.name}")
    assert taken == []


def test_an_option_with_nothing_in_it_is_passed_over_nowhere() -> None:
    """It would mean another pool, any worker or every user: `down --name "$UNSET" --delete`."""
    taken = []
    for name, context in EVERYTHING.items():
        for param in context.command.get_params(context):
            if isinstance(param, click.Option) and not param.is_flag:
                option = param.opts[-1]
                try:
                    context.command.make_context(name, [option, ""], obj=Invocation())
                except UsageError as error:
                    if error.message.endswith(" is empty"):
                        continue
                except (click.ClickException, KestrelError):
                    pass
                taken.append(f"{name} {option}")
    assert [each for each in taken if not each.endswith(" --metrics")] == []
    assert taken, "an empty address of metrics is none at all"


@pytest.mark.parametrize(
    "line", [["--pool", "", "job", "list"], ["job", "list", "--pool="], ["job", "list", "--owner="]]
)
def test_an_empty_option_is_refused_wherever_it_stands(line: list[str]) -> None:
    pool = FakePool()
    result = run(pool, *line)
    assert (result.exit_code, pool.asked) == (2, [])
    assert "is empty\ncause: a shell makes that of a variable that is not set" in result.stderr


def test_an_empty_word_of_a_command_is_its_own_matter() -> None:
    assert run(FakePool(), "submit", "--", "echo", "--name", "", "--x=").exit_code == 0
    assert run(FakePool(), "submit", "echo", "--name", "").exit_code == 0


def test_help_works_everywhere() -> None:
    for name in ("", *COMMANDS, *LEAVES):
        result = run(FakePool(), *name.split(), "--help")
        assert result.exit_code == 0, name
        assert result.stdout.startswith(f"Usage: kestrelctl {name}".rstrip())
        assert run(FakePool(), *name.split(), "-h").stdout == result.stdout


@pytest.mark.parametrize(("group", "table"), [(kestrelctl, COMMANDS), (job, MODULES)])
def test_the_list_of_commands_says_what_each_says_of_itself(
    group: click.Group, table: dict[str, tuple[str, str]]
) -> None:
    assert table
    for name, (_, listed) in table.items():
        command = group.get_command(click.Context(group), name)
        assert command is not None
        assert (command.help or "").partition("\n")[0] == listed, name


def test_every_command_has_the_common_options() -> None:
    by_name = {
        "up",
        "down",
        "bench",
        "map",
        "doctor",
        "job fetch",
        "pool chat",
        "pool metrics",
        "pool traffic",
        "manager backup",
        "manager restore",
        "manager migrate",
    }
    talks_to_a_pool = {*LEAVES} - WITHOUT_POOL | by_name
    assert LEAVES
    for name, leaf in LEAVES.items():
        options = {p.name for p in leaf.params if isinstance(p, CommonOption)}
        assert {"output", "no_color", "quiet", "verbose"} <= options, name
        assert ("pool" in options) == (name in talks_to_a_pool), name


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
        ("job retry", "error: missing argument 'JOBS'\nhint: kestrelctl job retry --help\n"),
        ("job lsit", "error: there is no command 'lsit'\nhint: did you mean list?\n"),
        ("worker foo", "error: there is no command 'foo'\nhint: kestrelctl worker --help\n"),
        (
            "job list --since 1d --state done",
            "error: no such option '--since'\n"
            "hint: --since is an option of `kestrelctl job history`\n",
        ),
        ("job list --key x", "error: no such option '--key'\nhint: kestrelctl job list --help\n"),
        (
            "submit --cleanup",
            "error: option '--cleanup' requires an argument\nhint: write --cleanup COMMAND\n",
        ),
        (
            "worker list --where",
            "error: option '--where' requires an argument\nhint: write --where EXPR\n",
        ),
        (
            "map --tag=x echo",
            "error: option '--tag' does not take a value\nhint: write --tag\n",
        ),
        ("job logs 7 --to=", "error: --to is empty\n"),
        ("job list --nmae x", "error: no such option '--nmae'\nhint: did you mean --name?\n"),
        (
            "submit --limit 3 -- x",
            "error: no such option '--limit'\nhint: kestrelctl submit --help\n",
        ),
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


def test_a_command_that_another_package_adds_is_found_and_proposed() -> None:
    assert run(FakePool(), "bench", "flock-sim", "--help").exit_code == 0
    assert run(FakePool(), "bench", "flock-smi").stderr.endswith("did you mean flock-sim?\n")


def test_a_command_that_is_only_found_when_it_is_wanted_runs() -> None:
    class Later(Noun):
        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            return click.Command(cmd_name) if cmd_name == "later" else None

    assert CliRunner().invoke(Later("some"), ["later"]).exit_code == 0


@pytest.mark.parametrize(
    "line",
    [
        "job list --bogus -o json",
        "-o json job lsit",
        "job retry -ojson",
        "job retry --output=jsonl",
    ],
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
    page = (Path(__file__).parents[3] / "docs" / "exit-codes.md").read_text()
    rows = dict(re.findall(r"^\| (\d+) \| `([a-z-]+)` \|", page, re.MULTILINE))
    assert rows == {str(kind.exit_status): code for code, kind in BY_CODE.items()}


# -- commands that talk to no pool yet -------------------------------------------------------------


def test_up_and_down_speak_of_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.local import control
    from kestrelctl.local.pool_state import PoolState

    calls: list[tuple[object, ...]] = []

    async def up(
        name: str,
        workers: int,
        executor: str,
        isolation: str,
        *,
        domain: str,
        federation: None,
        flock: str,
        environments: tuple[Path, ...],
        properties: tuple[Path, ...],
        commands: tuple[Path, ...],
        handlers: tuple[Path, ...],
        triggers: tuple[Path, ...],
        mail: tuple[str, ...],
    ) -> PoolState:
        calls.append((name, workers, executor, isolation))
        return PoolState(
            name=name, pid=1, domain="d", host="h", port=1, user="u", password_file="p",
            admin="a", admin_password_file="q", workers=4, server_pid=2, manager_pid=3,
            worker_pids=[4],
        )  # fmt: skip

    async def down(name: str, *, delete: bool) -> None:
        calls.append((name, delete))

    monkeypatch.setattr(control, "up", up)
    monkeypatch.setattr(control, "down", down)
    result = run(FakePool(), "up", "--name", "test", "--workers", "4")
    assert result.stdout == "pool test is up: 4 workers\n"
    assert result.stderr.startswith("next: kestrelctl --pool test submit ")
    assert json.loads(run(FakePool(), "up", "-o", "json").stdout)["workers"] == 4
    run(FakePool(), "up", "--isolation", "bubblewrap")
    assert run(FakePool(), "down", "-o", "quiet").stdout == "default\n"
    run(FakePool(), "down", "--delete", "--yes")
    assert calls == [
        ("test", 4, "process", "plain"),
        ("default", 0, "process", "plain"),
        ("default", 0, "process", "bubblewrap"),
        ("default", False),
        ("default", True),
    ]


def test_down_asks_on_a_terminal_before_anything_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.cli import local
    from kestrelctl.local import control

    ended: list[str] = []
    running = 0

    async def running_tasks(name: str) -> int:
        return running

    async def down(name: str, *, delete: bool) -> None:
        ended.append(name)

    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(local, "sys", SimpleNamespace(stdin=terminal))
    monkeypatch.setattr(control, "running_tasks", running_tasks)
    monkeypatch.setattr(control, "kept_jobs", lambda _: control.KeptJobs(3, 1))
    monkeypatch.setattr(control, "down", down)
    kept = run(FakePool(), "down")
    assert "kept; `kestrelctl up` goes on with them" in kept.stderr
    assert ended == ["default"], "nothing is lost"
    refused = run(FakePool(), "down", "--delete", stdin=b"n\n")
    assert "3 jobs with all results" in refused.stderr
    monkeypatch.setattr(control, "kept_jobs", lambda _: None)
    refused = run(FakePool(), "down", "--delete", stdin=b"n\n")
    assert "all its jobs (the store cannot be read)" in refused.stderr
    running = 2
    run(FakePool(), "down", stdin=b"n\n")
    assert ended == ["default"], "the answer was no"
    run(FakePool(), "down", stdin=b"y\n")
    run(FakePool(), "down", "--delete", "--yes")
    assert ended == ["default"] * 3


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
    monkeypatch.setattr(daemon, "run", lambda options, _: seen.append(options))
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


@pytest.mark.parametrize(
    "line",
    [
        "worker run --pool p --credentials c --data-dir d",
        "manager run --domain d --secret-file s --data-dir d",
    ],
)
def test_metrics_at_no_address_are_refused_before_anything_begins(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr("kestrelctl.worker.entry.run", begun.append)
    monkeypatch.setattr("kestrelctl.manager.daemon.run", lambda *given: begun.append(given))
    refused = run(FakePool(), *line.split(), "--metrics", "localhost")
    assert refused.exit_code == 2
    assert "'localhost' is not HOST:PORT" in refused.stderr
    assert begun == []


def test_a_bench_is_run_as_planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from kestrelctl.bench import run as bench_run

    plans: list[tuple[BenchPlan, object]] = []

    async def bench(
        plan: BenchPlan, collected: CollectedRuns, pool: object, progress: object
    ) -> None:
        plans.append((plan, pool))
        # Without a timeline no curves are drawn; test_bench_report.py draws them.
        collected.add(msgspec.structs.replace(a_run("0"), timeline=None))

    monkeypatch.setattr(bench_run, "bench", bench)
    monkeypatch.setattr(sys, "argv", ["x", "bench", "--jobs", "10"])
    result = run(FakePool(), "bench")
    assert result.exit_code == 0, result.stderr
    assert "tasks/s" in result.stdout
    assert re.search(r"^curves: .*/report.html$", result.stderr, re.MULTILINE)
    assert result.stderr.splitlines()[-1].startswith("next: `kestrelctl up`")
    assert plans[0] == (BenchPlan(command="kestrelctl bench --jobs 10"), None)
    line = f"bench --jobs 10 --workers 2 --sleep 0,1 --sleep 0-10 --report {tmp_path} -o json"
    result = run(FakePool(), *line.split())
    assert json.loads(result.stdout)["runs"][0]["tasks_per_second"] == 1000.0
    plan = plans[1][0]
    assert (plan.jobs, plan.workers, plan.sleeps) == (10, 2, ("0", "1", "0-10"))
    assert "report.html" in os.listdir(tmp_path)
    pool = FakePool()
    assert run(pool, "bench", "--pool", "lab", "-o", "quiet").stdout == "1000\n"
    assert plans[2][1] is pool
    run(FakePool(), "bench", "--full")
    assert plans[3][0].sleeps == ("0:917", "1:910", "10:914", "0-10:902")
    assert plans[3][0].jobs == 50_000


def test_a_bench_says_first_how_long_it_will_take_and_shows_each_row_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kestrelctl.bench import run as bench_run

    rows: list[int] = []

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        size = PoolSize(2, 8)
        expected = (
            ExpectedRun(Sleep(0.0, 0.0), size, 35.0),
            ExpectedRun(Sleep(1.0, 1.0), size, 50.0),
        )
        collected.begin(Expectation(expected, 100.0, 1400.0))
        for sleep in ("0", "1"):
            collected.add(a_run(sleep))
            collected.tell()
            rows.append(len(sys.stdout.buffer.getvalue().splitlines()))  # type: ignore[attr-defined]

    monkeypatch.setattr(bench_run, "bench", bench)
    result = run(FakePool(), "bench")
    assert rows == [3, 4]
    assert result.stderr.splitlines()[:2] == [
        "measuring this machine for some seconds",
        "a trial came to 1,400 tasks/s; this will take about 1m 40s "
        "(sleep 0 on 2x8 workers 35 s, sleep 1 on 2x8 workers 50 s)",
    ]


def test_the_page_of_a_bench_overwrites_nothing(tmp_path: Path) -> None:
    from kestrelctl.bench.report.directory import new_directory

    moment = datetime(2026, 1, 2, 3, 4, 5)
    names = [new_directory(tmp_path, moment).name for _ in range(3)]
    assert names == ["2026-01-02-030405", "2026-01-02-030405-2", "2026-01-02-030405-3"]


def test_a_bench_for_a_program_leaves_no_page_unless_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kestrelctl.bench import run as bench_run

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        collected.add(a_run("0"))

    monkeypatch.setattr(bench_run, "bench", bench)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert run(FakePool(), "bench", "-o", "json").stderr == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", ["--sleep 1", "--workers 5", "--sweep"])
def test_the_runs_of_2009_are_not_to_be_had_with_other_workers(more: str) -> None:
    result = run(FakePool(), "bench", "--full", *more.split())
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --full says which runs there are")


@pytest.mark.parametrize(("name", "status"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_bench_that_is_ended_prints_and_saves_what_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, status: int
) -> None:
    from kestrelctl.bench import run as bench_run

    put_away: list[str] = []

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        collected.planned_runs = 4
        collected.add(msgspec.structs.replace(a_run("0"), timeline=None))
        try:
            os.kill(os.getpid(), signal.Signals[name])
            await asyncio.Event().wait()
        finally:
            os.kill(os.getpid(), signal.Signals[name])  # whoever is impatient ends nothing else
            for _ in range(9):
                await asyncio.sleep(0)
            put_away.append("pool")

    monkeypatch.setattr(bench_run, "bench", bench)
    # What is started in the background of a script ignores SIGINT, and under nohup SIGHUP.
    before = signal.signal(signal.Signals[name], signal.default_int_handler)
    try:
        result = run(FakePool(), "bench", "--report", str(tmp_path))
    finally:
        signal.signal(signal.Signals[name], before)
    assert result.exit_code == status
    assert put_away == ["pool"]
    assert result.stdout.splitlines()[-1] == f"ended early by {name} after 1 of 4 runs"
    saved = json.loads((tmp_path / "result.json").read_text())
    assert (len(saved["runs"]), saved["ended_early"]) == (1, f"{name} after 1 of 4 runs")


def test_a_bench_that_fails_prints_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.bench import run as bench_run
    from kestrelctl.errors import TimedOut

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        collected.planned_runs = 2
        collected.add(a_run("0"))
        raise TimedOut("the run with sleep 1 made no progress and was given up")

    monkeypatch.setattr(bench_run, "bench", bench)
    result = run(FakePool(), "bench")
    assert result.exit_code == 6
    assert result.stdout.splitlines()[-1] == "ended early by an error after 1 of 2 runs"
    assert result.stderr.splitlines()[-1].startswith("error: the run with sleep 1 made no progress")


def test_a_bench_goes_on_under_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.bench import run as bench_run

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        for _again in range(9):
            await asyncio.sleep(0)
        collected.add(a_run("0"))

    monkeypatch.setattr(bench_run, "bench", bench)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = run(FakePool(), "bench")
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result.exit_code == 0, result.stderr
    assert "ended early" not in result.stdout


@pytest.mark.parametrize("trouble", [OSError(28, "No space left on device"), AssertionError()])
def test_a_bench_keeps_what_it_has_whatever_goes_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trouble: Exception
) -> None:
    from kestrelctl.bench import run as bench_run

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        collected.planned_runs = 2
        collected.add(msgspec.structs.replace(a_run("0"), timeline=None))
        raise trouble

    monkeypatch.setattr(bench_run, "bench", bench)
    result = run(FakePool(), "bench", "--report", str(tmp_path))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "ended early by an error after 1 of 2 runs"
    assert "result.json" in os.listdir(tmp_path)


def test_a_bench_that_nobody_reads_is_saved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kestrelctl.bench import run as bench_run
    from kestrelctl.cli import bench as cli_bench

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        collected.add(msgspec.structs.replace(a_run("0"), timeline=None))

    def nobody_reads(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(bench_run, "bench", bench)
    monkeypatch.setattr(cli_bench, "BenchOutput", nobody_reads)
    run(FakePool(), "bench", "--report", str(tmp_path))
    assert "result.json" in os.listdir(tmp_path)


def test_a_bench_without_matplotlib_keeps_its_result_and_says_how_to_draw_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kestrelctl.bench import run as bench_run

    async def bench(plan: BenchPlan, collected: CollectedRuns, *_: object) -> None:
        collected.add(a_run("0"))

    monkeypatch.setattr(bench_run, "bench", bench)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    result = run(FakePool(), "bench")
    assert (result.exit_code, "tasks/s" in result.stdout) == (0, True)
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("result: ")]
    (data,) = tmp_path.glob("kestrel/bench/*/result.json")
    assert line.startswith(f"result: {data}; `")
    assert "install matplotlib` lets `kestrelctl bench report " in line
    refused = run(FakePool(), "bench", "--report", str(tmp_path / "report"))
    assert "matplotlib is not installed" in refused.stderr, "before anything is measured"


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from kestrelctl.bench import run as bench_run

    async def bench(*_: object) -> None:
        raise AssertionError("it was measured")

    monkeypatch.setattr(bench_run, "bench", bench)
    (tmp_path / "file").touch()
    result = run(FakePool(), "bench", "--report", f"{tmp_path}/file/report")
    assert result.exit_code == 2
    assert "file/report cannot be written\ncause: Not a directory" in result.stderr


def test_a_sweep_is_run_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.bench import sweep as sweeping

    seen: list[tuple[object, ...]] = []

    async def sweep(
        plan: object, collected: CollectedRuns, workers: object, cell_seconds: float, *_: object
    ) -> None:
        seen.append((plan, workers, cell_seconds))
        collected.cell_seconds = cell_seconds
        collected.planned_runs = 8
        for each in a_sweep().runs:
            collected.add(each)
            collected.tell()

    monkeypatch.setattr(sweeping, "sweep", sweep)
    monkeypatch.setattr(sys, "argv", ["x"])
    result = run(FakePool(), "bench", "--sweep")
    assert "100 workers: knee 0.1 s; measured: 50% busy at 0.13 s" in result.stdout
    assert result.stderr.splitlines()[1] == (
        "run 2 of 8: sleep 0.01 on 10 workers, 500 tasks in 2.0 s"
    )
    assert run(FakePool(), "bench", "--sweep", "-q").stderr == ""
    seen.pop()
    line = "bench --sweep --workers 10,20 --sleep 0,1 --jobs 9 --cell-seconds 0.5 -o json"
    result = run(FakePool(), *line.split())
    assert len(json.loads(result.stdout)["sweep"]["knees"]) == 2
    assert json.loads(result.stderr.splitlines()[7])["run"] == {
        "number": 8, "of": 8, "sleep": "1", "workers": 100, "jobs": 500, "makespan_seconds": 5.263,
    }  # fmt: skip
    plan = {"command": "kestrelctl"}
    assert seen == [
        (BenchPlan(**plan, sleeps=sweeping.SLEEPS), sweeping.WORKERS, sweeping.CELL_SECONDS),
        (BenchPlan(**plan, sleeps=("0", "1"), jobs=9), (10, 20), 0.5),
    ]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--workers 1,2", "several numbers of workers, or a time for each run, make a sweep"),
        ("--cell-seconds 3", "several numbers of workers, or a time for each run, make a sweep"),
        ("--workers 0", "not a number of workers: '0'"),
        ("--workers ten", "not a number of workers: 'ten'"),
        ("--workers ,", "not a number of workers: ','"),
        ("--sleep ,", "no sleep time is given"),
        ("--sleep 1:0", "not a number of workers: '0' in '1:0'"),
        ("--sweep --sleep 1:9", "a sweep runs every sleep time on every number of workers"),
        ("--jobs 5 compare a b", "options of a run do not go with `bench compare`"),
        ("compare", "missing argument 'A B [MORE]...'"),
        ("compare a b --threshold x", "not a percentage: 'x'"),
        ("compare a b --fail-slower 101%", "not a percentage: '101%'"),
    ],
)
def test_a_bench_that_makes_no_sense_is_refused(line: str, error: str) -> None:
    result = run(FakePool(), "bench", *line.split())
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {error}")


@pytest.fixture
def results(tmp_path: Path) -> list[str]:
    """The files of two benches, the second one slower, on another machine."""
    slow = a_run(makespan_seconds=150.0, worker_cpu_seconds=0.5)
    machine = msgspec.structs.replace(MACHINE, cores=8)
    for name, result in (
        ("old", a_result(a_run())),
        ("new", a_result(slow, machine=machine)),
    ):
        (tmp_path / f"{name}.json").write_bytes(to_json(result))
    return [str(tmp_path / "old.json"), str(tmp_path / "new.json")]


def test_results_are_compared(results: list[str]) -> None:
    found = run(FakePool(), "bench", "compare", *results)
    assert found.exit_code == 0, "a difference is no failure unless that is asked for"
    assert found.stdout == (
        "new over old; + better, ! worse by more than 10 %\n"
        "SLEEP  WORKERS  MAKESPAN  TASKS/S    BUSY     P50     P99     CPU\n"
        "    1       10    1.50 !   0.67 !  0.67 !  1.00    1.00    0.58 +\n"
    )
    assert found.stderr == "warning: old and new ran on different machines: cores 2 and 8\n"
    assert run(FakePool(), "bench", "compare", *results, "-o", "quiet").stdout == "worse\n"
    assert run(FakePool(), "bench", "compare", *results[:1] * 2, "-o", "quiet").stdout == "same\n"


def test_a_comparison_in_json_holds_what_was_compared(results: list[str]) -> None:
    line = ["bench", "compare", *results, "--threshold", "60%", "-o", "json"]
    document = json.loads(run(FakePool(), *line).stdout)
    assert (document["baseline"], document["threshold"]) == ("old", 0.6)
    assert document["runs"][0]["changes"]["makespan_seconds"] == {
        "before": 100.0, "after": 150.0, "ratio": 1.5, "verdict": "same",
    }  # fmt: skip


def test_a_comparison_may_fail(results: list[str]) -> None:
    line = ["bench", "compare", *results, "--fail-slower"]
    found = run(FakePool(), *line, "20%")
    assert found.exit_code == 1
    assert "SLEEP" in found.stdout
    assert "error: 1 of 1 runs are slower by more than 20 %\ncause: new: sleep 1\n" in found.stderr
    assert run(FakePool(), *line, "40%").exit_code == 0


def test_results_are_drawn_on_one_page(results: list[str], tmp_path: Path) -> None:
    page = str(tmp_path / "talk.html")
    found = run(FakePool(), "bench", "report", *results, "--to", page, "-o", "json")
    assert json.loads(found.stdout) == {"report": page}
    assert Path(page).read_text().startswith("<!doctype html>")


def test_help_of_bench_names_the_defaults_of_a_sweep() -> None:
    from kestrelctl.bench import sweep

    text = " ".join(run(FakePool(), "bench", "--help").stdout.split())
    workers = ",".join(map(str, sweep.WORKERS))
    assert f"[default: --workers {workers} --sleep {','.join(sweep.SLEEPS)}]" in text
    assert f"[default: {sweep.CELL_SECONDS:g}]" in text


def test_help_of_bench_names_the_defaults_of_a_plan() -> None:
    from kestrelctl.bench.run import BenchPlan

    text = " ".join(run(FakePool(), "bench", "--help").stdout.split())
    for default in (
        f"{BenchPlan().jobs:,}",
        "as suits this machine",
        ",".join(BenchPlan().sleeps),
    ):
        assert f"[default: {default}]" in text
    assert f"[--sleep {','.join(SLEEPS_2009)}]" in text


# -- on a terminal ---------------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Standard output is a terminal of 60 columns; what was written there is in `text`."""
    written = SimpleNamespace(text="")

    def write(text: str) -> None:
        written.text += text

    stdout = SimpleNamespace(isatty=lambda: True, write=write, flush=lambda: None)
    monkeypatch.setattr(
        "kestrelctl.cli.show.screen.sys", SimpleNamespace(stdout=stdout, stderr=stdout)
    )
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
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    assert re.findall(r"^\| `-o (\w+)` \|", page, re.MULTILINE) == [mode.value for mode in Mode]
