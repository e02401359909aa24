"""Every command line in the documents can be run."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cli_fake_pool import FakePool, FakeShare, run

from kestrel_experiments.flock import result as flock_result
from kestrel_experiments.flock import run as flock_run
from kestrel_experiments.flock_simulation import runs as flock_simulation
from kestrel_experiments.imbalance import run as imbalance_run
from kestrel_experiments.imbalance import simulation as imbalance_simulation
from kestrel_experiments.polls import run as poll_run
from kestrelctl.bench import run as bench_run
from kestrelctl.bench import saved as bench_saved
from kestrelctl.bench import sweep as bench_sweep
from kestrelctl.bench.report import directory as bench_report
from kestrelctl.cli.submit.job_file import read_job_file
from kestrelctl.files import share
from kestrelctl.fleet import inventory
from kestrelctl.grafana import client as grafana_client
from kestrelctl.local import control
from kestrelctl.local.pool_state import workers_directory
from kestrelctl.manager import daemon
from kestrelctl.metrics import endpoint
from kestrelctl.protocol.workers import Token
from kestrelctl.store import backup
from kestrelctl.worker import entry as worker_entry
from kestrelctl.worker import systemd_unit
from kestrelctl.worker.joined_pools import Membership, Settings
from kestrelctl.xmpp import joiner

PAGE = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
LINES = re.findall(r"^(kestrelctl .*)$", PAGE, re.MULTILINE)
BLOCKS = dict(re.findall(r"^```(toml|ini)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
TOKEN = Token(host="x", port=5222, pool="example.org", jid="join-1-a@x", password="p").encode()
#: A moment after the dates that the page has.
AFTER_ITS_DATES = 1_900_000_000.0
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


class Reached(Exception):
    """A command got as far as the work itself."""


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the page speaks of; what would start processes does not."""
    (tmp_path / "lean.policy").write_text("ConsumptionCpus = 2\n")
    (tmp_path / "names.txt").write_text("ada\ngrace\n")
    (tmp_path / "points.json").write_text('[{"x": 1, "y": 2}]')
    (tmp_path / "sweep.toml").write_text(TOML[0])
    (tmp_path / "sample.job").write_text(BLOCKS["ini"])
    (tmp_path / "grafana.token").write_text("token\n")
    (tmp_path / "boards").mkdir()
    (tmp_path / "state" / "kestrel" / "pools" / "test").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    def reached(*_args: Any, **_options: Any) -> Any:
        raise Reached

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    joined = Membership(workers_directory(), "joined.example.org")
    joined.prepare("")
    joined.store(
        Settings(pool=joined.pool, host="xmpp.example.org", port=5222, tls=True), "w@x", "secret"
    )
    for module, name in (
        (joiner, "join"),
        (control, "up"),
        (control, "down"),
        (bench_run, "bench"),
        (poll_run, "poll_run"),
        (flock_run, "one_flock_run"),
        (imbalance_run, "imbalance_run"),
        (imbalance_simulation, "simulated_run"),
        (flock_result, "read_flock_result"),
        (flock_simulation, "simulate"),
        (inventory, "read_inventory"),
        (worker_entry, "run"),
        (systemd_unit, "check_possible"),
        (daemon, "run"),
        (backup, "back_up"),
        (backup, "restore"),
        (bench_sweep, "sweep"),
        (bench_saved, "read_result"),
        (bench_report, "write_page"),
        (grafana_client, "connect"),
        (share, "FileShare"),
    ):
        monkeypatch.setattr(module, name, reached)
    # Ports of this machine may be taken; that is not what the page is about.
    monkeypatch.setattr(endpoint, "check_free", lambda address: None)
    return tmp_path


def test_there_are_command_lines() -> None:
    assert len(LINES) > 30


@pytest.mark.usefixtures("desk")
@pytest.mark.parametrize("line", LINES)
def test_a_command_line_of_the_page_works(line: str) -> None:
    pool = FakePool()
    words = shlex.split(line.replace("TOKEN", TOKEN))[1:]
    share = None if "fetch" in line else FakeShare()
    result = run(pool, *words, share=share, now=AFTER_ITS_DATES)
    if result.exit_code == 1:
        assert "Reached" in result.stderr
    else:
        assert result.exit_code == 0, result.stderr
        assert pool.asked or line.startswith(("kestrelctl pool chat", "kestrelctl context "))


def test_the_job_files_of_the_page_can_be_read(desk: Path) -> None:
    job = read_job_file(desk / "sweep.toml")
    assert job.argv == ("./fit", "{x}", "{y}")
    assert job.options["cleanup"] == ("rm", "-f", "lock")
    assert read_job_file(desk / "sample.job").options == {
        "array": ["0-4"],
        "cleanup": ("/bin/sh", "-c", './cleanup.sh "$KESTREL_TASK_ID"'),
        "requires": ["FOO", "BAR", "BAZ"],
    }


def test_the_configuration_of_the_page_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kestrelctl.access import context

    assert tomllib.loads(TOML[1])["default"] == "lab"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(context, "SYSTEM_CONFIG", tmp_path / "none.toml")
    monkeypatch.delenv("KESTREL_POOL", raising=False)
    (tmp_path / "kestrel").mkdir()
    (tmp_path / "kestrel" / "config.toml").write_text(TOML[1])
    assert context.find_context("").host == "xmpp.example.org"
