"""Managers that share a store are started anew one after the other, and one of them leads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from role_files import PLAYBOOKS, ROLES, load
from templating import POOL, render, values_of

HERE = os.uname().nodename
STORE = "postgresql://kestrel@db.example.org/kestrel"

#: Stands in for kestrelctl: tells who leads, and notes what it is asked.
KESTRELCTL = """\
#!/bin/sh
echo "$@" >>asked
case "$3 $4" in
    "pool status") {status} ;;
    "manager handover") {handover} ;;
esac
"""


def seen(*managers: tuple[str, bool, str]) -> str:
    """A pool's status: the host of each manager, whether it leads, and its problem."""
    found = [{"host": host, "leads": leads, "problem": why} for host, leads, why in managers]
    return json.dumps({"managers": found})


LEADS = seen((HERE, True, ""), ("other", False, ""))
STANDS_BY = seen(("other", True, ""), (HERE, False, ""))
COULD_NOT = seen(("other", True, ""), (HERE, False, "it reaches no server"))


def play(directory: Path, tasks: str, **given: Any) -> subprocess.CompletedProcess[str]:
    """Runs tasks of the role on a manager's host, which is this machine."""
    role = {"name": "manager", "tasks_from": tasks}
    text = [
        {
            "hosts": "localhost",
            "gather_facts": False,
            "tasks": [{"ansible.builtin.include_role": role}],
        }
    ]
    (directory / "play.yml").write_text(json.dumps(text))
    values = {
        "ansible_python_interpreter": sys.executable,
        "__manager_kestrelctl": [str(directory / "kestrelctl"), "--pool", "pool"],
        "kestrel_domain": "pool.example.org",
        "kestrel_users": POOL["kestrel_users"],
        **given,
    }
    return subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"),
            *("-i", "localhost,", "-c", "local", "play.yml", "-e", json.dumps(values)),
        ],
        cwd=directory,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_ROLES_PATH": str(ROLES)},
        capture_output=True,
        text=True,
        check=False,
    )


def handed_over(directory: Path, status: str, handover: str = "exit 0") -> tuple[list[str], str]:
    """What kestrelctl is asked before a manager is started anew, and what the play says."""
    program = directory / "kestrelctl"
    program.write_text(KESTRELCTL.format(status=status, handover=handover))
    program.chmod(0o755)
    done = play(directory, "handover")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (directory / "asked").read_text().splitlines()
    return [line.removeprefix("--pool pool ") for line in asked], done.stdout


def test_one_that_leads_hands_the_pool_over(tmp_path: Path) -> None:
    asked, said = handed_over(tmp_path, f"echo '{LEADS}'")
    assert asked == ["pool status -o json", "manager handover"]
    assert "the pool waits for it" not in said


@pytest.mark.parametrize("status", [f"echo '{STANDS_BY}'", "exit 5"])
def test_one_that_stands_by_or_does_not_answer_has_nothing_to_hand_over(
    status: str, tmp_path: Path
) -> None:
    assert handed_over(tmp_path, status)[0] == ["pool status -o json"]


def test_with_nobody_to_hand_over_to_the_run_goes_on_and_says_so(tmp_path: Path) -> None:
    refused = "echo no manager stands by >&2; exit 1"
    _, said = handed_over(tmp_path, f"echo '{LEADS}'", refused)
    assert "the pool waits for it: no manager stands by" in said


@pytest.mark.parametrize(
    ("managers", "running", "expected"),
    [
        (["a", "b"], "older", True),
        (["a", "b"], "deployed", False),
        (["a", "b"], "", False),
        (["a"], "older", False),
    ],
)
def test_the_pool_is_handed_over_only_before_a_start_anew(
    managers: list[str], running: str, expected: bool
) -> None:
    values = values_of("manager") | {
        "groups": {**POOL["groups"], "managers": managers},
        "ansible_check_mode": False,
        "__manager_running": {"stdout": running},
        "__manager_revision": "deployed",
    }
    assert render("{{ __manager_is_led_by_another_first }}", values) is expected


@pytest.mark.parametrize(
    ("status", "expected"), [(LEADS, True), (STANDS_BY, True), (COULD_NOT, False)]
)
def test_a_run_waits_until_a_manager_could_lead(status: str, expected: bool) -> None:
    values = values_of("manager") | {
        "__manager_pool": {"rc": 0, "stdout": status},
        "__manager_node": {"stdout": HERE},
    }
    assert render("{{ __manager_could_lead }}", values) is expected
    [waits] = [each for each in load(ROLES / "manager/tasks/answer.yml") if "block" in each]
    assert waits["block"][-1]["until"] == "__manager_could_lead | bool"


def former_version(host: str, *, begun: str = "") -> str:
    """To which version a host goes back: the first manager missed a release that others have."""
    [name] = [
        each
        for each in load(ROLES / "kestrel_package/tasks/former.yml")
        if each["name"] == "Name the version"
    ]
    used = {"1.0": 1.0, "1.1": 2.0, "1.2": 3.0}
    has = {"a": ["1.0", "1.2"], "b": ["1.0", "1.1", "1.2"]}[host]
    paths = {version: f"/opt/kestrel/{version}-0123456789abcdef-py3.11" for version in used}
    values = values_of("kestrel_package") | {
        "inventory_hostname": host,
        "groups": {**POOL["groups"], "managers": ["a", "b"]},
        "hostvars": {"a": {"kestrel_package_version": "1.0"}},
        "__kestrel_package_begun": {"stdout": begun},
        "__kestrel_package_link": {"stat": {"lnk_target": f"{Path(paths['1.2']).name}/venv"}},
        "__kestrel_package_uses": {
            "files": [{"path": f"{paths[each]}/used", "mtime": used[each]} for each in has]
        },
        **name["vars"],
    }
    return str(render(name["ansible.builtin.set_fact"]["kestrel_package_version"], values))


def test_all_managers_go_back_to_the_version_that_the_first_one_chooses() -> None:
    assert former_version("a") == former_version("b") == "1.0"
    assert former_version("a", begun="1.1") == "1.1"
    plays = [each for each in load(PLAYBOOKS / "rollback.yml") if "tasks" in each]
    assert [each["hosts"] for each in plays[:3]] == [
        "managers[0]",
        "managers:workers:!managers[0]",
        "managers",
    ]


def test_a_rollback_is_not_over_before_the_last_manager_is_back() -> None:
    """Run again after the second one failed, it would have the first go back once more."""
    plays = load(PLAYBOOKS / "rollback.yml")
    ends = [
        each
        for each in plays
        for task in each.get("tasks", [])
        if task["ansible.builtin.include_role"]["tasks_from"] == "end_rollback"
    ]
    assert ends == [plays[-1]]
    assert "serial" not in plays[-1]


@pytest.mark.parametrize("playbook", ["manager", "rollback", "rotate_credentials"])
def test_managers_are_started_anew_one_after_the_other(playbook: str) -> None:
    def starts(each: dict[str, Any]) -> bool:
        used = [task["ansible.builtin.include_role"] for task in each.get("tasks", [])
                if "ansible.builtin.include_role" in task]  # fmt: skip
        return {"role": "manager"} in each.get("roles", []) or any(
            role["name"] == "manager" and role["tasks_from"] in ("rollback", "rotate")
            for role in used
        )

    [found] = [each for each in load(PLAYBOOKS / f"{playbook}.yml") if starts(each)]
    assert (found["serial"], found["any_errors_fatal"]) == (1, True)


def test_people_who_are_gone_are_closed_once_all_managers_are_there() -> None:
    [closes] = [
        each
        for each in load(ROLES / "manager/tasks/main.yml")
        if each.get("ansible.builtin.import_tasks") == "people.yml"
    ]
    condition = " and ".join(f"({each})" for each in closes["when"])
    common = {"ansible_check_mode": False, "ansible_play_hosts_all": ["a", "b"]}
    found = {
        host: render(f"{{{{ {condition} }}}}", {**common, "inventory_hostname": host})
        for host in ("a", "b")
    }
    assert found == {"a": False, "b": True}


def test_a_store_in_postgresql_is_not_copied_as_a_file(tmp_path: Path) -> None:
    done = play(tmp_path, "require_sqlite", kestrel_postgresql=STORE)
    assert done.returncode != 0
    assert "PostgreSQL's own tools copy it" in done.stdout
    done = play(tmp_path, "require_sqlite")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("playbook", ["backup", "restore", "replace_manager"])
def test_whoever_copies_a_store_looks_first_where_it_is(playbook: str) -> None:
    first = next(each for each in load(PLAYBOOKS / f"{playbook}.yml") if "tasks" in each)
    used = first["tasks"][0]["ansible.builtin.include_role"]
    assert (first["hosts"], used["name"], used["tasks_from"]) == (
        "managers",
        "manager",
        "require_sqlite",
    )


@pytest.mark.parametrize("exists", [False, True])
def test_a_backup_that_cannot_be_restored_starts_no_manager_with_an_empty_store(
    exists: bool,
) -> None:
    [restores] = load(ROLES / "manager/tasks/restore.yml")
    afterwards = restores["always"]
    [looks] = [each for each in afterwards if "ansible.builtin.stat" in each]
    assert looks["ansible.builtin.stat"]["path"] == "/var/lib/kestrel/manager/kestrel.db"
    values = {looks["register"]: {"stat": {"exists": exists}}, "ansible_check_mode": False}
    later = afterwards[afterwards.index(looks) + 1 :]
    assert [each["name"] for each in later] == ["Start the manager", "Wait until it answers"]
    for each in later:
        assert render(f"{{{{ {each['when']} }}}}", values) is exists


@pytest.mark.parametrize(
    ("tables", "words", "expected"),
    [
        (["2", "2"], f"manager run --postgresql {STORE}", True),
        (["2", "3"], f"manager run --postgresql {STORE}", True),  # what it goes back to is newer
        (["2", "1"], f"manager run --postgresql {STORE}", False),
        (["2", ""], f"manager run --postgresql {STORE}", False),
        (["2", "2"], "manager run --data-dir d", False),
    ],
)
def test_a_rollback_needs_a_release_that_knows_the_store(
    tables: list[str], words: str, expected: bool
) -> None:
    """And that was set up with it: it would begin with an empty one in SQLite."""
    [looks] = [
        each
        for each in load(ROLES / "manager/tasks/check_rollback.yml")
        if each["name"] == "See whether the older release knows the store in PostgreSQL"
    ]
    required = looks["block"][-1]
    values = {
        "__manager_tables": {"results": [{"stdout": each} for each in tables]},
        "__manager_unit_of_that_time": {"stdout": words},
        **required["vars"],
    }
    conditions = required["ansible.builtin.assert"]["that"]
    assert all(render(f"{{{{ {each} }}}}", values) for each in conditions) is expected
