"""`kestrelctl fleet` on two real hosts with systemd, over real SSH."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

CHECKOUT = Path(__file__).parents[2]
LOADED_AT = int(time.time())  #: before any of its hosts was there
LAB = [
    str(CHECKOUT / "tests/lab/lab"), "--name", "fleet",
    "--subnet", os.environ.get("KESTREL_FLEET_SUBNET", "10.89.85"),
]  # fmt: skip
HOSTS = ("one:11", "two:12")

#: A service that says the secret it was given, over and over, as no service should.
SERVICE = """\
[Service]
LoadCredential={credential}:{path}
ExecStart=/bin/sh -c 'while :; do echo tick; cat {path}; sleep 0.2; done'
"""
PREPARE = r"""
set -e
install -d /etc/kestrel /etc/prosody /var/lib/kestrel/manager
for unit in $UNITS; do
  test -s /etc/systemd/system/$unit.service
  systemctl daemon-reload
  systemctl start $unit
done
python3 - <<'END'
import sqlite3
with sqlite3.connect("/var/lib/kestrel/manager/store.sqlite") as database:
    database.executescript("create table job (id); insert into job values (1), (2), (3)")
END
"""


def lab(*arguments: str, stdin: str | None = None) -> str:
    done = subprocess.run([*LAB, *arguments], input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@dataclass
class Fleet:
    """Two hosts and the command; `secrets` are all that the hosts have."""

    inventory: Path
    secrets: list[str]

    def command(self, *arguments: str) -> list[str]:
        verb, *rest = arguments
        kestrelctl = [sys.executable, "-m", "kestrelctl"]
        return [*kestrelctl, "fleet", verb, "-i", str(self.inventory), *rest]

    def run(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command(*arguments), capture_output=True, text=True, cwd=CHECKOUT, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def processes(self, name: str) -> str:
        """What `pgrep` finds on the hosts, through the lab and not through the fleet."""
        found = [lab("exec", host, "sh", "-c", f"pgrep -a {name} || true") for host in NAMES]
        return "".join(found)


NAMES = [host.partition(":")[0] for host in HOSTS]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    lab("down")  # those of a run that was killed
    booted = lab("up", *HOSTS)
    try:
        state = CHECKOUT / "tests/lab/.state"
        addresses = dict(line.split() for line in booted.splitlines())
        hosts = {name: {"ansible_host": addresses[name]} for name in NAMES}
        inventory = tmp_path_factory.mktemp("inventory") / "hosts.json"
        variables = {
            "ansible_user": "root",
            "ansible_ssh_private_key_file": str(state / "id"),
            "ansible_ssh_common_args": f"-o UserKnownHostsFile={state / 'known_hosts'}",
        }
        workers = {"hosts": {name: None for name in NAMES}}
        managers = {"hosts": {"one": None}}
        everything = {"vars": variables, "hosts": hosts}
        groups = {"managers": managers, "workers": workers}
        inventory.write_text(json.dumps({"all": {**everything, "children": groups}}))
        yield Fleet(inventory, prepare())
    finally:
        lab("down")


def prepare() -> list[str]:
    """Services and secrets on both hosts; returns the secrets."""
    component, admin, *workers = (secrets.token_urlsafe(18) for _ in range(4))
    key = subprocess.run(
        ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name, password in zip(NAMES, workers, strict=True):
        write(name, "/etc/kestrel/worker.credentials", f"{name}@workers.pool.internal {password}\n")
        credential = SERVICE.format(credential="worker", path="/etc/kestrel/worker.credentials")
        write(name, "/etc/systemd/system/kestrel-worker.service", credential)
    credential = SERVICE.format(credential="component", path="/etc/kestrel/component.secret")
    write("one", "/etc/systemd/system/kestrel-manager.service", credential)
    write("one", "/etc/kestrel/component.secret", f"{component}\n")
    write("one", "/etc/kestrel/admin.password", f"{admin}\n")
    write("one", "/etc/kestrel/config.toml", 'default = "pool"\n')
    write(
        "one", "/etc/prosody/prosody.cfg.lua",
        f'Component "pool.internal"\n    component_secret = "{component}"\n'
        'ssl = {\n    certificate = "/etc/prosody/certs/kestrel.crt";\n}\n',
    )  # fmt: skip
    write("one", "/etc/prosody/certs/kestrel.key", key)
    units = {"one": "kestrel-manager kestrel-worker", "two": "kestrel-worker"}
    for name in NAMES:
        lab("exec", name, "sh", "-c", f"UNITS='{units[name]}'\n{PREPARE}")
    return [component, admin, *workers, *key.splitlines()[1:-1]]


def write(host: str, path: str, text: str) -> None:
    script = f"install -d -m 755 {Path(path).parent}; umask 077; cat >{path}"
    lab("exec", host, "sh", "-c", script, stdin=text)


@pytest.fixture
def without_two(fleet: Fleet) -> Iterator[None]:
    lab("kill", "two")
    try:
        yield
    finally:
        lab("start", "two")
        # Its network card is a new one; this machine learns that when it hears from it.
        lab("exec", "two", "sh", "-c", "ping -c 1 $(ip -4 route show default | cut -d' ' -f3)")
        lab("exec", "two", "systemctl", "start", "kestrel-worker")


def test_status_tells_of_every_host(fleet: Fleet) -> None:
    one, two = json.loads(fleet.run("status", "-o", "json").stdout)
    assert (one["host"], two["host"]) == ("one", "two")
    assert [unit["name"] for unit in one["units"]] == ["kestrel-manager", "kestrel-worker"]
    assert [unit["name"] for unit in two["units"]] == ["kestrel-worker"]
    for host in (one, two):
        assert {unit["state"] for unit in host["units"]} == {"active"}
        assert all(LOADED_AT <= unit["since"] <= time.time() for unit in host["units"])
        assert 0 < host["disk_free_bytes"] < host["disk_bytes"]
        # One clock, so all of the offset is the error of measuring it.
        assert abs(host["clock_offset_seconds"]) <= host["clock_error_seconds"]


def test_ansible_chooses_the_hosts(fleet: Fleet) -> None:
    def chosen(limit: str) -> list[str]:
        return sorted(
            fleet.run("run", "--limit", limit, "-o", "quiet", "--", "true").stdout.split()
        )

    assert chosen("managers") == ["one"]
    assert chosen("workers,!one") == ["two"]
    assert chosen("all") == ["one", "two"]


def test_a_command_runs_everywhere_and_its_status_counts(fleet: Fleet) -> None:
    done = fleet.run("run", "-o", "jsonl", "--", "sh", "-c", "hostname; test $(hostname) = one",
                     status=11)  # fmt: skip
    found = {each["host"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert {host: each["stdout"] for host, each in found.items()} == {
        "one": "one\n", "two": "two\n",
    }  # fmt: skip
    assert (found["one"]["status"], found["two"]["status"]) == (0, 1)


def test_a_command_that_asks_or_takes_too_long_does_not_hang(fleet: Fleet) -> None:
    assert fleet.run("run", "--", "sh", "-c", "read -r answer; echo $?").stdout.count("1\n") == 2
    fleet.run("run", "--timeout", "1", "--", "sleep", "4711", status=11)
    assert "4711" not in fleet.processes("sleep")


def test_large_output_comes_whole(fleet: Fleet) -> None:
    done = fleet.run("run", "--limit", "one", "-o", "json", "--", "seq", "300000")
    (found,) = json.loads(done.stdout)
    assert found["stdout"] == "".join(f"{n}\n" for n in range(1, 300_001))


def test_logs_are_merged_by_time(fleet: Fleet) -> None:
    found = json.loads(fleet.run("logs", "-n", "20", "-o", "json").stdout)
    assert {each["host"] for each in found} == {"one", "two"}
    assert [each["at"] for each in found] == sorted(each["at"] for each in found)
    assert {each["unit"] for each in found} == {"kestrel-manager", "kestrel-worker"}


def test_following_shows_both_hosts_live_and_ends_with_ctrl_c(fleet: Fleet) -> None:
    # A check that runs in the background of a script ignores SIGINT, and so would what it starts.
    command = ("env", "--default-signal=INT", *fleet.command("logs", "-f", "-n", "0"))
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        seen: set[str] = set()
        while seen != {"one", "two"}:
            assert select.select([process.stdout], [], [], 20)[0], "nothing came"
            seen.add(process.stdout.readline().split()[0])
        assert "--follow" in fleet.processes("journalctl")
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(10) == 130
    deadline = time.monotonic() + 10
    while "--follow" in fleet.processes("journalctl"):
        assert time.monotonic() < deadline, "journalctl goes on"


def test_a_host_that_is_gone_is_not_waited_for_and_costs_the_others_nothing(
    fleet: Fleet, without_two: None
) -> None:
    done = fleet.run("status", "-o", "json", status=5)
    one, two = json.loads(done.stdout)
    assert one["error"] is None
    assert two["error"]["code"] == "unreachable"
    assert "1 of 2 hosts could not be reached: two" in done.stderr


def test_a_host_whose_key_is_not_known_is_not_trusted(fleet: Fleet, tmp_path: Path) -> None:
    text = fleet.inventory.read_text()
    strangers = tmp_path / "hosts.json"
    strangers.write_text(re.sub(r"(UserKnownHostsFile=)[^\"]+", r"\1/dev/null", text))
    done = Fleet(strangers, []).run("run", "-o", "json", "--", "true", status=5)
    hosts = json.loads(done.stdout)
    assert hosts
    for host in hosts:
        assert host["error"]["code"] == "untrusted"
        assert "ssh-keyscan" in host["error"]["hint"]


def test_a_restart_waits_until_the_services_are_active(fleet: Fleet) -> None:
    def pids() -> list[str]:
        command = ("systemctl", "show", "-P", "MainPID", "kestrel-worker")
        return [lab("exec", name, *command).strip() for name in NAMES]

    before = pids()
    done = fleet.run("restart", "--yes", "--serial", "1", "-o", "jsonl")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["host"], each["unit"], each["state"]) for each in found] == [
        ("one", "kestrel-manager", "done"),
        ("one", "kestrel-worker", "done"),
        ("two", "kestrel-worker", "done"),
    ]
    assert not set(before) & (set(pids()) | {"0"})


def test_a_bundle_has_what_is_needed_and_no_secret(fleet: Fleet, tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    fleet.run("bundle", "-d", str(path))
    with tarfile.open(path) as archive:
        files = {
            member.name: file.read().decode()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }
    whole = "\n".join(files.values())
    assert len(fleet.secrets) > 5
    assert [secret for secret in fleet.secrets if secret in whole] == []
    assert "tick" in files["report/one/journal/kestrel-worker.log"]
    assert "<redacted>" in files["report/one/journal/kestrel-worker.log"]
    assert "component_secret = <redacted>" in files["report/one/config/etc/prosody/prosody.cfg.lua"]
    assert "LoadCredential=" in files["report/two/units/kestrel-worker.service"]
    rows = json.loads(files["report/one/store.json"])["rows"]
    assert rows == {"/var/lib/kestrel/manager/store.sqlite": {"job": 3}}
    assert "Debian" in files["report/two/versions/os.txt"]
    index = json.loads(files["report/index.json"])["hosts"]
    assert "prosodyctl is not there" in index["one"]["failed"]["versions/prosody.txt"]
