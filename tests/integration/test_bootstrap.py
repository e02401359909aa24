"""What ./kestrel does on a machine that lacks something, with stand-ins for the tools it calls."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
ORDINARY_TOOLS = ("cat", "cksum", "dirname", "grep", "ln", "mkdir", "readlink", "rm", "sh")
UV = """
echo "$@" >>"$TOOLS/calls"
case $1 in
venv)
    while [ $# -gt 1 ]; do shift; done
    mkdir -p "$1/bin"
    ln -s "$TOOLS/python3" "$1/bin/python"
    ;;
pip)
    for program in kestrelctl ansible-playbook molecule; do
        printf '#!/bin/sh\\necho %s "$@"\\n' "$program" >".venv/bin/$program"
        chmod +x ".venv/bin/$program"
    done
    ;;
esac
"""


@dataclass
class Machine:
    """A checkout, and the only directory that PATH names."""

    checkout: Path
    tools: Path

    def add(self, name: str, script: str) -> None:
        tool = self.tools / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    def kestrel(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.checkout / "kestrel", *arguments],
            cwd=cwd,
            env={"PATH": str(self.tools), "TOOLS": str(self.tools)},
            capture_output=True,
            text=True,
            check=False,
        )

    def installations(self) -> list[str]:
        calls = self.tools / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line.rpartition(" ")[2] for line in lines if line.startswith("pip install")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One with Python, uv and Prosody, where nobody is root."""
    checkout, tools = tmp_path / "checkout", tmp_path / "tools"
    checkout.mkdir()
    tools.mkdir()
    locks = ("requirements.lock", "requirements-run.lock", "requirements-build.lock")
    for name in ("kestrel", "pyproject.toml", *locks):
        shutil.copy(CHECKOUT / name, checkout)
    (checkout / "experiments").mkdir()
    shutil.copy(CHECKOUT / "experiments/pyproject.toml", checkout / "experiments")
    for name in (*ORDINARY_TOOLS, "chmod"):
        (tools / name).symlink_to(str(shutil.which(name)))
    machine = Machine(checkout, tools)
    machine.add("python3", f'exec "{sys.executable}" "$@"')
    machine.add("uv", UV)
    machine.add("prosodyctl", "exit 1")
    machine.add("id", "echo 1000")
    return machine


def test_the_first_start_installs_and_the_second_does_not(machine: Machine) -> None:
    first = machine.kestrel("job", "list")
    assert first.stdout == "kestrelctl job list\n"
    assert "installing" in first.stderr
    second = machine.kestrel("job", "list")
    assert (second.stdout, second.stderr) == (first.stdout, "")
    assert machine.installations() == ["requirements-run.lock", "experiments"]


def test_what_lies_where_it_is_called_is_not_run(machine: Machine, tmp_path: Path) -> None:
    """Such as another checkout, whose programs it would compile instead of its own."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "kestrelctl").mkdir(parents=True)
    loaded = elsewhere / "loaded"
    (elsewhere / "kestrelctl" / "__init__.py").write_text(f"open({str(loaded)!r}, 'w')\n")
    assert machine.kestrel("submit", cwd=elsewhere).returncode == 0
    assert not loaded.exists()


def test_it_tells_the_program_how_it_was_called(machine: Machine) -> None:
    machine.kestrel("--version")
    program = machine.checkout / ".venv/bin/kestrelctl"
    program.write_text('#!/bin/sh\necho "$KESTREL_CALLED_AS"\n')
    environment = {"PATH": str(machine.tools), "TOOLS": str(machine.tools)}
    for words, called in (
        (["./kestrel"], "./kestrel"),
        (["sh", "kestrel"], "./kestrel"),
        ([str(machine.checkout / "kestrel")], str(machine.checkout / "kestrel")),
    ):
        done = subprocess.run(
            words, env=environment, cwd=machine.checkout, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{called}\n"


def test_ansible_comes_with_it(machine: Machine) -> None:
    played = machine.kestrel("ansible-playbook", "-i", "inventory/mine", "site.yml")
    assert played.stdout == "ansible-playbook -i inventory/mine site.yml\n"
    assert machine.installations() == ["requirements-build.lock", "experiments"]


def test_molecule_comes_with_the_tests(machine: Machine) -> None:
    played = machine.kestrel("molecule", "test", "-s", "pool")
    assert played.stdout == "molecule --base-config tests/molecule/shared/base.yml test -s pool\n"
    assert machine.installations() == ["requirements.lock", "experiments"]


def test_a_changed_lock_is_installed_anew(machine: Machine) -> None:
    machine.kestrel("--version")
    with (machine.checkout / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    machine.kestrel("--version")
    assert machine.installations() == ["requirements-run.lock", "experiments"] * 2


def test_a_copied_checkout_gets_an_environment_of_its_own(machine: Machine, tmp_path: Path) -> None:
    machine.kestrel("--version")
    shutil.copytree(machine.checkout, tmp_path / "copy", symlinks=True)
    copy = Machine(tmp_path / "copy", machine.tools)
    copy.kestrel("--version")
    assert (copy.checkout / ".venv/checkout").read_text() == f"{copy.checkout}\n"


def test_an_interrupted_installation_starts_over(machine: Machine) -> None:
    machine.add("uv", UV + 'case $1 in pip) kill -9 "$PPID" ;; esac')
    assert machine.kestrel("--version").returncode != 0
    leftover = machine.checkout / ".venv/leftover"
    leftover.touch()
    machine.add("uv", UV)
    assert machine.kestrel("--version").returncode == 0
    assert not leftover.exists()


def test_a_python_that_is_too_old_is_refused(machine: Machine) -> None:
    machine.add("python3", "exit 1")
    refused = machine.kestrel("--version")
    assert refused.returncode == 9
    assert "Python 3.11 or newer is needed" in refused.stderr


@pytest.mark.parametrize(
    ("manager", "by_hand"),
    [
        ("apt-get", "sudo apt-get install --no-install-recommends prosody"),
        ("dnf", "sudo dnf install prosody"),
        ("apk", "sudo apk add prosody"),
    ],
)
def test_without_root_it_says_what_to_install(machine: Machine, manager: str, by_hand: str) -> None:
    (machine.tools / "prosodyctl").unlink()
    machine.add(manager, "echo must not run; exit 1")
    refused = machine.kestrel("up")
    assert refused.returncode == 9
    assert by_hand in refused.stderr
    assert "must not run" not in refused.stdout + refused.stderr


def test_prosody_is_wanted_only_where_a_server_will_run(machine: Machine) -> None:
    (machine.tools / "prosodyctl").unlink()
    assert machine.kestrel("up").returncode == 9
    for arguments in (["--version"], ["submit", "up"], ["up", "--help"]):
        assert machine.kestrel(*arguments).returncode == 0


def test_all_that_the_tests_need_is_named(machine: Machine) -> None:
    machine.add("apt-get", "echo must not run; exit 1")
    machine.add("uname", "echo Linux")
    refused = machine.kestrel("test", "tests/unit")
    assert refused.returncode == 9
    install = refused.stderr.splitlines()[-1]
    assert install.endswith(
        " bubblewrap prometheus chromium profanity tmux openmpi-bin gcc libc6-dev libvirt-clients"
        " parallel postgresql"
    )


#: In the place of each tool that the tests need.
TESTERS = (
    "bwrap", "promtool", "chromium", "profanity", "tmux", "mpirun", "cc", "virsh", "parallel",
    "postgres",
)  # fmt: skip


@pytest.mark.parametrize("words", [(), ("--full",), ("core",), ("tests/unit", "-k", "a b")])
def test_the_check_gets_the_words_and_says_how_it_ended(
    machine: Machine, words: tuple[str, ...]
) -> None:
    for name in TESTERS:
        machine.add(name, "exit 0")
    check = machine.checkout / "tests/check/check.py"
    check.parent.mkdir(parents=True)
    check.write_text("import sys; print(sys.argv[1:]); sys.exit(3)")
    ended = machine.kestrel("test", *words)
    assert (ended.returncode, ended.stdout) == (3, f"{list(words)}\n")


NOISY_UV = 'case $1 in venv | pip) echo "WARNING: a location is ignored" >&2 ;; esac\n'


def test_what_installers_say_is_shown_only_if_one_fails(machine: Machine) -> None:
    machine.add("uv", NOISY_UV + UV)
    quiet = machine.kestrel("--version")
    assert quiet.returncode == 0
    assert "WARNING" not in quiet.stdout + quiet.stderr
    shutil.rmtree(machine.checkout / ".venv")
    machine.add("uv", NOISY_UV + UV + "case $1 in pip) echo no such hash >&2; exit 7 ;; esac")
    failed = machine.kestrel("--version")
    assert failed.returncode == 7
    assert "WARNING: a location is ignored\nno such hash\n" in failed.stderr
    assert "this failed, with status 7: uv pip install" in failed.stderr


def test_all_that_is_missing_is_named_at_once(machine: Machine) -> None:
    (machine.tools / "prosodyctl").unlink()
    (machine.tools / "uv").unlink()
    machine.add("apt-get", "echo must not run; exit 1")
    machine.add("uname", "echo Linux")
    machine.add(
        "python3",
        'case $2 in *ensurepip*) exit 1 ;; *sys.executable*) echo "$0"; exit ;; esac\n'
        f'exec "{sys.executable}" "$@"',
    )
    refused = machine.kestrel("up")
    venv = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert refused.returncode == 9
    update, install = refused.stderr.splitlines()[-2:]
    assert update.endswith("sudo apt-get update")
    assert install.endswith(f"sudo apt-get install --no-install-recommends prosody {venv}")


def test_a_machine_without_python_is_told_all_of_it_too(machine: Machine) -> None:
    for tool in ("prosodyctl", "uv", "python3"):
        (machine.tools / tool).unlink()
    machine.add("apt-get", "echo must not run; exit 1")
    refused = machine.kestrel("up")
    assert refused.returncode == 9
    assert "not installed: Prosody, Python." in refused.stderr
    assert refused.stderr.splitlines()[-1].endswith(" prosody python3-venv")
