"""A pool whose server is an ejabberd: jobs with files, accounts that change, a server that dies.

The tests build on each other. Run by verify.yml, which has Ansible's settings in the environment.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
INVENTORY = Path(__file__).parent / "inventory"
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "ejabberd", "--subnet", "10.89.103"]
SERVER = MANAGER = "oak"

pytestmark = pytest.mark.timeout(600)


def run(*command: str, status: int = 0) -> str:
    """Run a command and return what it printed; its words are those of the failure."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on(host: str, line: str) -> str:
    """Run a line of shell on a host and return what it printed."""
    return run(*LAB, "ssh", host, line)


def playbook(name: str, *words: str, status: int = 0) -> str:
    return run("ansible-playbook", "-i", str(INVENTORY), f"{name}.yml", *words, status=status)


def kestrelctl(*arguments: str) -> Any:
    return json.loads(on(MANAGER, shlex.join(["kestrelctl", *arguments, "-o", "json"])))


def wait_until(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [
            on(host, "journalctl -u kestrel-manager -u kestrel-worker -n 40; true")
            for host in (MANAGER, "w1", "w2")
        ]
        time.sleep(0.5)


def workers() -> set[str]:
    """Names of the workers that could run something."""
    return {
        each["worker"].partition("@")[0]
        for each in kestrelctl("worker", "list")
        if each["state"] in ("idle", "busy")
    }


def require_a_job_with_files() -> None:
    """Give twenty tasks a file, and see that each left what it made of it."""
    directory = f"/tmp/job-{time.monotonic_ns()}"
    task = "tr a-z A-Z <given >made; echo {}"
    submit = ["kestrelctl", "submit", "-o", "quiet", "--wait", "--array", "1-20", "--input",
              "given", "--keep", "made", "--fetch", "come", "--", "sh", "-c", task]  # fmt: skip
    on(MANAGER, f"mkdir {directory}; cd {directory}; echo words >given; {shlex.join(submit)}")
    made = on(MANAGER, f"find {directory}/come -type f -name made -exec cat {{}} +").split()
    assert made == ["WORDS"] * 20


def test_a_job_with_files_runs() -> None:
    wait_until(lambda: workers() == {"w1", "w2"})
    require_a_job_with_files()


def test_the_service_is_closed_and_misses_nothing() -> None:
    on(SERVER, "systemd-analyze security --no-pager --threshold=20 ejabberd")
    refused = "Operation not permitted|Read-only file system|Permission denied|not owner|eacces"
    on(SERVER, f"! journalctl --unit ejabberd --output cat | grep -E {shlex.quote(refused)}")
    on(SERVER, f"! grep -rE {shlex.quote(refused)} /var/log/ejabberd")


def test_nobody_else_can_read_a_secret() -> None:
    looked = "find /etc/ejabberd /var/lib/ejabberd -type f -readable"
    found = on(SERVER, f"runuser --user=nobody -- {looked} 2>/dev/null || true").split()
    assert found == []


def test_its_tools_and_the_pool_are_all_that_is_listened_to() -> None:
    sockets = [line.split()[3] for line in on(SERVER, "ss -Htln").splitlines()]
    ports = {address.rpartition(":")[2]: address for address in sockets}
    assert set(ports) - {"22", "9437"} == {"5222", "5348", "5443", "4369", "4370"}
    assert {ports["4369"], ports["4370"]} == {"127.0.0.1:4369", "127.0.0.1:4370"}


def test_passwords_are_made_anew_and_the_pool_goes_on() -> None:
    before = (INVENTORY / "group_vars/all/vault.yml").read_text()
    playbook("playbooks/rotate_credentials", "-e", "rotate=workers,users,component")
    assert (INVENTORY / "group_vars/all/vault.yml").read_text() != before
    wait_until(lambda: workers() == {"w1", "w2"})
    require_a_job_with_files()


def test_who_is_taken_out_of_the_inventory_is_closed() -> None:
    without = json.dumps({"kestrel_users": [{"name": "ada", "admin": True}]})
    said = playbook("playbooks/server", "-e", without, status=2)
    assert "bob@users.pool.internal. No account was changed." in " ".join(said.split())
    assert "bob" in on(SERVER, "ejabberdctl registered_users users.pool.internal")
    playbook("playbooks/server", "-e", without, "-e", "kestrel_close_users=true")
    assert on(SERVER, "ejabberdctl registered_users users.pool.internal").split() == ["ada"]


def test_what_it_cannot_carry_is_refused_before_anything_is_touched() -> None:
    said = playbook("site", "-e", "kestrel_flock_join=pool.internal", status=2)
    assert "kestrel_flock_join asks for a flock, which a pool with an ejabberd does" in said
    assert "nothing has been touched" in said


def test_a_server_that_is_killed_comes_back_and_loses_nothing() -> None:
    submit = ["kestrelctl", "submit", "-o", "quiet", "--array", "1-4", "--", "sleep", "20"]
    job = on(MANAGER, shlex.join(submit)).split()[0]
    wait_until(lambda: kestrelctl("job", "list", job)[0]["running"] == 4)
    on(SERVER, "systemctl kill --signal=KILL ejabberd")
    on(MANAGER, f"kestrelctl job wait {job}")
    assert [each["losses"] for each in kestrelctl("job", "tasks", job)] == [0] * 4
    require_a_job_with_files()


def test_a_worker_is_taken_out_with_its_account() -> None:
    playbook("playbooks/remove_worker", "--limit", "w2")
    assert on(SERVER, "ejabberdctl registered_users workers.pool.internal").split() == ["w1"]
    [gone] = [each for each in kestrelctl("worker", "list") if each["worker"].startswith("w2@")]
    assert gone["state"] == "offline", "it would begin drained"


def test_a_pool_is_removed_whole() -> None:
    playbook("playbooks/reset", "-e", "confirm=yes")
    assert on(SERVER, "ls -d /etc/ejabberd /var/lib/ejabberd 2>/dev/null || true") == ""
    on(SERVER, "! dpkg -s ejabberd 2>/dev/null")
