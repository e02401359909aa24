"""Environments that a pool starts when they are needed, on a host with systemd, by systemd-nspawn:
workers of its own, and nodes of a Slurm on another host. The tests build on each other.

Run by verify.yml.
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
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "environments", "--subnet", "10.89.100"]
#: True inside what the recipe has made, and nowhere else.
INSIDE = "test -e /etc/made-by-a-recipe && systemd-detect-virt --container --quiet"

pytestmark = pytest.mark.timeout(300)


def on(host: str, line: str, status: int = 0) -> str:
    """Run a line of shell on a host and return what it printed."""
    command = [*LAB, "ssh", host, line]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{host}: {line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def kestrelctl(*arguments: str, status: int = 0) -> str:
    return on("oak", shlex.join(["kestrelctl", *arguments]), status)


def answer(*arguments: str) -> Any:
    return json.loads(kestrelctl(*arguments, "-o", "json"))


def wait_until(condition: Callable[[], object], timeout_seconds: float = 60) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, on(
            "oak", "kestrelctl environment list; journalctl -n 50"
        )
        time.sleep(0.5)


def environments(of: str) -> list[dict[str, Any]]:
    return [each for each in answer("environment", "list")["environments"] if each["of"] == of]


def containers() -> int:
    """How many there really are on the host."""
    return int(on("oak", "pgrep --count --exact systemd-nspawn || true"))


def nothing_is_left() -> bool:
    left = on("oak", "ls /var/lib/kestrel/worker/environments/*/nspawn/running 2>/dev/null || true")
    return containers() == 0 and not left.split()


class SlurmJob:
    """A job that Slurm may run on nodes with a feature only."""

    def __init__(self, command: str) -> None:
        options = "--parsable --constraint=mpi --chdir=/tmp --output=/dev/null"
        self.id = on("alder", f"sbatch {options} --wrap {shlex.quote(command)}").strip()

    def __getitem__(self, name: str) -> str:
        told = on("alder", f"scontrol --oneliner show job {self.id}")
        return dict(each.partition("=")[::2] for each in told.split())[name]

    def has_ended(self) -> bool:
        return self["JobState"] not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")


def nodes() -> list[str]:
    """The nodes that Slurm knows beside the one that never comes up."""
    told = on("alder", "sinfo --noheader --Node --format=%N")
    return sorted(set(told.split()) - {"mpi-none"})


def test_tasks_that_need_what_no_worker_has_run_in_a_container_that_goes_again() -> None:
    assert nothing_is_left()
    before = answer("worker", "info", "oak")["assets"]["cpus"]
    began = time.monotonic()
    tasks = ("--array", "1-4", "--requires", "science", "--wait", "--", "sh", "-c", INSIDE)
    kestrelctl("submit", "--deadline", "2m", *tasks)
    print(f"done {time.monotonic() - began:.1f} s after they were submitted")
    assert containers() == 1
    assert answer("worker", "info", "oak")["assets"]["cpus"] == before - 1
    wait_until(nothing_is_left)
    assert answer("worker", "info", "oak")["assets"]["cpus"] == before


def test_jobs_of_slurm_get_a_node_that_goes_again() -> None:
    assert nodes() == []
    began = time.monotonic()
    jobs = [SlurmJob(INSIDE) for _ in range(3)]
    wait_until(lambda: all(job.has_ended() for job in jobs), 120)
    print(f"done {time.monotonic() - began:.1f} s after they were submitted")
    assert [(job["JobState"], job["ExitCode"]) for job in jobs] == [("COMPLETED", "0:0")] * 3
    [node] = {job["NodeList"] for job in jobs}
    assert node.startswith("env-mpi-")
    wait_until(nothing_is_left)
    assert nodes() == []
    accounts = [each["name"] for each in answer("worker", "list")["workers"]]
    assert not [name for name in accounts if "env-mpi" in name]


def test_a_node_outlives_the_manager_and_is_replaced_when_the_worker_dies() -> None:
    job = SlurmJob(f"sleep 12; {INSIDE}")
    wait_until(lambda: job["JobState"] == "RUNNING")
    [node] = nodes()
    on("oak", "systemctl kill --signal=KILL --kill-whom=main kestrel-manager")
    wait_until(lambda: on("oak", "systemctl is-active kestrel-manager || true").strip() == "active")
    time.sleep(6)  # a trigger that were to start a second one has done so by now
    assert (containers(), nodes()) == (1, [node])
    [known] = environments("mpi")
    assert known["worker"] == node
    on("oak", "systemctl kill --signal=KILL --kill-whom=main kestrel-worker kestrel-manager")
    wait_until(lambda: nodes() not in ([node], []), 120)
    assert containers() == 1
    wait_until(job.has_ended, 120)
    assert (job["JobState"], job["ExitCode"]) == ("COMPLETED", "0:0")
    assert job["NodeList"] != node
    wait_until(nothing_is_left)
    assert nodes() == []
