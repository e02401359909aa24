"""What Ansible reads is well-formed YAML and keeps ansible-lint's strictest rules."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(sys.executable).parent
REPOSITORY = Path(__file__).parents[2]
CONFIGURATION = [".ansible-lint", ".yamllint", ".gitignore"]
YAMLLINT = [str(PROGRAMS / "yamllint"), "--strict", "--format", "parsable", "."]
ANSIBLE_LINT = [
    sys.executable,
    str(Path(__file__).with_name("ansible_lint.py")),
    *("--offline", "--strict", "-q", "--nocolor", "--format", "pep8"),
]

BAD_TASKS = """\
---
- apt: name=prosody state=latest
- name: greet
  ansible.builtin.shell: echo hello > /etc/motd
"""
BAD_PLAYBOOK = """\
---
- name: Bad
  hosts: all
  tasks:
    - name: Rights are left to chance
      ansible.builtin.template:
        src: a.j2
        dest: /etc/a
"""
BROKEN_PLAYBOOK = """\
---
- name: Broken
  hosts: all
  tasks:
    - name: No module has this name
      kestrel.none.such:
        src: a.j2
"""


def lint(command: list[str], directory: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """Run a linter of this environment in a directory, with nothing of this user's settings."""
    environment = {"HOME": str(home), "PATH": os.pathsep.join([str(PROGRAMS), os.defpath])}
    return subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the configuration of this one, and nothing in it yet."""
    directory = tmp_path / "project"
    directory.mkdir()
    for name in CONFIGURATION:
        shutil.copy(REPOSITORY / name, directory)
    return directory


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_all_yaml_is_well_formed(tmp_path: Path) -> None:
    linted = lint(YAMLLINT, REPOSITORY, tmp_path)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_roles_and_playbooks_keep_the_rules_for_production(tmp_path: Path) -> None:
    linted = lint(ANSIBLE_LINT, REPOSITORY, tmp_path)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize("name", ["site.yml", "roles/bad/tasks/main.yml", "dashboards/rules/a.yml"])
def test_bad_yaml_is_found_wherever_it_is(project: Path, tmp_path: Path, name: str) -> None:
    write(project / name, f"---\ngood: yes\nlong: x{' x' * 80}\n")
    linted = lint(YAMLLINT, project, tmp_path)
    assert linted.returncode == 1
    assert f"{name}:2:7: [warning] truthy value" in linted.stdout
    assert f"{name}:3:101: [error] line too long" in linted.stdout


def test_broken_rules_are_found_wherever_they_are(project: Path, tmp_path: Path) -> None:
    write(project / "roles/bad/tasks/main.yml", BAD_TASKS)
    write(project / "playbooks/bad.yml", BAD_PLAYBOOK)
    write(project / "tests/molecule/bad/converge.yml", BAD_PLAYBOOK)
    write(project / "playbooks/broken.yml", BROKEN_PLAYBOOK)
    linted = lint(ANSIBLE_LINT, project, tmp_path)
    assert linted.returncode == 2, linted.stdout + linted.stderr
    for found in [
        "roles/bad/tasks/main.yml:2:3: fqcn[action-core]",
        "roles/bad/tasks/main.yml:2: name[missing]",
        "roles/bad/tasks/main.yml:2: package-latest",
        "roles/bad/tasks/main.yml:3: no-changed-when",
        "roles/bad/tasks/main.yml:3:9: name[casing]",
        "playbooks/bad.yml:5: risky-file-permissions",
        "tests/molecule/bad/converge.yml:5: risky-file-permissions",
        "playbooks/broken.yml:5:7: syntax-check[unknown-module]",
    ]:
        assert found in linted.stdout
