"""The units of the services are as closed as they can be, and valid."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLES = Path(__file__).parents[2] / "roles"
POOL: dict[str, Any] = {
    "ansible_managed": "Managed by Ansible",
    "inventory_hostname": "w1",
    "groups": {"xmpp_servers": ["srv"], "managers": ["srv"], "workers": ["w1"]},
    "hostvars": {"srv": {"ansible_host": "192.0.2.1"}},
    "kestrel_domain": "pool.example.org",
    "kestrel_ca_certificate": "a certificate",
    "kestrel_users": [{"name": "ada", "admin": True}, {"name": "bob"}],
}
#: Tenths on the scale of systemd-analyze(1); what raises the worker's stands in its template.
BOUNDS = {"manager": 20, "worker": 35}


def unit(role: str, **variables: Any) -> str:
    """The unit of a role, made from its defaults and these variables."""
    values: dict[str, Any] = {**POOL, f"__{role}_deployed": "0123456789abcdef"}
    for part in ("defaults", "vars"):
        values |= yaml.safe_load((ROLES / role / part / "main.yml").read_text())
    values |= variables
    templar = Templar(loader=DataLoader(), variables=_trusted(values))
    template = (ROLES / role / "templates" / f"kestrel-{role}.service.j2").read_text()
    return str(templar.template(trust_as_template(template), preserve_trailing_newlines=True))


def _trusted(value: Any) -> Any:
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: _trusted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_trusted(each) for each in value]
    return value


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    assert program, "these tests need systemd-analyze, of the package systemd"
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def exposure(path: Path, threshold: int) -> tuple[int, float]:
    found = analyze("security", "--offline=true", f"--threshold={threshold}", str(path))
    level = re.search(r"Overall exposure level for .*: ([\d.]+) ", found.stdout)
    assert level, found.stdout + found.stderr
    return found.returncode, float(level[1])


@pytest.mark.parametrize(("role", "threshold"), BOUNDS.items())
def test_a_service_is_exposed_no_more_than_it_must_be(
    role: str, threshold: int, tmp_path: Path
) -> None:
    path = tmp_path / f"kestrel-{role}.service"
    path.write_text(unit(role))
    status, level = exposure(path, threshold)
    assert status == 0
    assert level <= threshold / 10


def test_a_hole_in_the_sandbox_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "kestrel-manager.service"
    path.write_text(unit("manager").replace("CapabilityBoundingSet=\n", ""))
    assert exposure(path, BOUNDS["manager"])[0] != 0


@pytest.mark.parametrize("role", BOUNDS)
def test_systemd_understands_every_line(role: str, tmp_path: Path) -> None:
    text = unit(role)
    # The program is not installed here, and whether it is there is not the question.
    text = text.replace("ExecStart=/opt/kestrel/venv/bin/kestrelctl", "ExecStart=/bin/true")
    path = tmp_path / f"kestrel-{role}.service"
    path.write_text(text)
    found = analyze("verify", "--man=no", "--recursive-errors=no", str(path))
    assert [line for line in found.stderr.splitlines() if path.name in line] == []


@pytest.mark.parametrize("role", BOUNDS)
def test_a_daemon_that_is_stuck_or_stopped_is_started_again(role: str) -> None:
    settings = dict(line.split("=", 1) for line in unit(role).splitlines() if "=" in line)
    assert 0 < int(settings["WatchdogSec"]) <= 60
    # systemd.service(5), "Exit causes and the effect of the Restart= settings".
    assert settings["Restart"] in ("always", "on-failure", "on-abnormal", "on-watchdog")


def test_no_secret_is_in_a_unit() -> None:
    for role in BOUNDS:
        assert "--password" not in unit(role)
    assert "StandardInput=file:/etc/kestrel/worker.credentials" in unit("worker")
    assert "LoadCredential=component.secret:/etc/kestrel/component.secret" in unit("manager")


def test_a_manager_beside_the_server_needs_no_tls() -> None:
    command = unit("manager", inventory_hostname="srv")
    assert "--host 127.0.0.1 --port 5347" in command
    assert "--tls" not in command


def test_a_manager_elsewhere_speaks_tls_to_the_server() -> None:
    command = unit("manager", inventory_hostname="other")
    assert "--host 192.0.2.1 --port 5348" in command
    assert "--tls --ca-file /etc/kestrel/ca.pem" in command


def test_only_admins_are_admins() -> None:
    command = unit("manager")
    assert "--admin ada@users.pool.example.org" in command
    assert "bob" not in command


def test_what_a_worker_offers_is_on_its_command_line() -> None:
    command = unit("worker", worker_cpus=2.5, worker_memory="8G", worker_tags=["gpu", "lab"])
    assert "--cpus 2.5 --memory 8G --tags gpu,lab" in command
    assert "--cpus" not in unit("worker")


def test_tasks_inherit_the_variables_that_are_given_for_them() -> None:
    text = unit("worker", worker_environment={"TMPDIR": "/scratch", "GREETING": 'a "b" 100%'})
    assert "Environment=KESTREL_INHERIT=TMPDIR,GREETING\n" in text
    assert 'Environment="TMPDIR=/scratch"\n' in text
    assert r'Environment="GREETING=a \"b\" 100%%"' in text


def test_devices_and_paths_open_only_what_they_name() -> None:
    text = unit("worker", worker_devices=["char-nvidia"], worker_writable_paths=["/scratch/a b"])
    assert "PrivateDevices=no\nDevicePolicy=closed\nDeviceAllow=char-nvidia rw\n" in text
    assert 'ReadWritePaths="/scratch/a b"\n' in text
    assert "PrivateDevices=yes" in unit("worker")


def test_users_see_each_others_jobs_only_where_the_operator_says_so() -> None:
    assert "--share-jobs" not in unit("manager")
    assert "--share-jobs" in unit("manager", manager_share_jobs=True)
