"""The manager that leads is killed, another one goes on, and both are started anew meanwhile.

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
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "standby", "--subnet", "10.89.102"]
SERVER, MANAGERS = "oak", ("ash", "elm")
CERTIFICATE = "cat /etc/postgresql/kestrel.crt"

pytestmark = pytest.mark.timeout(600)


def run(*command: str, status: int = 0) -> str:
    """Run a command and return what it printed; its words are those of the failure."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on(host: str, line: str) -> str:
    """Run a line of shell on a host and return what it printed."""
    return run(*LAB, "ssh", host, line)


def kestrelctl(host: str, *arguments: str) -> Any:
    return json.loads(on(host, shlex.join(["kestrelctl", *arguments, "-o", "json"])))


def job(host: str, job_id: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = kestrelctl(host, "job", "list", str(job_id))
    return found[0]


def leads() -> str:
    """The host of the manager that leads, while the other one stands by and could lead."""
    found = {
        each["host"]: each["leads"]
        for each in kestrelctl(MANAGERS[0], "pool", "status")["managers"]
        if not each["problem"]
    }
    return next((host for host in MANAGERS if found.get(host)), "") if len(found) == 2 else ""


def running() -> list[str]:
    """The processes of the tasks that sleep."""
    return on(SERVER, "pgrep --full --exact '/usr/bin/sleep 3600' || true").split()


def wait_until(condition: Callable[[], object], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [
            on(host, "journalctl -u kestrel-manager -n 40") for host in MANAGERS
        ]
        time.sleep(0.5)


def submit(host: str, *command: str, array: str = "1") -> int:
    words = ("submit", "-o", "quiet", "--array", array, "--cpus", "0.5", "--", *command)
    return int(on(host, shlex.join(["kestrelctl", *words])))


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What one test leaves for those after it."""
    return {}


def test_one_leads_and_the_other_one_stands_by(found: dict[str, Any]) -> None:
    wait_until(leads)
    found["job"] = submit(MANAGERS[0], "sleep", "3600", array="1-4")
    wait_until(lambda: len(running()) == 4)
    found["processes"] = running()


def test_one_that_is_killed_is_replaced_and_the_job_goes_on(found: dict[str, Any]) -> None:
    former = leads()
    [other] = set(MANAGERS) - {former}
    on(former, "kill -9 $(systemctl show --value --property=MainPID kestrel-manager)")
    next_job = submit(other, "true")
    wait_until(lambda: job(other, next_job)["state"] == "done")
    assert running() == found["processes"]
    assert job(other, found["job"])["running"] == 4
    wait_until(lambda: leads() == other)


def test_a_run_starts_all_anew_and_the_tasks_go_on(found: dict[str, Any]) -> None:
    def process(host: str) -> str:
        return on(host, "systemctl show --value --property=MainPID kestrel-manager")

    before = {host: process(host) for host in MANAGERS}
    said = run(
        *("ansible-playbook", "-i", str(INVENTORY), "playbooks/manager.yml"),
        *("-e", "manager_watchdog_seconds=31"),
        *("-e", json.dumps({"manager_postgresql_ca_certificate": on(SERVER, CERTIFICATE)})),
    )
    assert "the pool waits for it" not in said
    assert all(process(host) != before[host] for host in MANAGERS)
    wait_until(leads)
    assert running() == found["processes"]
    assert job(MANAGERS[0], found["job"])["running"] == 4
