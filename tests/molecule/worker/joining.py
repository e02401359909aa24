"""Machines with a fresh Debian become workers by a token, as docs/operations.md tells it.

Run by verify.yml, with the pool of this scenario.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).parents[3]
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "worker", "--subnet", "10.89.95"]
#: Name -> Debian's release.
MACHINES = {"lab21": "bookworm", "lab22": "trixie"}
#: systemd's own scale, in tenths. What the unit leaves open stands in its parts.
THRESHOLD = 35

pytestmark = pytest.mark.timeout(600)


def lab(*arguments: str, **options: Any) -> str:
    done = subprocess.run(
        [*LAB, *arguments], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def documented_installation() -> str:
    """The line with which the documentation installs kestrelctl."""
    lines = (CHECKOUT / "docs/operations.md").read_text().splitlines()
    (line,) = (line for line in lines if "pipx install" in line and "apt-get" in line)
    return line


def newest_wheel() -> str:
    """The wheel that converging has built, in dist."""
    wheels = (CHECKOUT / "dist").glob("*.whl")
    return max(wheels, key=lambda wheel: wheel.stat().st_mtime).name


def worker(name: str) -> dict[str, Any]:
    """What the pool knows of a worker, once it is there."""
    deadline = time.monotonic() + 60
    while True:
        listed = json.loads(lab("ssh", "srv", "kestrelctl worker list -o json"))
        found = [each for each in listed if each["worker"].startswith(f"{name}@")]
        if found and found[0]["state"] == "idle":
            return dict(found[0])
        assert time.monotonic() < deadline, f"{name} did not come: {found}"
        time.sleep(0.5)


def token(name: str) -> str:
    return lab("ssh", "srv", f"kestrelctl worker enroll --name {name} -o quiet")


def in_task(tag: str, command: str) -> str:
    """What a command prints as a task on the worker with that tag."""
    quoted = f"sh -c '{command}'"
    submit = f"kestrelctl submit -o quiet --wait --requires {tag} -- {quoted}"
    job_id = lab("ssh", "srv", submit).split()[0]
    return lab("ssh", "srv", f"kestrelctl job logs {job_id} 0")


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest, installed: None) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def installed() -> None:
    """On all machines kestrelctl is installed as documented, from the wheel that was sent."""
    with ThreadPoolExecutor() as together:
        list(together.map(install, MACHINES))


def install(name: str) -> None:
    lab("up", f"{name}:{name[3:]}", "--suite", MACHINES[name])
    pack = ["tar", "-c", "-C", str(CHECKOUT / "dist"), newest_wheel()]
    with subprocess.Popen(pack, stdout=subprocess.PIPE) as packed:
        lab("exec", name, "tar", "-xC", "/root", stdin=packed.stdout)
    lab("exec", name, "sh", "-ec", f"cd /root; {documented_installation()}")


def test_a_machine_joins_and_is_closed(machine: str) -> None:
    join = ("exec", machine, "kestrelctl", "worker", "join", "-", "--service", "--tags", machine)
    lab(*join, input=token(machine))
    tags = " ".join(worker(machine)["tags"])
    # In the lab's containers a service of Debian 13 gets no /proc that a sandbox could have, too.
    if MACHINES[machine] == "bookworm":
        assert re.search("ISOLATION:(BUBBLEWRAP|SYSTEMD)", tags), tags
    assert in_task(machine, "id -un; cat /proc/self/status | grep NoNewPrivs").split() == [
        "kestrel-worker", "NoNewPrivs:", "1",
    ]  # fmt: skip
    unit = "kestrel-worker-pool.internal.service"
    rate = f"systemd-analyze security --no-pager --threshold={THRESHOLD} {unit}"
    lab("exec", machine, "sh", "-c", rate)


def test_its_metrics_are_for_itself(machine: str) -> None:
    listening = lab("exec", machine, "ss", "-Htln", "sport", "=", "9438")
    assert listening.split()[3:4] == ["127.0.0.1:9438"]
    read = "from urllib.request import urlopen as o; print(o('http://127.0.0.1:9438/metrics').read().decode())"
    page = lab("exec", machine, "python3", "-c", read)
    assert 'kestrel_worker_sessions{state="online"} 1.0' in page


def test_a_user_joins_with_a_service_of_his_own(machine: str) -> None:
    lab("exec", machine, "useradd", "--create-home", "carol")
    lab("exec", machine, "loginctl", "enable-linger", "carol")
    name = f"carol{machine[3:]}"
    join = "kestrelctl worker join - --service --metrics 127.0.0.1:9439 --tags"
    lab("exec", machine, "sudo", "-iu", "carol", *join.split(), name, input=token(name))
    worker(name)
    said = in_task(name, "id -un; cat /proc/self/status | grep NoNewPrivs")
    assert said.split() == ["carol", "NoNewPrivs:", "1"]
