"""The units of the services are as closed as they can be, and valid."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from role_files import ROLES
from templating import POOL, render, values_of
from yaml import safe_load

from kestrelctl.errors import NotAllowed, SteppedBack, StoreUnusable
from kestrelctl.worker import systemd_unit
from kestrelctl.worker.joined_pools import Membership, Settings

#: Tenths on the scale of systemd-analyze(1); what raises the worker's stands in its parts.
BOUNDS = {"manager": 20, "worker": 35}
#: What each way of becoming a worker decides for itself, because it knows other things of the host.
OWN = {
    "Environment", "ExecStart", "Group", "LoadCredential", "ReadWritePaths",
    "RestartPreventExitStatus", "StandardInput", "StateDirectory", "TimeoutStartSec",
    "TimeoutStopSec", "WatchdogSec",
}  # fmt: skip
PROSODY = Path("/lib/systemd/system/prosody.service")


def template(role: str, name: str, **variables: Any) -> str:
    """A template of a role, made from its defaults and these variables."""
    values = {**values_of(role), **variables}
    return str(render((ROLES / role / "templates" / name).read_text(), values))


def unit(role: str, **variables: Any) -> str:
    """The unit of a role."""
    deployed = {f"__{role}_deployed": "0123456789abcdef"}
    return template(role, f"kestrel-{role}.service.j2", **deployed, **variables)


def joined(directory: Path, *, system: bool) -> str:
    """The unit of a machine that has joined by a token."""
    settings = Settings(pool="pool.example.org", host="192.0.2.1", port=5222, tls=True)
    membership = Membership(directory, settings.pool)
    return systemd_unit.unit_text(membership, settings, system=system)


def service_settings(text: str) -> dict[str, list[str]]:
    """Name -> values of the section [Service], in their order."""
    found: dict[str, list[str]] = {}
    section = text.partition("[Service]\n")[2].partition("\n[Install]")[0]
    for line in section.splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    assert program, "these tests need systemd-analyze, of the package systemd"
    return subprocess.run([program, *words], capture_output=True, text=True, check=False)


def exposure(path: Path, threshold: int) -> tuple[int, float]:
    found = analyze("security", "--offline=true", f"--threshold={threshold}", str(path))
    level = re.search(r"Overall exposure level for .*: ([\d.]+) ", found.stdout)
    assert level, found.stdout + found.stderr
    return found.returncode, float(level[1])


def test_a_manager_is_not_started_again_where_that_could_only_do_harm() -> None:
    """The server refuses it, its store cannot be used, or its pool has gone on with another."""
    [ends] = service_settings(unit("manager"))["RestartPreventExitStatus"]
    statuses = (NotAllowed.exit_status, StoreUnusable.exit_status, SteppedBack.exit_status)
    assert ends == " ".join(map(str, statuses))


@pytest.mark.parametrize(("role", "threshold"), BOUNDS.items())
def test_a_service_is_exposed_no_more_than_it_must_be(
    role: str, threshold: int, tmp_path: Path
) -> None:
    path = tmp_path / f"kestrel-{role}.service"
    path.write_text(unit(role))
    status, level = exposure(path, threshold)
    assert status == 0
    assert level <= threshold / 10


@pytest.mark.parametrize(("system", "threshold"), [(True, BOUNDS["worker"]), (False, 80)])
def test_a_machine_that_joined_by_a_token_is_closed_as_well(
    system: bool, threshold: int, tmp_path: Path
) -> None:
    """That of a user only as far as his systemd has the rights to."""
    path = tmp_path / "kestrel-worker-pool.example.org.service"
    path.write_text(joined(tmp_path, system=system))
    status, level = exposure(path, threshold)
    assert status == 0
    assert level <= threshold / 10


def test_both_ways_of_becoming_a_worker_make_the_same_service(tmp_path: Path) -> None:
    of_role = service_settings(unit("worker"))
    of_token = service_settings(joined(tmp_path, system=True))
    of_user = service_settings(joined(tmp_path, system=False))
    assert {*of_role, *of_token} >= {"NoNewPrivileges", "ProtectSystem", "SystemCallFilter"}
    for name in {*of_role, *of_token} - OWN:
        assert of_role.get(name) == of_token.get(name), name
    for name in set(of_user) - OWN:
        assert of_role.get(name) == of_user.get(name), name


def test_the_server_is_closed_as_well(tmp_path: Path) -> None:
    path = tmp_path / "prosody.service"
    path.write_text(PROSODY.read_text() + template("xmpp_server", "service.conf.j2"))
    status, level = exposure(path, 20)
    assert status == 0
    assert level <= 2.0


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
    command = unit("worker", worker_assets=["fpga=2", "gpus=0,1", "db=?:69"])
    assert "--asset=fpga=2 --asset=gpus=0,1 '--asset=db=?:69' " in command


def test_a_worker_has_attributes_and_takes_only_the_jobs_that_its_start_is_true_of() -> None:
    start = 'Owner == "ada" && RequestMemory % 512 == 0'
    command = unit("worker", worker_attributes=["rack=7"], worker_start=start)
    assert "--attribute=rack=7 --start " in command
    assert """--start 'Owner == "ada" && RequestMemory %% 512 == 0'""" in command
    assert "--start" not in unit("worker")


def test_what_a_worker_keeps_of_files_is_the_operators_to_say() -> None:
    command = unit("worker", worker_cache_size="50G", worker_outputs_limit="500M")
    assert "--cache-size 50G --outputs-limit 500M" in command
    assert "--cache-size" not in unit("worker")
    assert "--outputs-limit" not in unit("worker")


def test_a_manager_does_about_events_what_the_inventory_says() -> None:
    text = "[admin]\non = failed\nmail = admin@example.org\n"
    assert "--handlers /etc/kestrel/handlers.ini" in unit("manager", manager_handlers=text)
    assert "--handlers" not in unit("manager")
    rule = "[all]\nexpr = True\ncmd = query()\nticks = 30\n"
    assert "--triggers /etc/kestrel/triggers.ini" in unit("manager", manager_triggers=rule)
    assert "--triggers" not in unit("manager")


def test_environments_are_those_of_the_inventory() -> None:
    classes = '[environment.science]\nkind = "venv"\n'
    words = "--environments /etc/kestrel/environments/classes.toml"
    assert words in unit("manager", manager_environments=classes)
    assert "--environments" not in unit("manager")
    text = unit("worker", worker_environments=["venv", "chroot"])
    assert "--environments=venv --environments=chroot" in text
    assert "--environments" not in unit("worker")


def test_a_manager_is_started_anew_for_each_recipe_that_is_written() -> None:
    recipes = {"science.txt": "numpy\n"}
    values = {**values_of("manager"), "manager_environment_recipes": recipes}
    tasks = (ROLES / "manager/tasks/ages.yml").read_text()
    [looked_at] = [each["loop"] for each in safe_load(tasks) if "loop" in each]
    files = ["environments/classes.toml", "environments/science.txt"]
    assert render(looked_at, values) == ["handlers.ini", "triggers.ini", *files]


def test_a_worker_reads_of_its_machine_what_the_inventory_says() -> None:
    text = "[ram_free]\ncommand = ram\nreturn_type = int\nticks = 60\n"
    assert "--properties /etc/kestrel/properties.ini" in unit("worker", worker_properties=text)
    assert "--properties" not in unit("worker")
    commands = "[beep]\ncommand = /usr/bin/beep\n"
    assert "--commands /etc/kestrel/commands.ini" in unit("worker", worker_commands=commands)
    assert "--commands" not in unit("worker")


def test_a_worker_may_write_where_it_is_to_leave_files() -> None:
    text = unit("worker", worker_shared_outputs=["/shared/out"], worker_shares=["/scratch"])
    assert "--shared-outputs=/shared/out" in text
    assert service_settings(text)["ReadWritePaths"] == ['"/scratch" "/shared/out"']
    assert "--shared-outputs" not in unit("worker")


def test_tasks_inherit_the_variables_that_are_given_for_them() -> None:
    text = unit("worker", worker_environment={"TMPDIR": "/scratch", "GREETING": 'a "b" 100%'})
    assert "Environment=KESTREL_INHERIT=TMPDIR,GREETING\n" in text
    assert 'Environment="TMPDIR=/scratch"\n' in text
    assert r'Environment="GREETING=a \"b\" 100%%"' in text


def test_devices_and_paths_open_only_what_they_name() -> None:
    text = unit("worker", worker_devices=["char-nvidia"], worker_writable_paths=["/scratch/a b"])
    settings = service_settings(text)
    assert settings["PrivateDevices"] == ["yes", "no"]  # the last one counts
    assert settings["DevicePolicy"] == ["closed"]
    assert settings["DeviceAllow"] == ["char-nvidia rw"]
    assert settings["ReadWritePaths"] == ['"/scratch/a b"']
    assert service_settings(unit("worker"))["PrivateDevices"] == ["yes"]


MONITORING = {
    "groups": {**POOL["groups"], "monitoring": ["mon"]},
    "hostvars": {**POOL["hostvars"], "mon": {"ansible_host": "192.0.2.31"}},
}


@pytest.mark.parametrize("role", BOUNDS)
def test_metrics_are_for_this_machine_unless_another_one_watches(role: str) -> None:
    port = {"manager": 9437, "worker": 9438}[role]
    assert f"--metrics 127.0.0.1:{port}" in unit(role)
    assert "--metrics-allow" not in unit(role)
    here = {**MONITORING, "groups": {**POOL["groups"], "monitoring": ["w1"]}}
    assert f"--metrics 127.0.0.1:{port}" in unit(role, **here)


@pytest.mark.parametrize("role", BOUNDS)
def test_metrics_are_for_the_addresses_that_watch_and_nobody_else(role: str) -> None:
    def allowed(**variables: Any) -> list[str]:
        return re.findall(r"--metrics-allow=(\S+)", unit(role, **MONITORING, **variables))

    assert allowed() == ["192.0.2.31"]
    assert allowed(kestrel_monitoring_addresses=["198.51.100.7"]) == ["198.51.100.7"]
    assert allowed(**{f"{role}_metrics_allowed": ["192.0.2.0/24"]}) == ["192.0.2.0/24"]


def test_the_server_shows_its_metrics_to_the_same_addresses() -> None:
    for variables, address in (
        ({}, "192.0.2.31"),
        ({"kestrel_monitoring_addresses": ["198.51.100.7"]}, "198.51.100.7"),
    ):
        text = template("xmpp_server", "prosody.cfg.lua.j2", **MONITORING, **variables)
        assert f'openmetrics_allow_ips = {{ "127.0.0.1", "::1", "{address}" }}' in text


def test_the_half_life_of_usage_is_the_operators() -> None:
    assert "--usage-half-life 1d" in unit("manager")
    assert "--usage-half-life 12h" in unit("manager", manager_usage_half_life="12h")


def test_when_a_job_starves_is_the_operators_to_say() -> None:
    assert "--starving-after 1m" in unit("manager")
    assert "--starving-after 10m" in unit("manager", manager_starving_after="10m")


def test_mail_is_sent_only_where_the_operator_says_so_and_its_password_is_a_credential() -> None:
    assert "smtp" not in unit("manager")
    open_relay = unit("manager", manager_smtp="mail.example.org")
    assert "--smtp mail.example.org --mail-from kestrel@" in open_relay
    assert "smtp.password" not in open_relay
    logs_in = {"manager_smtp": "mail.example.org:465", "manager_smtp_tls": "tls"}
    text = unit("manager", **logs_in, manager_smtp_user="pool", manager_smtp_password="s3cret")
    assert "--smtp-tls tls --smtp-user pool --smtp-password-file %d/smtp.password" in text
    assert "LoadCredential=smtp.password:/etc/kestrel/smtp.password" in text
    assert "s3cret" not in text


STORE = "postgresql://kestrel@db.example.org/kestrel"
SEVERAL = {"groups": {**POOL["groups"], "managers": ["srv", "w1"]}, "kestrel_postgresql": STORE}


def test_the_store_is_where_the_operator_says_and_its_password_is_a_credential() -> None:
    assert "postgresql" not in unit("manager")
    assert f"--postgresql {STORE}" in unit("manager", kestrel_postgresql=STORE)
    assert "password-file" not in unit("manager", kestrel_postgresql=STORE)
    text = unit("manager", kestrel_postgresql=STORE, vault_kestrel_postgresql_password="s3cret")
    assert "--postgresql-password-file %d/postgresql.password" in text
    assert "LoadCredential=postgresql.password:/etc/kestrel/postgresql.password" in text
    assert "s3cret" not in text


@pytest.mark.parametrize(
    ("store", "said"),
    [
        (STORE, f"'{STORE}?sslmode=verify-full&sslrootcert=/etc/kestrel/postgresql-ca.pem'"),
        (
            f"{STORE}?connect_timeout=3",
            f"'{STORE}?connect_timeout=3&sslmode=verify-full"
            "&sslrootcert=/etc/kestrel/postgresql-ca.pem'",
        ),
        (
            "host=db user=kestrel",
            "'host=db user=kestrel sslmode=verify-full sslrootcert=/etc/kestrel/postgresql-ca.pem'",
        ),
    ],
)
def test_with_an_authority_the_manager_talks_to_no_other_postgresql(store: str, said: str) -> None:
    text = unit("manager", kestrel_postgresql=store, manager_postgresql_ca_certificate="PEM")
    assert f"--postgresql {said} " in text


def test_an_address_of_a_store_reaches_the_manager_as_it_is() -> None:
    text = unit("manager", kestrel_postgresql="postgresql://kestrel@%2Frun%2Fpostgresql/kes$trel")
    assert "postgresql://kestrel@%%2Frun%%2Fpostgresql/kes$$trel" in text


def test_the_newer_of_several_managers_has_the_address_of_the_pool() -> None:
    """Also where the inventory names the store for the managers alone."""
    line = 'component_conflict_resolve = "kick_old"'
    assert line not in template("xmpp_server", "component.cfg.lua.j2")
    managers = {"ash": {"kestrel_postgresql": STORE}, "elm": {"kestrel_postgresql": STORE}}
    given = {"groups": {**POOL["groups"], "managers": [*managers]}, "hostvars": managers}
    assert line in template("xmpp_server", "component.cfg.lua.j2", **given)


def test_several_managers_reach_the_server_wherever_they_are() -> None:
    """Over loopback on its host, over TLS from the others."""
    text = template("xmpp_server", "prosody.cfg.lua.j2", **SEVERAL, inventory_hostname="srv")
    assert "component_ports = { 5347 }" in text
    assert "ssl_ports = { 5348 }" in text
    on_server = unit("manager", **SEVERAL, inventory_hostname="srv")
    assert "--host 127.0.0.1 --port 5347" in on_server
    elsewhere = unit("manager", **SEVERAL, inventory_hostname="w1")
    assert "--host 192.0.2.1 --port 5348" in elsewhere
    assert " --tls " in elsewhere


def test_all_managers_are_watched() -> None:
    hosts = {"w1": {"ansible_host": "192.0.2.21"}, "mon": {"ansible_host": "192.0.2.31"}}
    text = template(
        "prometheus",
        "prometheus.yml.j2",
        **SEVERAL,
        inventory_hostname="mon",
        hostvars={**POOL["hostvars"], **hosts},
        __prometheus_rules_found=[],
    )
    [job] = [each for each in safe_load(text)["scrape_configs"]
             if each["job_name"] == "kestrel-manager"]  # fmt: skip
    targets = [(each["targets"], each["labels"]["instance"]) for each in job["static_configs"]]
    assert targets == [(["192.0.2.1:9437"], "srv"), (["192.0.2.21:9437"], "w1")]


def test_logs_are_kept_only_where_the_operator_says_so() -> None:
    assert "--keep-logs" not in unit("manager")
    assert "--keep-logs" in unit("manager", manager_keep_logs=True)


def test_what_users_may_have_stored_counts_as_long_as_the_share_keeps_it() -> None:
    assert "--max-stored none --files-kept 7d" in unit("manager")
    assert "--max-queued-size 16M" in unit("manager")
    assert "--max-queued-size 64M" in unit("manager", manager_max_queued_size="64M")
    assert values_of("xmpp_server")["xmpp_server_share_kept_days"] == 7
    of_server = {**POOL["hostvars"]["srv"], "xmpp_server_share_kept_days": 30}
    command = unit("manager", manager_max_stored="20G", hostvars={"srv": of_server})
    assert "--max-stored 20G --files-kept 30d" in command


def test_users_see_each_others_jobs_only_where_the_operator_says_so() -> None:
    assert "--share-jobs" not in unit("manager")
    assert "--share-jobs" in unit("manager", manager_share_jobs=True)
