"""What is said of a machine on which Ansible cannot work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from role_files import load
from templating import render

CHECKOUT = Path(__file__).parents[2]


def play(tmp_path: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Play the check for a host that is this machine, where root becomes somebody else."""
    host = {"ansible_connection": "local", "ansible_become_user": "nobody", **variables}
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"workers": {"hosts": {"w1": host}}}))
    return subprocess.run(
        [
            *(Path(sys.executable).parent / "ansible-playbook", "-i", inventory),
            "playbooks/preflight.yml",
        ],
        cwd=CHECKOUT,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def sudo(tmp_path: Path) -> Path:
    """A sudo that lets everybody."""
    program = tmp_path / "sudo"
    program.write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
    program.chmod(0o755)
    return program


def test_a_sound_machine_passes(tmp_path: Path, sudo: Path) -> None:
    played = play(tmp_path, ansible_become_exe=str(sudo))
    assert played.returncode == 0, played.stdout


def test_a_machine_without_sudo_is_told_of(tmp_path: Path) -> None:
    played = play(tmp_path, ansible_become_exe="/nowhere/sudo")
    assert played.returncode != 0
    said = " ".join(played.stdout.split())
    assert "w1: /usr/bin/python3 cannot be run there as root" in said
    assert "/nowhere/sudo: not found" in said
    assert "Install sudo there" in said
    assert "deserialization" not in said


def test_a_machine_without_python_is_told_of(tmp_path: Path, sudo: Path) -> None:
    gone = "/nowhere/python3"
    played = play(tmp_path, ansible_become_exe=str(sudo), ansible_python_interpreter=gone)
    assert played.returncode != 0
    said = " ".join(played.stdout.split())
    assert "/nowhere/python3: not found" in said
    assert "Install python3 there" in said


def test_a_sudo_that_does_not_allow_it_is_told_of(tmp_path: Path, sudo: Path) -> None:
    sudo.write_text("""#!/bin/sh
echo "Sorry, user ada is not allowed to execute '$*' as root on w1." >&2
exit 1
""")
    played = play(tmp_path, ansible_become_exe=str(sudo))
    said = " ".join(played.stdout.split())
    assert "Sorry, user ada is not allowed to execute" in said
    assert "allow it to the account" in said


def test_a_python_that_env_does_not_find_is_told_of(tmp_path: Path, sudo: Path) -> None:
    gone = "/usr/bin/env python2.0"
    played = play(tmp_path, ansible_become_exe=str(sudo), ansible_python_interpreter=gone)
    assert played.returncode != 0
    assert "Install python3 there" in " ".join(played.stdout.split())


@pytest.mark.parametrize("python", ["auto", "auto_silent", "/usr/bin/env python3"])
def test_python_may_be_named_as_ansible_takes_it(tmp_path: Path, sudo: Path, python: str) -> None:
    played = play(tmp_path, ansible_become_exe=str(sudo), ansible_python_interpreter=python)
    assert played.returncode == 0, played.stdout


@pytest.mark.parametrize(
    ("playbook", "changes"),
    [
        ("site", "server.yml"),
        ("playbooks/upgrade", "manager.yml"),
        ("playbooks/rollback", "become: true"),
        ("playbooks/rotate_credentials", "become: true"),
    ],
)
def test_what_changes_machines_looks_first(playbook: str, changes: str) -> None:
    text = (CHECKOUT / f"{playbook}.yml").read_text()
    text = text[text.index("- name:") :]
    assert text.index("preflight.yml") < text.index(changes)


@pytest.mark.parametrize("there", [False, True])
@pytest.mark.parametrize(
    "file",
    [
        "worker/tasks/main.yml",
        "xmpp_server/tasks/prosody/install.yml",
        "xmpp_server/tasks/ejabberd/install.yml",
    ],
)
def test_a_package_index_that_is_away_keeps_nobody_from_what_is_there(
    file: str, there: bool
) -> None:
    """It takes one to bring the package lists up to date, before apt looks what is to be done."""
    tasks = load(CHECKOUT / "roles" / file)
    [installs] = [each for each in tasks if "ansible.builtin.apt" in each]
    looks = tasks[tasks.index(installs) - 1]
    found = {"stat": {"exists": there}}
    values = {looks["register"]: {"results": [found, found]} if "loop" in looks else found}
    assert render(f"{{{{ {installs['when']} }}}}", values) is not there
