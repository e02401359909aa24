"""The lab's hosts do what its commands say."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LAB = [str(Path(__file__).with_name("lab")), "--name", "trial", "--subnet", "10.89.97"]
SRV, NAT1 = "10.89.97.11", "10.89.97.139"

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*LAB, *arguments], capture_output=True, text=True, check=False)


def lab(*arguments: str) -> str:
    called = call(*arguments)
    assert called.returncode == 0, called.stderr
    return called.stdout


def answers(address: str) -> bool:
    """Whether the host's ssh greets within a second."""
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline


@pytest.fixture(scope="module", autouse=True)
def _hosts() -> Iterator[None]:
    lab("down")
    lab("up", "srv", "nat1:nat")
    yield
    lab("down")
    assert lab("status") == ""


def test_hosts_have_the_addresses_of_their_names() -> None:
    assert lab("status") == f"nat1 {NAT1} running\nsrv {SRV} running\n"
    assert lab("ssh", "srv", "hostname; systemctl is-system-running") == "srv\nrunning\n"


def test_what_is_noted_of_addresses_goes_with_the_lab() -> None:
    """Podman's note of a taken address would refuse it to the next lab once a run was killed."""
    ours, machines = Path("/run/kestrel-lab/addresses/ipam.db"), Path("/sys/fs/cgroup")
    in_a_namespace = not (machines / "cgroup.controllers").exists()
    assert ours.exists() == in_a_namespace
    if in_a_namespace:
        assert os.path.ismount("/run/kestrel-lab"), "it goes with the last lab of the machine"


def test_what_is_up_stays_up() -> None:
    boot = lab("ssh", "srv", "stat -c %Y /proc/1")
    assert lab("up", "srv") == f"srv {SRV}\n"
    assert lab("ssh", "srv", "stat -c %Y /proc/1") == boot


def test_behind_nat_one_reaches_out_but_is_not_reached() -> None:
    greeting = f"exec 3<>/dev/tcp/{SRV}/22; head -c 4 <&3"
    assert lab("exec", "nat1", "bash", "-c", greeting) == "SSH-"
    assert not answers(NAT1)
    assert call("ssh", "srv", f"timeout 2 bash -c ': <>/dev/tcp/{NAT1}/22'").returncode != 0


def test_what_is_imported_from_a_zip_file_is_compiled_once() -> None:
    """Once it is kept, what is kept is used: here another value than the source has."""
    script = """
        cd "$(mktemp -d)" && echo "VALUE = 'compiled'" >zipped_trial.py
        python3 -m zipfile -c library.zip zipped_trial.py && rm zipped_trial.py
        show() { PYTHONPATH=library.zip python3 -c "import zipped_trial as it; print(it.VALUE)"; }
        show
        kept=$(ls /var/cache/kestrel-lab-bytecode/*/*-zipped_trial.pyc)
        sed -i s/compiled/whatkept/ "$kept"
        show
        rm "$kept"
        show
    """
    assert lab("ssh", "srv", script).split() == ["compiled", "whatkept", "compiled"]


@pytest.mark.parametrize(("break_it", "mend_it"), [("cut", "heal"), ("pause", "unpause")])
def test_a_fault_comes_and_goes(break_it: str, mend_it: str) -> None:
    assert answers(SRV)
    lab(break_it, "srv")
    assert not answers(SRV)
    lab(mend_it, "srv")
    wait_until(lambda: answers(SRV))


def test_a_killed_host_boots_again_and_is_behind_nat_as_before() -> None:
    lab("kill", "nat1")
    assert f"nat1 {NAT1} exited" in lab("status")
    lab("start", "nat1")
    assert not answers(NAT1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["kill", "w7"], "no host w7; there are nat1, srv"),
        (["up", "w7"], "no address for w7: give one of srv mgr w1 w2 mon, NAME1:nat, or NAME:30"),
        (["up", "w7:128"], "w7:128: 128 cannot be the last number of an address here"),
        (["--name", "Trial", "status"], "a lab's name is made of small letters, digits and under"),
    ],
)
def test_mistakes_are_told(arguments: list[str], error: str) -> None:
    called = call(*arguments)
    assert called.returncode == 1
    assert called.stderr.startswith(f"lab: {error}")


@pytest.mark.parametrize("command", [["up", "srv"], ["kill", "srv"], ["down"]])
def test_a_host_of_another_checkout_is_left_alone(tmp_path: Path, command: list[str]) -> None:
    other = tmp_path / "lab"
    other.write_text(Path(LAB[0]).read_text())
    called = subprocess.run(
        ["python3", other, *LAB[1:], *command], capture_output=True, text=True, check=False
    )
    assert called.returncode == 1
    assert f"kestrel-lab-trial-nat1 belongs to {Path(LAB[0]).parent}" in called.stderr
    assert "srv" in lab("status")


def test_hosts_that_a_run_of_the_tests_left_in_another_checkout_are_removed(tmp_path: Path) -> None:
    for name in ("lab", "grafana_package.py"):
        shutil.copy(Path(LAB[0]).with_name(name), tmp_path)
    left = ["--name", "left", "--subnet", "10.89.101"]
    lab(*left, "down")  # of a former run
    # What a run that was killed leaves of its network.
    for words in ("link add podman99 type bridge", "address add 10.89.101.1/25 dev podman99"):
        subprocess.run(["ip", *words.split()], check=True)
    run = tmp_path / "run"
    with run.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        environment = {**os.environ, "KESTREL_LAB_TEST_RUN": str(run)}
        subprocess.run([tmp_path / "lab", *left, "up", "srv"], check=True, env=environment)
        during = call(*left, "down")
    after = call(*left, "down")
    assert f"kestrel-lab-left-srv belongs to {tmp_path}" in during.stderr
    assert (after.returncode, after.stderr) == (0, "")
    assert call(*left, "status").stdout == ""
