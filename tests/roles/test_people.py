"""Who is taken out of the inventory is closed: the account, its sessions, its jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from role_files import ROLES, load
from templating import render, values_of

USERS = "@users.pool.example.org"


def task(role: str, file: str, name: str) -> dict[str, Any]:
    (found,) = (each for each in load(ROLES / role / "tasks" / file) if each["name"] == name)
    return dict(found)


def server(*accounts: str, **given: Any) -> dict[str, Any]:
    """What the role of the server knows when these people have an account."""
    found = [f"{name}{USERS}" for name in accounts]
    return values_of("xmpp_server") | {"__xmpp_server_people": {"found": found}} | given


#: What provides accounts with each flavour of the server.
PROSODY, EJABBERD = "prosody/credentials.yml", "ejabberd/accounts.yml"


def goes_on(values: dict[str, Any], file: str = PROSODY) -> bool:
    required = task("xmpp_server", file, "Require a word on people who are gone")
    return bool(render("{{ " + required["ansible.builtin.assert"]["that"] + " }}", values))


def removed(values: dict[str, Any], file: str = PROSODY) -> list[str]:
    provided = task("xmpp_server", file, "Provide the accounts")
    (module,) = (name for name in provided if name.endswith("_account"))
    return list(render(provided[module]["absent"], values))


def test_nobody_is_asked_while_all_are_in_the_inventory() -> None:
    assert goes_on(server())
    assert goes_on(server("ada", "bob"))
    assert removed(server("ada", "bob", xmpp_server_close_users=True)) == []


@pytest.mark.parametrize("file", [PROSODY, EJABBERD])
def test_an_account_of_who_is_gone_stops_the_run_before_any_account_changes(file: str) -> None:
    names = [each["name"] for each in load(ROLES / "xmpp_server/tasks" / file)]
    assert names[:2] == ["List the accounts of people", "Require a word on people who are gone"]
    values = server("ada", "bob", "carol", "dave")
    assert not goes_on(values, file)
    required = task("xmpp_server", file, names[1])["ansible.builtin.assert"]
    said = str(render(required["fail_msg"], values))
    assert f"carol{USERS}, dave{USERS}. No account was changed." in said
    assert "-e kestrel_close_users=true" in said


@pytest.mark.parametrize("file", [PROSODY, EJABBERD])
@pytest.mark.parametrize("word", ["true", True])
def test_with_a_word_that_account_is_removed_and_no_other(word: object, file: str) -> None:
    values = server("ada", "bob", "carol", kestrel_close_users=word)
    assert goes_on(values, file)
    assert removed(values, file) == [f"carol{USERS}"]


def test_who_is_named_as_removed_is_closed_without_a_question() -> None:
    values = server("ada", "carol", xmpp_server_removed_accounts=[f"carol{USERS}"])
    assert goes_on(values)
    assert removed(values) == [f"carol{USERS}"]


#: Stands in for kestrelctl: tells whose jobs there are, and notes what it is asked.
KESTRELCTL = """\
#!/bin/sh
echo "$@" >>asked
case "$3 $4" in
    "user list") echo '{owners}' ;;
    "job list") echo 4; echo 7 ;;
esac
"""


#: They have said where they are sent mail.
WITH_MAIL = ("ada", "dave")


class Manager:
    """A manager's host, which is this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def people(self, *owners: str, **given: Any) -> str:
        """Run the tasks for a pool in which these have jobs; return what the play says."""
        program = self.directory / "kestrelctl"
        mail = {f"{name}{USERS}": f"{name}@example.org" for name in WITH_MAIL}
        listed = json.dumps([{"user": owner, "mail": mail.get(owner, "")} for owner in owners])
        program.write_text(KESTRELCTL.format(owners=listed))
        program.chmod(0o755)
        play = [
            {
                "hosts": "localhost",
                "gather_facts": False,
                "tasks": [
                    {"ansible.builtin.include_role": {"name": "manager", "tasks_from": "people"}}
                ],
            }
        ]
        (self.directory / "play.yml").write_text(json.dumps(play))
        values = {
            "ansible_python_interpreter": sys.executable,
            "__manager_kestrelctl": [str(program), "--pool", "pool"],
            "kestrel_domain": "pool.example.org",
            "kestrel_users": [{"name": "ada", "admin": True}],
            **given,
        }
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "ansible-playbook"),
                *("-i", "localhost,", "-c", "local", "play.yml", "-e", json.dumps(values)),
            ],
            cwd=self.directory,
            env={**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_ROLES_PATH": str(ROLES)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def asked(self) -> list[str]:
        return [
            line.removeprefix("--pool pool ")
            for line in (self.directory / "asked").read_text().splitlines()
        ]


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path)


WHOSE = (f"ada{USERS}", f"bob{USERS}", "eve@users.elsewhere.org", "pool@pool.example.org")
LIST = f"""job list --state active --limit 0 -o quiet --where member(Owner, {{"bob{USERS}"}})"""


def test_active_jobs_of_who_is_closed_are_cancelled_and_nobody_elses(manager: Manager) -> None:
    manager.people(*WHOSE, kestrel_close_users="true")
    assert manager.asked() == ["user list -o json", LIST, "job cancel 4-4,7-7"]


def test_without_a_word_they_go_on_and_are_told_of(manager: Manager) -> None:
    assert "2 jobs of people who are not in kestrel_users" in manager.people(*WHOSE)
    assert manager.asked() == ["user list -o json", LIST]


def test_a_pool_whose_people_are_all_there_is_asked_once(manager: Manager) -> None:
    manager.people(WHOSE[0], *WHOSE[2:], kestrel_close_users=True)
    assert manager.asked() == ["user list -o json"]


def test_who_is_closed_is_sent_no_mail_of_whoever_gets_the_name(manager: Manager) -> None:
    people = (f"ada{USERS}", f"bob{USERS}", f"dave{USERS}")
    manager.people(*people, kestrel_close_users=True)
    assert manager.asked()[-1] == f"user set dave{USERS} --mail none"
    assert "user set" not in "".join(manager.asked()[:-1])


def test_without_a_word_mail_goes_on(manager: Manager) -> None:
    manager.people(f"dave{USERS}")
    assert "user set" not in "".join(manager.asked())
