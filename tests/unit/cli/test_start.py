"""What a start of kestrelctl costs: no command imports what it does not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kestrelctl.cli.main import COMMANDS
from kestrelctl.errors import Unreachable
from kestrelctl.garbage import YOUNG_OBJECTS

CHECKOUT = Path(__file__).parents[3]
HEAVY = {"asyncio", "msgspec", "rich", "psutil", "sqlite3", "matplotlib"}
#: What commands of a moment are made of, and the most modules of ours that this may load.
_BRIEFLY = "kestrelctl.at_once, kestrelctl.xmpp.brief_user, kestrelctl.xmpp.login, "
OF_A_MOMENT = {
    "job list": (_BRIEFLY + "kestrelctl.cli.job.commands", 81),
    "job logs": (_BRIEFLY + "kestrelctl.cli.job.commands, kestrelctl.cli.job.logs", 87),
    "submit": (_BRIEFLY + "kestrelctl.cli.submit.commands, kestrelctl.cli.submit.submission", 85),
    "map": (
        "kestrelctl.xmpp.user, kestrelctl.cli.map.commands, kestrelctl.cli.map.output, "
        "kestrelctl.cli.map.reading, kestrelctl.cli.until_signal",
        106,
    ),
}
ALWAYS = ("kestrelctl.cli.main", "kestrelctl.access.connection")
#: They take longer to load than a local pool takes to answer, and its login needs no hash.
_OF_A_LOOP = {"asyncio", "ssl", "logging", "concurrent.futures", "subprocess", "hashlib", "hmac"}


PROGRAM = """
import contextlib, io, json, sys
from kestrelctl.cli.main import main
loaded = {}
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main()
    assert said.getvalue(), line
    loaded[line] = list(sys.modules)
print(json.dumps(loaded))
"""


def modules_after(*lines: str) -> dict[str, set[str]]:
    """The modules that are loaded after each of the command lines, run in one process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *lines],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {line: set(modules) for line, modules in json.loads(done.stdout).items()}


def test_version_and_help_load_next_to_nothing() -> None:
    found = modules_after("--version", "--help")
    assert found.keys() == {"--version", "--help"}
    for loaded in found.values():
        assert "click" in loaded
        assert not loaded & HEAVY
        ours = {name for name in loaded if name.startswith("kestrelctl.") and name.count(".") > 1}
        rooms = {"kestrelctl.cli.show"}
        assert ours == rooms | {
            "kestrelctl.cli.command", "kestrelctl.cli.main", "kestrelctl.cli.show.screen"
        }  # fmt: skip


def test_help_of_a_command_loads_no_session_and_no_tables() -> None:
    unwanted = {
        "rich",
        "kestrelctl.xmpp.stream",
        "psutil",
        "sqlite3",
        "matplotlib",
        "fabric",
        "paramiko",
        "grafana_client",
        "kestrelctl.bench.run",
    }
    after = modules_after(*(f"{command} --help" for command in COMMANDS))
    assert {line: found for line in after if (found := after[line] & unwanted)} == {}


@pytest.mark.parametrize("command", OF_A_MOMENT)
def test_a_command_of_a_moment_loads_what_it_needs(command: str) -> None:
    """Each module is a third of a millisecond; the other verbs of `job` would be twenty."""
    modules, most = OF_A_MOMENT[command]
    program = f"import sys, {', '.join((*ALWAYS, modules))}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.split())
    unwanted = {
        "configparser", "difflib", "secrets", "shutil", "tarfile", "tempfile", "tomllib",
        "kestrelctl.cli.job.fetch", "kestrelctl.cli.job.wait", "kestrelctl.cli.show.progress",
        "kestrelctl.xmpp.slots",
        # Who asks the pool about jobs needs no word of workers, neighbours, or other questions.
        "kestrelctl.protocol.answers", "kestrelctl.protocol.directions",
        "kestrelctl.protocol.requests", "kestrelctl.protocol.workers",
    }  # fmt: skip
    if command != "map":
        unwanted |= _OF_A_LOOP
    assert loaded & (unwanted | HEAVY - {"asyncio", "msgspec"}) == set()
    ours = {name for name in loaded if name.partition(".")[0] == "kestrelctl"}
    assert len(ours) <= most, "import it where it is needed, or raise the number and say why"


def test_a_program_looks_seldom_through_what_it_imports_and_not_at_its_end() -> None:
    program = (
        "import gc, sys\n"
        "from kestrelctl.cli.main import main\n"
        "sys.argv[1:] = ['--version']\n"
        "try:\n    main()\n"
        "except SystemExit:\n    print(gc.get_threshold()[0], len(gc.get_objects()))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    threshold, left = map(int, done.stdout.splitlines()[-1].split())
    assert threshold == YOUNG_OBJECTS
    assert left < 100


def test_python_m_is_the_same_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kestrelctl", "--version"],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("kestrelctl ")


@pytest.mark.parametrize("words", ["job list", "job tasks 7 -o wide", "job info 7 -o json"])
def test_what_a_pool_answers_is_printed_without_rich(words: str) -> None:
    """Its tables would take 20 ms to load."""
    program = (
        "import sys\n"
        "from cli_fake_pool import FakePool, Invocation, kestrelctl\n"
        "invocation = Invocation(open_pool=FakePool().open)\n"
        f"kestrelctl.main({words.split()}, obj=invocation, standalone_mode=False)\n"
        "assert 'rich' not in sys.modules\n"
    )
    path = f"{CHECKOUT}:{Path(__file__).parents[1]}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_reader_that_goes_away_is_no_trouble() -> None:
    program = (
        "from cli_fake_pool import TASK, FakePool, Invocation, an, kestrelctl\n"
        "pool = FakePool(ListTasks=an.Tasks(id='', tasks=[TASK] * 100_000))\n"
        "words = ['job', 'tasks', '7', '-o', 'jsonl']\n"
        "kestrelctl.main(words, obj=Invocation(open_pool=pool.open))\n"
    )
    path = f"{CHECKOUT}:{Path(__file__).parents[1]}"
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


SHELLS_WORDS = """
eval "$(_KESTRELCTL_COMPLETE=bash_source kestrelctl)"
COMP_WORDS=(kestrelctl job l) COMP_CWORD=2
_kestrelctl_completion kestrelctl
echo "${COMPREPLY[@]}"
COMPREPLY=() COMP_WORDS=(kestrelctl job cancel --t) COMP_CWORD=3
_kestrelctl_completion kestrelctl
echo "${COMPREPLY[@]}"
"""


def test_bash_completes_commands_and_options_as_documented() -> None:
    assert '"$(_KESTRELCTL_COMPLETE=bash_source kestrelctl)"' in (
        CHECKOUT / "docs" / "cli.md"
    ).read_text(encoding="utf-8")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", SHELLS_WORDS],
        env={**os.environ, "PATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["list logs", "--task"], done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_neither_the_error_nor_its_status(
    closed: str, tmp_path: Path
) -> None:
    line = f'"$0" -m kestrelctl job list --pool nowhere {closed}'
    done = subprocess.run(
        ["sh", "-c", line, sys.executable],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == Unreachable.exit_status
    assert ("no pool 'nowhere'" in done.stderr) is ("2>" not in closed)
