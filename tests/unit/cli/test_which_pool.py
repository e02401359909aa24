"""Every command is about the pool that was named, or refuses; it never turns to another one."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cli_fake_pool import FakePool
from click.testing import CliRunner, Result
from commandlines import COMMAND_LINES, LEAVES, WITHOUT_POOL

from kestrelctl.access import connection, context
from kestrelctl.access.context import Context
from kestrelctl.bench import run as bench_run
from kestrelctl.cli.command import Invocation
from kestrelctl.cli.main import kestrelctl
from kestrelctl.cli.pool import traffic
from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.local import control
from kestrelctl.local.pool_state import (
    PoolState,
    manager_directory,
    pool_directory,
    pools_directory,
    write_state,
)
from kestrelctl.store import backup
from kestrelctl.store.postgresql import moving

#: Commands that start, stop, copy or ask a pool, and that the table of `test_cli_modes` lacks.
ABOUT_A_POOL = {
    "up": "up",
    "down": "down --delete --yes",
    "manager backup": "manager backup copy",
    "manager restore": "manager restore copy",
    "manager migrate": "manager migrate --postgresql service=kestrel",
    "map": "map -- echo :::",
    "job fetch": "job fetch 7 --to files",
    "pool chat": "pool chat",
    "pool metrics": "pool metrics",
    "pool traffic": "pool traffic --measure",
    "bench": "bench --jobs 1",
    "doctor": "doctor",
}
#: Commands that are about no pool of a user, so that `KESTREL_POOL` tells them nothing.
ABOUT_NONE = {
    # Daemons and services of this machine: the account, the token or --domain says which pool.
    "manager run": "manager run --domain pool.example.org --secret-file secret",
    "worker run": "worker run",
    "worker join": "worker join TOKEN",
    "worker environment": "worker environment file class TOKEN",
    "worker service": "worker service",
    # What names pools.
    "context add": "context add n --jid a@b --domain c --password-file p",
    "context list": "context list",
    "context remove": "context remove n",
    "context show": "context show",
    "context use": "context use n",
    # Hosts of an inventory.
    "fleet bundle": "fleet bundle",
    "fleet logs": "fleet logs",
    "fleet restart": "fleet restart",
    "fleet run": "fleet run -- true",
    "fleet status": "fleet status",
    # A Grafana server.
    "dashboards push": "dashboards push",
    "dashboards pull": "dashboards pull",
    "dashboards diff": "dashboards diff",
    "dashboards snapshot": "dashboards snapshot pool",
    # Files with results, and pools that a measurement makes for itself.
    "bench compare": "bench compare a b",
    "bench report": "bench report a",
    "bench environments": "bench environments",
    "bench flock": "bench flock",
    "bench flock-sim": "bench flock-sim",
    "bench properties": "bench properties",
}
LINES = [*COMMAND_LINES, *ABOUT_A_POOL.values()]


class Desk:
    """A user of a machine on which pools run.

    Attributes:
        reached: the pools that commands have talked to, started, stopped or copied.
        deleted: of these, the ones that were stopped with their jobs.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.reached: set[str] = set()
        self.deleted: list[str] = []

    def has(self, *names: str) -> None:
        """Makes it look as if pools of these names ran here."""
        for name in names:
            directory = pool_directory(name)
            manager_directory(name).mkdir(parents=True)
            write_state(directory, state(name))

    def configure(self, text: str) -> None:
        """Writes the user's configuration."""
        file = context.own_config()
        file.parent.mkdir(parents=True)
        file.write_text(text)

    def run(self, *words: str, named_by_environment: str = "") -> Result:
        """Runs a command line as this user."""
        environment = {"KESTREL_OUTPUT": "", "KESTREL_POOL": named_by_environment, "NO_COLOR": ""}
        return CliRunner(env=environment).invoke(
            kestrelctl, words, obj=Invocation(), prog_name="kestrelctl"
        )


def state(name: str) -> PoolState:
    """A pool that runs as long as this process does."""
    directory = pool_directory(name)
    return PoolState(
        name=name, pid=os.getpid(), domain=f"{name}.localhost", host="127.0.0.1", port=40_000,
        user="user@users.localhost", password_file=str(directory / "user.password"),
        admin="admin@users.localhost", admin_password_file=str(directory / "admin.password"),
        workers=1, server_pid=0, manager_pid=0, worker_pids=[], metrics="http://127.0.0.1:1/",
    )  # fmt: skip


class Reached(KestrelError):
    """A command got as far as the work itself."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A user; what would reach a pool is noted, and goes no further than a double."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(context, "SYSTEM_CONFIG", tmp_path / "none.toml")
    found = Desk(tmp_path)
    really = context.find_context

    def find_context(wanted: str) -> Context:
        meant = really(wanted)
        found.reached.add(meant.name)
        return meant

    monkeypatch.setattr(context, "find_context", find_context)
    monkeypatch.setattr(connection, "find_context", find_context)

    @asynccontextmanager
    async def connect(meant: Context, *, as_admin: bool = False) -> AsyncIterator[FakePool]:
        yield FakePool()

    async def up(name: str, *_: Any, **__: Any) -> PoolState:
        found.reached.add(name)
        return state(name)

    async def down(name: str, *, delete: bool = False) -> None:
        if not pool_directory(name).exists():
            raise NotFound(f"there is no pool {name} here")
        found.reached.add(name)
        found.deleted += [name] * delete

    async def running_tasks(name: str) -> int:
        return 0

    def copied(*paths: Any, **_: object) -> None:
        directory = next(path for path in paths if getattr(path, "name", "") == "manager")
        found.reached.add(directory.parent.name)
        raise Reached("copied")

    async def bench(_plan: object, _findings: object, pool: object, _progress: object) -> None:
        raise Reached("measured" if pool else "measured a pool of its own")

    async def watch(*_: object) -> None:
        raise Reached("watched")

    monkeypatch.setattr(connection, "connect", connect)
    monkeypatch.setattr(control, "up", up)
    monkeypatch.setattr(control, "down", down)
    monkeypatch.setattr(control, "running_tasks", running_tasks)
    monkeypatch.setattr(backup, "back_up", copied)
    monkeypatch.setattr(backup, "restore", copied)
    monkeypatch.setattr(moving, "move", copied)
    monkeypatch.setattr(bench_run, "bench", bench)
    monkeypatch.setattr(traffic, "watch", watch)
    return found


def with_pool(line: str, name: str) -> list[str]:
    """A command line with `--pool` among the options of the command itself."""
    words = line.split()
    place = words.index("--") if "--" in words else len(words)
    return [*words[:place], "--pool", name, *words[place:]]


def test_no_command_is_left_out() -> None:
    assert {*ABOUT_A_POOL, *ABOUT_NONE} == WITHOUT_POOL


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_about_the_pool_of_its_option(desk: Desk, line: str) -> None:
    desk.has("default", "q")
    desk.run(*with_pool(line, "q"))
    assert desk.reached == {"q"}


@pytest.mark.parametrize("line", LINES)
def test_an_option_before_the_command_says_the_same(desk: Desk, line: str) -> None:
    desk.has("default", "q")
    desk.run("--pool", "q", *line.split())
    assert desk.reached == {"q"}


@pytest.mark.parametrize("line", LINES)
def test_a_command_is_about_the_pool_that_the_environment_names(desk: Desk, line: str) -> None:
    desk.has("default", "q")
    result = desk.run(*line.split(), named_by_environment="q")
    if line.startswith("bench"):
        assert desk.reached == set(), "only --pool has a pool of others measured"
        assert "measured a pool of its own" in result.stderr
    else:
        assert desk.reached == {"q"}


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith(("up", "bench"))])
def test_a_pool_that_is_not_here_is_refused_and_no_other_one_is_reached(
    desk: Desk, line: str
) -> None:
    desk.has("default")
    result = desk.run(*line.split(), named_by_environment="gone")
    assert result.exit_code in (NotFound.exit_status, 5)
    assert "gone" in result.stderr
    assert desk.reached == set()


@pytest.mark.parametrize("name", ABOUT_NONE)
def test_a_command_about_no_pool_refuses_the_option(
    desk: Desk, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(**_: object) -> None:
        raise Reached("it began")

    monkeypatch.setattr(LEAVES[name], "callback", begin)
    desk.has("default", "q")
    result = desk.run("--pool", "q", *ABOUT_NONE[name].split())
    assert result.exit_code == UsageError.exit_status
    assert result.stderr.startswith("error: --pool before `kestrelctl ")
    assert desk.reached == set()


LAB = """
[context.lab]
jid = "ada@example.org"
password_file = "lab.password"
pool = "pool.example.org"
"""


@pytest.mark.parametrize("line", ["up", "down", "manager backup f", "manager restore f"])
def test_a_pool_of_the_configuration_is_not_one_of_this_machine(desk: Desk, line: str) -> None:
    desk.has("default", "lab")
    desk.configure(LAB)
    result = desk.run(*line.split(), named_by_environment="lab")
    assert result.exit_code == UsageError.exit_status
    assert "lab is a context of the configuration" in result.stderr
    assert desk.reached == set()


def test_down_stops_nothing_where_its_two_options_differ(desk: Desk) -> None:
    desk.has("default", "q")
    result = desk.run("--pool", "q", "down", "--name", "default", "--delete", "--yes")
    assert result.exit_code == UsageError.exit_status
    assert "--name is default, --pool is q" in result.stderr
    assert desk.deleted == []
    desk.run("--pool", "q", "down", "--name", "q", "--delete", "--yes")
    assert desk.deleted == ["q"]


def test_a_name_on_the_command_line_goes_before_the_environment(desk: Desk) -> None:
    desk.has("default", "q")
    desk.run("down", "--name", "default", "--delete", named_by_environment="q")
    assert desk.deleted == ["default"]
    desk.configure(LAB)
    ended = desk.run("down", "--name", "q", "--delete", named_by_environment="lab")
    assert (ended.exit_code, desk.deleted) == (0, ["default", "q"])


def test_a_bare_down_means_default_or_the_only_pool_there_is(desk: Desk) -> None:
    assert desk.run("down", "--delete").exit_code == NotFound.exit_status
    desk.has("q")
    desk.run("down", "--delete")
    assert desk.deleted == ["q"]
    desk.has("r")
    several = desk.run("down", "--delete")
    assert several.exit_code == UsageError.exit_status
    assert "there are q, r" in several.stderr
    desk.has("default")
    desk.run("down", "--delete")
    assert desk.deleted == ["q", "default"]


def test_what_the_configuration_calls_the_default_is_meant_here_too(desk: Desk) -> None:
    desk.has("default", "q")
    desk.configure('default = "q"')
    for line in ("down --delete", "job list", "manager backup f", "up"):
        desk.run(*line.split())
        assert desk.reached == {"q"}, line


def test_what_is_copied_is_named_once(desk: Desk) -> None:
    desk.has("default", "q")
    result = desk.run("manager", "backup", "f", "--data-dir", "manager", "--pool", "q")
    assert result.exit_code == UsageError.exit_status
    assert desk.reached == set()


@pytest.mark.parametrize("line", ["up q", "down q --yes", "--pool q up q"])
def test_a_name_that_is_no_options_is_answered_with_the_option(desk: Desk, line: str) -> None:
    desk.has("default", "q")
    result = desk.run(*line.split())
    command = "up" if "up" in line else "down"
    assert result.exit_code == UsageError.exit_status
    assert f"hint: kestrelctl {command} --name q" in result.stderr
    assert desk.reached == set()


def test_a_pool_that_is_started_with_the_option_of_all_commands_is_that_pool(desk: Desk) -> None:
    for words in (["--pool", "new", "up"], ["up", "--pool", "new"], ["up", "--name", "new"]):
        desk.reached.clear()
        result = desk.run(*words)
        assert desk.reached == {"new"}, words
        assert "pool new is up" in result.stdout
        assert "next: kestrelctl --pool new submit" in result.stderr


@pytest.mark.parametrize(
    ("name", "hint"),
    [("labb", "kestrelctl up --name labb"), ("a b", "kestrelctl context list"),
     ("; reboot", "kestrelctl context list"), ("x" * 64, "kestrelctl context list")],
)  # fmt: skip
def test_a_pool_is_begun_only_under_a_name_that_it_can_have(
    desk: Desk, name: str, hint: str
) -> None:
    assert desk.run("--pool", name, "job", "list").stderr.endswith(f"hint: {hint}\n")


def test_a_directory_of_the_user_is_no_relative_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool that was started in one directory would not be found from another."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, found, usual in (
        ("XDG_STATE_HOME", pools_directory, tmp_path / ".local/state/kestrel/pools"),
        ("XDG_CONFIG_HOME", context.own_config, tmp_path / ".config/kestrel/config.toml"),
    ):
        monkeypatch.setenv(variable, "here")
        assert found() == usual


def test_who_has_no_home_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> NoReturn:
        raise KeyError(uid)

    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for words in (["context", "list"], ["job", "list"], ["down"]):
        found = CliRunner().invoke(kestrelctl, words)
        assert found.exit_code == 2
        assert "hint: export HOME=DIR" in found.stderr
