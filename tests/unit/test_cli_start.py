"""What a start of kestrelctl costs: no command imports what it does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
HEAVY = {"asyncio", "msgspec", "rich", "slixmpp", "psutil", "sqlite3", "matplotlib"}


def modules_after(*args: str) -> set[str]:
    """The modules that are loaded when a command line has run."""
    program = (
        "import sys\n"
        "from kestrelctl.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    sys.stderr.write(' '.join(sys.modules))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        [sys.executable, "-c", program, *args],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_load_next_to_nothing(option: str) -> None:
    loaded = modules_after(option)
    assert "click" in loaded
    assert not loaded & HEAVY
    ours = {name for name in loaded if name.startswith("kestrelctl.") and name.count(".") > 1}
    assert ours == {"kestrelctl.cli.command", "kestrelctl.cli.main", "kestrelctl.cli.screen"}


@pytest.mark.parametrize(
    "noun",
    ["submit", "job", "worker", "pool", "manager", "up", "bench", "fleet", "dashboards", "top"],
)
def test_help_of_a_command_loads_no_session_and_no_tables(noun: str) -> None:
    loaded = modules_after(noun, "--help")
    assert not loaded & {
        "rich",
        "slixmpp",
        "psutil",
        "sqlite3",
        "matplotlib",
        "fabric",
        "paramiko",
        "grafana_client",
        "kestrelctl.bench.run",
    }


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kestrelctl", "--version"],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("kestrelctl ")


def test_a_reader_that_goes_away_is_no_trouble() -> None:
    program = (
        "from cli_fake_pool import TASK, FakePool, Session, an, kestrelctl\n"
        "pool = FakePool(ListTasks=an.Tasks(id='', tasks=[TASK] * 100_000))\n"
        "kestrelctl.main(['job', 'tasks', '7', '-o', 'jsonl'], obj=Session(open_pool=pool.open))\n"
    )
    path = f"{CHECKOUT}:{Path(__file__).parent}"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141
