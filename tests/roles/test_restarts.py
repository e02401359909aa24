"""Who is started anew, when, and what becomes of what runs there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from role_files import PLAYBOOKS, ROLES, load
from templating import render, values_of

CHECKOUT = ROLES.parent
WORKER = "w1@workers.pool.example.org"
KEPT = {"mtime": 1.0}


def unit_of(role: str, values: dict[str, Any], deployed: str) -> str:
    template = (ROLES / role / "templates" / f"kestrel-{role}.service.j2").read_text()
    return str(render(template, values | {f"__{role}_deployed": deployed}))


def revision(role: str, **given: Any) -> str:
    """What a role compares with what runs."""
    values = values_of(role) | {
        "kestrel_package_release": "0.3.0-0123456789ab-py3.11",
        f"__{role}_definitions": {"results": []},
        **{f"__{role}_{file}": {"stat": KEPT} for file in ("credentials", "ca", "secret")},
        "__manager_smtp_password": {"stat": {}},
        "__manager_postgresql_password": {"stat": {}},
        "__manager_postgresql_ca_there": {"stat": {}},
        **given,
    }
    unit = unit_of(role, values, deployed="")
    return str(render(f"{{{{ __{role}_revision }}}}", {f"__{role}_unit_text": unit} | values))


ROLES_THAT_RUN = pytest.mark.parametrize("role", ["manager", "worker"])


@ROLES_THAT_RUN
def test_a_change_that_systemd_takes_meanwhile_starts_nobody_anew(role: str) -> None:
    assert revision(role, ansible_managed="Another comment") == revision(role)
    if role == "worker":
        assert revision(role, worker_stop_seconds=600) == revision(role)


@ROLES_THAT_RUN
def test_what_is_read_at_the_start_does(role: str) -> None:
    found = [
        revision(role),
        revision(role, kestrel_package_release="0.4.0-0123456789ab-py3.11"),
        revision(role, **{f"__{role}_ca": {"stat": {"mtime": 2.0}}}),
        revision(role, **{f"{role}_watchdog_seconds": 7}),
        revision(role, **{f"{role}_metrics_port": 7}),
    ]
    assert len(set(found)) == len(found)


def test_a_manager_is_started_anew_for_what_it_reads_of_its_postgresql() -> None:
    later = {"stat": {"mtime": 2.0}}
    found = [
        revision("manager"),
        revision("manager", kestrel_postgresql="service=kestrel"),
        revision("manager", __manager_postgresql_password=later),
        revision("manager", __manager_postgresql_ca_there=later),
    ]
    assert len(set(found)) == len(found)


def test_a_host_that_is_added_starts_no_other_anew() -> None:
    groups = {"xmpp_servers": ["srv"], "managers": ["srv"], "workers": ["w1", "w2"]}
    passwords = {"w1": "secret", "w2": "secret"}
    more = {"groups": groups, "vault_kestrel_worker_passwords": passwords}
    for role in ("manager", "worker"):
        assert revision(role, **more) == revision(role)


@ROLES_THAT_RUN
def test_new_credentials_keep_the_unit_and_the_release_that_run(role: str) -> None:
    """And a checkout that is what runs has nothing to do afterwards."""
    deployed = unit_of(role, values_of(role), deployed="0123456789abcdef")
    tasks = load(ROLES / role / "tasks/rotate.yml")
    (roll_out,) = (each for each in tasks if each["name"] == "Roll out")
    unit = render(
        roll_out["vars"][f"__{role}_unit_text"],
        {f"__{role}_present_unit": {"stdout": deployed.rstrip("\n")}},
    )
    newer = {f"__{role}_ca": {"stat": {"mtime": 2.0}}}
    assert revision(role, **{f"__{role}_unit_text": unit}) == revision(role)
    assert revision(role, **{f"__{role}_unit_text": unit}, **newer) == revision(role, **newer)
    older = str(unit).replace("WatchdogSec=", "WatchdogSec=1")
    assert revision(role, **{f"__{role}_unit_text": older}) != revision(role)
    names = [(each.get("ansible.builtin.include_role") or {}).get("tasks_from") for each in tasks]
    assert names[0] == "present"


def test_new_credentials_come_by_no_playbook_that_installs_what_is_checked_out() -> None:
    plays = load(PLAYBOOKS / "rotate_credentials.yml")
    imported = {play.get("ansible.builtin.import_playbook") for play in plays} - {None}
    assert imported == {"validate.yml", "preflight.yml", "server.yml", "monitoring.yml"}
    used = [
        (
            task["ansible.builtin.include_role"]["name"],
            task["ansible.builtin.include_role"]["tasks_from"],
        )
        for play in plays
        for task in play.get("tasks", [])
    ]
    assert used == [("xmpp_server", "credentials"), ("manager", "rotate"), ("worker", "rotate")]


# -- batches ---------------------------------------------------------------------------------------


def imports(playbook: str) -> list[str]:
    return [
        Path(play["ansible.builtin.import_playbook"]).name
        for play in load(CHECKOUT / f"{playbook}.yml")
        if "ansible.builtin.import_playbook" in play
    ]


def test_a_whole_run_and_an_upgrade_start_workers_anew_by_the_same_play() -> None:
    assert "workers.yml" in imports("site")
    assert "workers.yml" in imports("playbooks/upgrade")
    [play] = load(PLAYBOOKS / "workers.yml")
    assert (play["max_fail_percentage"], play["serial"]) == (
        0,
        "{{ upgrade_batch | default('20%') }}",
    )
    assert load(ROLES / "worker/defaults/main.yml")["worker_drain_before_restart"] is True


PLAYBOOK = """\
- ansible.builtin.import_playbook: {preflight}
- hosts: workers
  gather_facts: false
  serial: 1
  max_fail_percentage: 0
  tasks:
    - ansible.builtin.raw: echo {{{{ inventory_hostname }}}} >>{done}
    - ansible.builtin.raw: test {{{{ inventory_hostname }}}} != {bad}
"""


def reached(tmp_path: Path, *, bad: str) -> str:
    """Which workers a play with these batches comes to, when w1 cannot be reached."""
    local = {"ansible_connection": "local", "ansible_become": False}
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1, "ansible_become": False}
    hosts = {"w1": gone, "w2": local, "w3": local, "w4": local}
    (tmp_path / "hosts.json").write_text(json.dumps({"workers": {"hosts": hosts}}))
    done = tmp_path / "done"
    done.touch()
    text = PLAYBOOK.format(preflight=PLAYBOOKS / "preflight.yml", done=done, bad=bad)
    (tmp_path / "play.yml").write_text(text)
    played = subprocess.run(
        [
            *(str(Path(sys.executable).parent / "ansible-playbook"), "-i", "hosts.json"),
            "play.yml",
        ],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert played.returncode != 0, played.stdout
    return done.read_text()


def test_a_worker_that_is_away_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    assert reached(tmp_path, bad="none").split() == ["w2", "w3", "w4"]


def test_a_worker_that_fails_in_its_turn_is_the_last(tmp_path: Path) -> None:
    assert reached(tmp_path, bad="w3").split() == ["w2", "w3"]


def test_what_was_changed_at_the_server_before_a_failure_takes_effect() -> None:
    """Or the next run finds the new secret written, and the server goes on with the old one."""
    found = [
        (name, play["name"])
        for name in ("server", "rotate_credentials")
        for play in load(PLAYBOOKS / f"{name}.yml")
        if play.get("hosts") == "xmpp_servers" and play.get("force_handlers") is not True
    ]
    assert found == []


@pytest.mark.parametrize(
    ("changed", "database", "told"),
    [(True, True, True), (True, False, False), (False, True, False)],
)
def test_a_grafana_that_keeps_its_former_password_is_told_of(
    changed: bool, database: bool, told: bool
) -> None:
    """It takes the new one only when it makes its database."""
    tasks = load(ROLES / "grafana/tasks/configure.yml")
    [says] = [each for each in tasks if "ansible.builtin.debug" in each]
    values = {
        "__grafana_password": {"changed": changed},
        "__grafana_database": {"stat": {"exists": database}},
    }
    assert render(f"{{{{ {says['when']} }}}}", values) is told
    assert "reset-admin-password" in says["ansible.builtin.debug"]["msg"]


# -- whether the manager answers ------------------------------------------------------------------

#: A manager that answers from one question on, and the programs that its host has.
ANSWERING = """\
#!/bin/sh
echo asked >>asked
[ $(wc -l <asked) -ge {answers_at} ] || exit 5
"""


def asked_until_it_answered(directory: Path, *, answers_at: int, restarts: str) -> tuple[int, int]:
    """The status with which the wait ends, and how often the manager was asked."""
    programs = {
        "kestrelctl": ANSWERING.format(answers_at=answers_at),
        "systemctl": f"#!/bin/sh\n{restarts}\n",
        "sleep": "#!/bin/sh\n",
    }
    for name, text in programs.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    [waits, _] = load(ROLES / "manager/tasks/answer.yml")
    values = values_of("manager") | {"manager_wait_seconds": 5}
    script = str(render(waits["ansible.builtin.shell"], values))
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("/opt/kestrel/venv/bin/kestrelctl", "kestrelctl")],
        cwd=directory,
        env={**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"},
        check=False,
    )
    return done.returncode, len((directory / "asked").read_text().splitlines())


def test_a_manager_that_was_restarted_long_ago_is_waited_for_all_the_same(tmp_path: Path) -> None:
    found = asked_until_it_answered(tmp_path, answers_at=3, restarts="echo 7")
    assert found == (0, 3)


def test_one_that_is_restarted_again_and_again_is_not(tmp_path: Path) -> None:
    """It would not answer before the time is up: `asked` counts its restarts, too."""
    found = asked_until_it_answered(
        tmp_path, answers_at=10**6, restarts="echo $((7 + $(cat asked 2>/dev/null | wc -l)))"
    )
    assert found == (5, 3)


# -- a worker that is busy -------------------------------------------------------------------------

#: A pool with one worker, which notes what it is asked.
KESTRELCTL = """\
#!/bin/sh
echo "$3 $4" >>asked
case $4 in
    drain) echo draining >state ;;
    resume) echo busy >state ;;
    list) printf '[{{"worker": "w1", "state": "%s", "running": {running}}}]' $(cat state) ;;
esac
"""


class Host:
    """A worker's host, which is this machine: something else than what is deployed runs there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = directory / "drained"
        self._service = subprocess.Popen(
            ["sleep", "300"], env={**os.environ, "KESTREL_REVISION": "0123456789abcdef"}
        )
        self._program("systemctl", f"#!/bin/sh\necho {self._service.pid}\n")

    def _program(self, name: str, text: str) -> str:
        program = self.directory / name
        program.write_text(text)
        program.chmod(0o755)
        return str(program)

    def run(self, *, running: int, tasks: str = "run", state: str = "busy", **given: Any) -> str:
        """Bring it to what is deployed, or do something else; return what the play says."""
        (self.directory / "state").write_text(f"{state}\n")
        program = self._program("kestrelctl", KESTRELCTL.format(running=running))
        play = {"hosts": "w1", "gather_facts": False, "tasks": [
            {"ansible.builtin.include_role": {"name": "worker", "tasks_from": tasks}}
        ]}  # fmt: skip
        (self.directory / "play.yml").write_text(json.dumps([play]))
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        groups = {"managers": {"hosts": {"w1": local}}, "workers": {"hosts": {"w1": local}}}
        (self.directory / "hosts.json").write_text(json.dumps(groups))
        values = {
            "__worker_kestrelctl": [program, "--pool", "pool"],
            "__worker_drained_mark": str(self.mark),
            "__worker_revision": "fedcba9876543210",
            "kestrel_domain": "pool.example.org",
            "worker_drain_seconds": 3,
            **given,
        }
        done = subprocess.run(
            [
                str(Path(sys.executable).parent / "ansible-playbook"),
                *("-i", "hosts.json", "play.yml", "-e", json.dumps(values)),
            ],
            cwd=self.directory,
            env={
                **os.environ,
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
                "ANSIBLE_ROLES_PATH": str(ROLES),
                "PATH": f"{self.directory}:{os.environ['PATH']}",
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def asked(self) -> list[str]:
        lines = (self.directory / "asked").read_text().splitlines()
        return [line for line in lines if line != "worker list"]

    def close(self) -> None:
        self._service.kill()
        self._service.wait()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    found = Host(tmp_path)
    yield found
    found.close()


IS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root's file remembers the drain")
STARTS = "TASK [worker : Run the worker]"


@IS_ROOT
def test_a_worker_that_is_still_busy_stays_as_it_is_and_works_on(host: Host) -> None:
    said = host.run(running=1)
    assert "goes on as it was" in said
    assert STARTS not in said
    assert host.asked() == ["worker drain", "worker resume"]
    assert not host.mark.exists()


@IS_ROOT
def test_one_that_shall_not_wait_for_ever_is_started_anew(host: Host) -> None:
    assert STARTS in host.run(running=1, worker_if_still_busy="restart")


@IS_ROOT
def test_or_it_ends_the_run_drained(host: Host) -> None:
    said = host.run(running=1, worker_if_still_busy="fail")
    assert "was not started anew" in " ".join(said.split())
    assert STARTS not in said
    assert host.asked() == ["worker drain"]
    assert host.mark.exists()


@IS_ROOT
def test_one_that_is_done_is_started_anew(host: Host) -> None:
    assert STARTS in host.run(running=0)
    assert host.asked() == ["worker drain"]


def test_one_that_is_right_is_not_even_asked_for(host: Host) -> None:
    said = host.run(running=1, __worker_revision="0123456789abcdef")
    assert "worker : Give it nothing new" not in said
    assert STARTS in said, "started, if it is not"
    assert not (host.directory / "asked").exists() or "worker drain" not in host.asked()


@IS_ROOT
@pytest.mark.parametrize("state", ["idle", "offline", "unheard"])
def test_one_that_is_away_is_drained_as_well(host: Host, state: str) -> None:
    """It would be given work as soon as it comes back."""
    host.run(running=0, tasks="drain", state=state)
    assert host.asked() == ["worker drain"]
    assert not host.mark.exists(), "an admin wants it so"


@IS_ROOT
@pytest.mark.parametrize("state", ["draining", "quarantined", "offline", "unheard"])
def test_one_that_is_away_may_work_again(host: Host, state: str) -> None:
    host.run(running=0, tasks="resume", state=state)
    assert host.asked() == ["worker resume"]


@IS_ROOT
@pytest.mark.parametrize("state", ["offline", "unheard"])
def test_for_a_restart_nobody_is_drained_who_may_be_drained_already(host: Host, state: str) -> None:
    assert STARTS in host.run(running=0, state=state)
    assert host.asked() == []
