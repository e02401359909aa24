"""The manager's host is gone, another one takes its place, and then the first one comes back.

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
BEFORE, AFTER = (Path(__file__).parent / name for name in ("inventory", "after"))
LAB = [str(CHECKOUT / "tests/lab/lab"), "--name", "replacement", "--subnet", "10.89.101"]
SERVER, OLD, NEW = "oak", "ash", "elm"
#: What the manager ends with that makes room for another one.
STEPPED_BACK = 16

pytestmark = pytest.mark.timeout(600)


def run(*command: str, status: int = 0) -> str:
    """Run a command and return what it printed; its words are those of the failure."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == status, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def on(host: str, line: str, status: int = 0) -> str:
    """Run a line of shell on a host and return what it printed."""
    return run(*LAB, "ssh", host, line, status=status)


def playbook(inventory: Path, name: str, *options: str, **variables: str) -> str:
    extra = [word for key, value in variables.items() for word in ("-e", f"{key}={value}")]
    return run("ansible-playbook", "-i", str(inventory), f"playbooks/{name}.yml", *options, *extra)


def kestrelctl(host: str, *arguments: str) -> str:
    return on(host, shlex.join(["kestrelctl", *arguments]))


def submit(host: str, *command: str, array: str = "1") -> int:
    words = ("submit", "-o", "quiet", "--array", array, "--cpus", "0.5", "--", *command)
    return int(kestrelctl(host, *words))


def job(host: str, job_id: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(
        kestrelctl(host, "job", "list", str(job_id), "-o", "json")
    )
    return found[0]


def running() -> list[str]:
    """The processes of the tasks that sleep."""
    return on(SERVER, "pgrep --full --exact '/usr/bin/sleep 3600' || true").split()


def manager(host: str, name: str) -> str:
    """A property of the manager's unit."""
    return on(host, f"systemctl show --value --property={name} kestrel-manager").strip()


def wait_until(condition: Callable[[], object], host: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, on(host, "journalctl -u kestrel-manager -n 40")
        time.sleep(0.5)


def logged(host: str, words: str) -> bool:
    return words in on(host, "journalctl --unit kestrel-manager --output cat --no-pager")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What one test leaves for those after it."""
    return {}


def test_a_backup_is_made_while_tasks_run(found: dict[str, Any], tmp_path_factory: Any) -> None:
    found["job"] = submit(OLD, "sleep", "3600", array="1-4")
    wait_until(lambda: len(running()) == 4, OLD)
    found["processes"] = running()
    directory = tmp_path_factory.mktemp("backups")
    playbook(BEFORE, "backup", backup_directory=str(directory))
    [found["backup"]] = directory.iterdir()
    found["missed"] = submit(OLD, "true")


def test_another_host_takes_the_managers_place_and_the_tasks_go_on(found: dict[str, Any]) -> None:
    run(*LAB, "kill", OLD)
    playbook(AFTER, "replace_manager", "--check", backup=str(found["backup"]), confirm="yes")
    assert running() == found["processes"]
    said = playbook(AFTER, "replace_manager", backup=str(found["backup"]), confirm="yes")
    assert "failed=0" in said
    wait_until(lambda: job(NEW, found["job"])["running"] == 4, NEW)
    assert running() == found["processes"]
    next_job = submit(NEW, "true")
    assert next_job > found["missed"] + 1000, "that number was told to somebody"
    wait_until(lambda: job(NEW, next_job)["state"] == "done", NEW)


def test_the_former_manager_comes_back_and_is_fenced_off(found: dict[str, Any]) -> None:
    run(*LAB, "start", OLD)
    wait_until(lambda: logged(OLD, "the server refused the manager"), OLD)
    on(SERVER, "systemctl restart prosody")
    wait_until(lambda: job(NEW, found["job"])["running"] == 4, NEW)
    assert running() == found["processes"]


def test_without_the_fence_it_ends_and_is_not_started_again(found: dict[str, Any]) -> None:
    """Somebody gives it the new secret, and the right one is away for a moment."""
    secret = on(NEW, "cat /etc/kestrel/component.secret").strip()
    on(OLD, "systemctl stop kestrel-manager")
    on(OLD, f"umask 077; echo {secret} >/etc/kestrel/component.secret")
    on(OLD, "systemctl start kestrel-manager")
    wait_until(lambda: logged(OLD, "<conflict/> (Component already connected)"), OLD)
    on(NEW, "systemctl stop kestrel-manager")
    wait_until(lambda: manager(OLD, "ExecMainStatus") == str(STEPPED_BACK), OLD)
    on(NEW, "systemctl start kestrel-manager")
    time.sleep(5)  # longer than systemd waits before it starts a service again
    assert manager(OLD, "ActiveState") == "failed"
    assert logged(OLD, "the pool has gone on with another manager, and this one steps back")
    wait_until(lambda: job(NEW, found["job"])["running"] == 4, NEW)
    assert running() == found["processes"]
    kestrelctl(NEW, "job", "cancel", str(found["job"]))
    wait_until(lambda: running() == [], NEW)
