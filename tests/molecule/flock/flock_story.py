"""What pools of a flock live through, each on a host of its own. The tests build on each other.

Run by verify.yml, which has Ansible's settings in the environment.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
INVENTORY = Path(__file__).parent / "inventory"
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "flock", "--subnet", "10.89.99"]

#: What a pool said holds so long, if it says nothing more: two and a half minutes.
EXPIRY_SECONDS = 150
#: Of the authority that the flock does not know.
STRANGE = """
set -eu
cd /etc/prosody/certs
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \\
    -subj /CN=elsewhere -addext 'subjectAltName=DNS:dogwood.internal' \\
    -keyout /tmp/strange.key -out /tmp/strange.crt 2>/dev/null
cat /tmp/strange.key >kestrel.key
cat /tmp/strange.crt >kestrel.crt
systemctl restart prosody
"""

pytestmark = pytest.mark.timeout(600)


def run(*command: str, status: int = 0, **options: Any) -> str:
    """Run a command and return what it printed; its words are those of the failure."""
    done = subprocess.run(
        command, cwd=CHECKOUT, capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == status, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wait_until(condition: Callable[[], object], timeout_seconds: float = 60) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.5)


def domain(name: str) -> str:
    return f"{name}.internal"


class FlockHost:
    """The pool on one host; commands run there, as its admin."""

    def __init__(self, name: str) -> None:
        self.name = name

    def shell(self, line: str, status: int = 0, **options: Any) -> str:
        return run(*LAB, "ssh", self.name, line, status=status, **options)

    def __call__(self, *arguments: str, status: int = 0) -> str:
        return self.shell(shlex.join(["kestrelctl", *arguments]), status=status)

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def journal(self, unit: str) -> str:
        return self.shell(f"journalctl --unit {unit} --output cat --no-pager")

    def submit(self, array: int, command: str, *options: str) -> str:
        """Submit a job of many tasks that each run a line of shell; return its id."""
        tasks = ("--array", f"1-{array}", *options, "--", "sh", "-c", command)
        return self("submit", "-o", "quiet", *tasks).split()[0]

    def tasks(self, job_id: str) -> list[dict[str, Any]]:
        return list(self.json("job", "tasks", job_id, "--limit", "0"))

    def neighbours(self) -> dict[str, str]:
        """Return the other pools that it knows -> how each is."""
        return {pool["pool"]: pool["state"] for pool in self.json("flock", "pools")}

    def sees(self, neighbours: dict[str, str]) -> bool:
        return self.neighbours() == neighbours

    def has_forgotten(self, other: FlockHost) -> bool:
        return domain(other.name) not in self.neighbours()

    def wait(self, job_id: str, timeout: str) -> None:
        """Wait for a job; if it does not end, its words tell what became of the rest."""
        waited = f"kestrelctl job wait {job_id} --timeout {timeout}"
        look = f"kestrelctl job explain {job_id}; kestrelctl job story {job_id} --limit 40"
        flock = "kestrelctl flock status; kestrelctl flock pools; kestrelctl worker list"
        self.shell(f"{waited} || {{ status=$?; {look}; {flock}; exit $status; }}")

    def ended_once(self, job_id: str, count: int, timeout: str = "4m") -> list[dict[str, Any]]:
        """Wait for a job each of whose tasks prints its number; require one result of each."""
        self.wait(job_id, timeout)
        tasks = self.tasks(job_id)
        assert [task["task_id"] for task in tasks] == list(range(1, count + 1))
        assert {task["state"] for task in tasks} == {"done"}
        printed = self("job", "logs", job_id, "--all").splitlines()
        numbers = sorted(int(line) for line in printed if line.isdecimal())  # the rest: headings
        assert numbers == list(range(1, count + 1))
        [job] = self.json("job", "list", job_id)
        assert job["done"] == count
        return tasks

    def charged(self) -> int:
        """How many results it has accepted of its users' tasks, by what they are charged for."""
        return sum(user["tasks"] for user in self.json("user", "usage"))


ASPEN, BIRCH, CEDAR, DOGWOOD = map(FlockHost, ("aspen", "birch", "cedar", "dogwood"))


def ran_at(tasks: list[dict[str, Any]]) -> Counter[str]:
    """Count the tasks by the pool whose worker ran them; those of the pool itself by its own."""
    accounts = (task["worker"].partition("/")[0].rpartition("@")[2] for task in tasks)
    return Counter(account.removeprefix("workers.") for account in accounts)


def test_each_finds_those_that_it_was_not_told_of() -> None:
    for pool in (ASPEN, BIRCH, CEDAR):
        others = {ASPEN.name, BIRCH.name, CEDAR.name} - {pool.name}
        wait_until(partial(pool.sees, dict.fromkeys(map(domain, others), "free")), 90)


def test_files_go_to_tasks_elsewhere_and_come_back() -> None:
    ASPEN.shell("mkdir -p /root/in && seq 1 1000 >/root/in/numbers")
    command = "sleep 1; sed -n {}p in/numbers >found; cat found"
    job_id = ASPEN.submit(60, command, "--input", "/root/in", "--keep", "found")
    tasks = ASPEN.ended_once(job_id, 60)
    assert set(ran_at(tasks)) == {domain(pool.name) for pool in (ASPEN, BIRCH, CEDAR)}
    ASPEN("job", "fetch", job_id, "--to", "/root/out")
    found = ASPEN.shell("for n in $(seq 1 60); do cat /root/out/$n/found; done")
    assert found.split() == [str(number) for number in range(1, 61)]


def test_a_guest_runs_apart_and_is_written_down() -> None:
    """As a worker's user, in a sandbox; the lender says whose it is, and how it ends."""
    job_id = ASPEN.submit(12, "sleep 2; id -un; ls -A /tmp | wc -l; cat /etc/kestrel/*.credentials")
    ASPEN("job", "wait", job_id, "--timeout", "1m", status=3)
    tasks = ASPEN.tasks(job_id)
    assert ran_at(tasks)[domain("birch")] > 0
    for task in tasks:
        printed = ASPEN("job", "logs", job_id, str(task["task_id"])).split()
        assert printed[:2] == ["kestrel-worker", "0"]
        assert task["exit_code"] not in (0, None)
    whose = f"of job {job_id} of ada@users.{domain('aspen')} of {domain('aspen')}"
    lines = [line for line in BIRCH.journal("kestrel-manager").splitlines() if whose in line]
    begun = [line for line in lines if " begins: " in line]
    ended = [line for line in lines if " ended after " in line and ", exit 1: " in line]
    assert len(begun) == len(ended) == ran_at(tasks)[domain("birch")]


def test_a_manager_and_a_server_die_under_load() -> None:
    charged = ASPEN.charged()
    job_id = ASPEN.submit(400, "sleep 0.7; echo {}")
    wait_until(lambda: len(ran_at(ASPEN.tasks(job_id))) > 2)
    BIRCH.shell("systemctl kill --signal=KILL kestrel-manager")
    CEDAR.shell("kill -9 $(systemctl show --value --property=MainPID prosody)")
    time.sleep(5)
    ASPEN.shell("systemctl kill --signal=KILL kestrel-manager")
    tasks = ASPEN.ended_once(job_id, 400)
    print(ran_at(tasks), sum(task["losses"] for task in tasks), "losses")
    assert ASPEN.charged() == charged + 400


def test_a_pool_that_runs_joins_and_is_used_within_a_minute() -> None:
    assert domain("dogwood") not in ASPEN.neighbours()
    link = INVENTORY / "dogwood/group_vars/all/flock_authority.yml"
    link.symlink_to("../../../aspen/group_vars/all/flock_authority.yml")
    run("ansible-playbook", "-i", str(INVENTORY / "dogwood"), "playbooks/flock.yml")
    joined_at = time.time()
    job_id = ASPEN.submit(600, "sleep 1; echo {}")
    wait_until(lambda: ran_at(ASPEN.tasks(job_id))[domain("dogwood")], 60)
    print(f"used {time.time() - joined_at:.1f} s after it had joined")
    ASPEN("job", "cancel", job_id)
    again = run("ansible-playbook", "-i", str(INVENTORY / "dogwood"), "playbooks/flock.yml")
    assert "changed=0" in again


def test_one_that_leaves_is_forgotten() -> None:
    DOGWOOD("flock", "leave")
    left_at = time.monotonic()
    for pool in (ASPEN, BIRCH, CEDAR):
        wait_until(partial(pool.has_forgotten, DOGWOOD), EXPIRY_SECONDS + 10)
    print(f"forgotten {time.monotonic() - left_at:.1f} s after it had left")


def test_nobody_believes_a_certificate_of_another_authority() -> None:
    DOGWOOD.shell("sh -s", input=STRANGE)
    DOGWOOD.shell("systemctl restart kestrel-manager")  # it joins through the pool it was told of
    refused = f"refused the certificate of {domain('dogwood')}: it is not signed"
    wait_until(lambda: refused in CEDAR.journal("prosody"))
    assert domain("dogwood") not in CEDAR.neighbours()
