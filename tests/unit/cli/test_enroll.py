"""`worker enroll`, `join` and `revoke`, as far as they need no server."""

from __future__ import annotations

import base64
import errno
import json
import os
import pwd
import shutil
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_fake_pool import CONTEXT, ENROLLED, FakePool, run

from kestrelctl.errors import KestrelError, MissingTool, NotAllowed, NotFound, UsageError
from kestrelctl.local.pool_state import workers_directory
from kestrelctl.metrics import endpoint
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.workers import NewAccount, Token, decode_token
from kestrelctl.worker import entry
from kestrelctl.worker import systemd_unit as service
from kestrelctl.worker.joined_pools import Membership, Settings, joined
from kestrelctl.worker.options import WorkerOptions
from kestrelctl.xmpp import joiner

TOKEN = Token(
    host="xmpp.example.org",
    port=5222,
    pool="example.org",
    jid="join-1003600-5f2c9ae1@workers.example.org",
    password="open sesame",
    ca="-----BEGIN CERTIFICATE-----\n",
)
SETTINGS = Settings(pool="example.org", host="xmpp.example.org", port=5222, tls=True)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a machine keeps what it has joined."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return workers_directory()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[WorkerOptions]:
    """The workers that would have been started."""
    found: list[WorkerOptions] = []

    def start(options: WorkerOptions) -> int:
        found.append(options)
        return 0

    monkeypatch.setattr(entry, "run", start)
    return found


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Token, str, Path | None]]:
    """What was traded for accounts."""
    found: list[tuple[Token, str, Path | None]] = []

    async def trade(token: Token, name: str, *, ca_file: Path | None) -> NewAccount:
        found.append((token, name, ca_file))
        return NewAccount(jid="lab7@workers.example.org", password="secret")

    monkeypatch.setattr(joiner, "join", trade)
    return found


# -- tokens ----------------------------------------------------------------------------------------


def test_a_token_survives_being_broken_into_lines() -> None:
    word = TOKEN.encode()
    assert decode_token(f" {word[:70]}\n{word[70:]}\n") == TOKEN
    assert set(word) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"), (
        "it needs no quotes"
    )


@pytest.mark.parametrize("text", ["", "hello", "ä", "-", TOKEN.encode()[:-9], "e30", "bnVsbA"])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no token"):
        decode_token(text)


def test_a_token_of_a_later_version_is_told_apart() -> None:
    later = msgspec.structs.replace(TOKEN, v=2)
    with pytest.raises(UsageError, match="version 2"):
        decode_token(later.encode())


# -- enroll ----------------------------------------------------------------------------------------


def test_enroll_prints_one_command_and_says_until_when_it_holds() -> None:
    pool = FakePool()
    result = run(pool, "worker", "enroll", "--name", "lab7", "--expires", "2d")
    word = result.stdout.removeprefix("kestrelctl worker join ").rstrip("\n")
    token = decode_token(word)
    assert (token.jid, token.password) == (ENROLLED.jid, ENROLLED.password)
    assert (token.host, token.port, token.tls, token.pool, token.ca) == (
        "xmpp.example.org", 5222, True, "example.org", "",
    )  # fmt: skip
    assert "until 1970-01-12 14:46:40 UTC" in result.stderr
    request = pool.last(rq.EnrollWorker)
    assert (request.name, request.valid_seconds) == ("lab7", 2 * 86400)
    assert pool.opened == [("", True)]


def test_enroll_for_scripts_prints_the_token_alone() -> None:
    quiet = run(FakePool(), "worker", "enroll", "-o", "quiet").stdout
    data = json.loads(run(FakePool(), "worker", "enroll", "-o", "json").stdout)
    assert quiet == data["token"] + "\n"
    assert data["jid"] == ENROLLED.jid


@pytest.mark.parametrize(
    ("server", "host", "port"),
    [
        ("10.0.0.7", "10.0.0.7", 5222),
        ("lab.example.org:5223", "lab.example.org", 5223),
        ("[fd00::7]:5223", "fd00::7", 5223),
        ("fd00::7", "fd00::7", 5222),
    ],
)
def test_the_other_machine_may_reach_the_server_elsewhere(
    server: str, host: str, port: int
) -> None:
    result = run(FakePool(), "worker", "enroll", "--server", server, "-o", "quiet")
    token = decode_token(result.stdout)
    assert (token.host, token.port) == (host, port)


@pytest.mark.parametrize("server", [":5222", "host:port", "host:0", "host:65536"])
def test_what_is_no_address_is_refused(server: str) -> None:
    result = run(FakePool(), "worker", "enroll", "--server", server)
    assert result.exit_code == UsageError.exit_status


def test_the_token_carries_the_ca_and_leaves_tls_out_on_loopback_only(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("PEM\n")
    local = msgspec.structs.replace(
        CONTEXT, host="127.0.0.1", tls=False, ca_file=tmp_path / "ca.pem"
    )
    here = run(FakePool(), "worker", "enroll", "-o", "quiet", context=local)
    assert (decode_token(here.stdout).tls, decode_token(here.stdout).ca) == (False, "PEM\n")
    assert "only on this one" in here.stderr
    far = run(FakePool(), "worker", "enroll", "-o", "quiet", "--server", "lab1", context=local)
    assert decode_token(far.stdout).tls is True


def test_revoke_goes_to_the_admins_account() -> None:
    pool = FakePool()
    result = run(pool, "worker", "revoke", "w1", "w2@workers.example.org")
    assert result.stdout == "revoked worker w1\n"
    assert pool.last(rq.RevokeWorkers).names == ["w1", "w2@workers.example.org"]
    assert pool.opened == [("", True)]


# -- join ------------------------------------------------------------------------------------------


def test_join_keeps_the_account_and_runs_the_worker(
    home: Path, started: list[WorkerOptions], asked: list[tuple[Token, str, Path | None]]
) -> None:
    words = ("--name", "lab7", "--cpus", "2", "--memory", "1G", "--tags", "R,GPU")
    result = run(FakePool(), "worker", "join", "-", *words, stdin=TOKEN.encode().encode())
    assert result.exit_code == 0, result.stderr
    directory = home / "example.org"
    assert asked == [(TOKEN, "lab7", directory / "ca.pem")]
    assert (directory / "ca.pem").read_text() == TOKEN.ca
    credentials = directory / "credentials"
    assert credentials.read_text() == "lab7@workers.example.org secret\n"
    assert stat.S_IMODE(credentials.stat().st_mode) == 0o600
    assert "secret" not in result.stdout + result.stderr
    [options] = started
    assert options == WorkerOptions(
        pool="example.org",
        credentials=credentials,
        data_dir=directory / "data",
        host="xmpp.example.org",
        ca_file=directory / "ca.pem",
        cpus=2.0,
        memory_bytes=1 << 30,
        tags=("R", "GPU"),
    )


def test_a_machine_takes_its_host_name_unless_the_token_says_another(
    home: Path,
    started: list[WorkerOptions],
    asked: list[tuple[Token, str, Path | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "Lab9.Example")
    fixed = msgspec.structs.replace(
        TOKEN, jid="join-1003600-5f2c9ae1-lab7@workers.example.org", pool="other.org"
    )
    run(FakePool(), "worker", "join", TOKEN.encode())
    run(FakePool(), "worker", "join", fixed.encode())
    assert [name for _, name, _ in asked] == ["lab9.example", ""]


def test_a_machine_that_has_joined_does_not_spend_another_token(
    home: Path, started: list[WorkerOptions], asked: list[tuple[Token, str, Path | None]]
) -> None:
    run(FakePool(), "worker", "join", TOKEN.encode())
    result = run(FakePool(), "worker", "join", TOKEN.encode())
    assert result.exit_code == UsageError.exit_status
    assert "has joined example.org already" in result.stderr
    assert len(asked) == 1


def test_a_refused_machine_keeps_no_account(
    home: Path, started: list[WorkerOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> NewAccount:
        raise NotAllowed("the token was used already")

    monkeypatch.setattr(joiner, "join", refuse)
    result = run(FakePool(), "worker", "join", TOKEN.encode())
    assert result.exit_code == NotAllowed.exit_status
    assert not list(home.glob("*/credentials"))
    assert started == []


def test_a_token_cannot_write_elsewhere(home: Path) -> None:
    evil = msgspec.structs.replace(TOKEN, pool="../../evil")
    result = run(FakePool(), "worker", "join", evil.encode())
    assert result.exit_code == UsageError.exit_status
    assert "is not a domain" in result.stderr


# -- running again ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["worker.json", "credentials"])
def test_an_account_that_cannot_be_kept_is_told_of(home: Path, name: str) -> None:
    found = Membership(home, "example.org")
    found.prepare("")
    (found.directory / name / "in the way").mkdir(parents=True)
    with pytest.raises(KestrelError, match="cannot be kept") as caught:
        found.store(SETTINGS, "lab7@workers.example.org", "open sesame")
    assert "worker revoke lab7@workers.example.org" in str(caught.value.hint)
    assert "sesame" not in f"{caught.value} {caught.value.cause} {caught.value.hint}"


@pytest.mark.parametrize(
    "rubbish", ["A" * 5, base64.urlsafe_b64encode(b'{"x":' + b"[" * 100_000).decode(), "\udcff"]
)
def test_rubbish_is_no_token(rubbish: str) -> None:
    with pytest.raises(UsageError, match="no token"):
        decode_token(rubbish)


@pytest.mark.parametrize("port", [0, -1, 65536, 10**30])
def test_a_token_names_a_port_that_there_is(port: int) -> None:
    with pytest.raises(UsageError, match="no token"):
        decode_token(msgspec.structs.replace(TOKEN, port=port).encode())


def test_no_word_of_a_unit_begins_a_line_of_its_own(home: Path) -> None:
    settings = msgspec.structs.replace(SETTINGS, tags=("a\nExecStartPre=/bin/evil",))
    text = service.unit_text(Membership(home, "example.org"), settings, system=True)
    assert not any(line.startswith("ExecStartPre") for line in text.splitlines())


def keep(root: Path, pool: str) -> Membership:
    """A machine that has joined."""
    found = Membership(root, pool)
    found.prepare("")
    settings = msgspec.structs.replace(SETTINGS, pool=pool, cpus=4.0, tags=("R",))
    found.store(settings, f"lab7@workers.{pool}", "secret")
    return found


def test_run_uses_what_was_joined_and_options_go_before_it(
    home: Path, started: list[WorkerOptions]
) -> None:
    keep(home, "example.org")
    assert run(FakePool(), "worker", "run").exit_code == 0
    assert run(FakePool(), "worker", "run", "--cpus", "1", "--host", "10.0.0.7").exit_code == 0
    kept, changed = started
    assert (kept.pool, kept.host, kept.cpus, kept.tags) == (
        "example.org", "xmpp.example.org", 4.0, ("R",),
    )  # fmt: skip
    assert (changed.host, changed.cpus, changed.tags) == ("10.0.0.7", 1.0, ("R",))
    assert kept.data_dir == home / "example.org" / "data"
    assert kept.ca_file is None


def test_which_of_several_pools_must_be_said(home: Path, started: list[WorkerOptions]) -> None:
    for pool in ("a.org", "b.org"):
        keep(home, pool)
    result = run(FakePool(), "worker", "run")
    assert result.exit_code == UsageError.exit_status
    assert "a.org, b.org" in result.stderr
    assert run(FakePool(), "worker", "run", "--pool", "b.org").exit_code == 0
    assert [options.pool for options in started] == ["b.org"]


def test_a_machine_that_has_joined_no_pool_is_told_how_to(home: Path) -> None:
    with pytest.raises(NotFound, match="has joined no pool"):
        joined(home, None)
    with pytest.raises(NotFound, match=r"has not joined a\.org"):
        joined(home, "a.org")
    assert run(FakePool(), "worker", "run", "--credentials", "x").exit_code == 2


# -- service ---------------------------------------------------------------------------------------


def test_the_users_unit_runs_what_was_joined(home: Path) -> None:
    unit = service.unit_text(keep(home, "example.org"), SETTINGS, system=False)
    assert "-P -m kestrelctl worker run --pool example.org --metrics 127.0.0.1:9438\n" in unit
    assert f"Environment=XDG_STATE_HOME={os.environ['XDG_STATE_HOME']}\n" in unit
    assert "WantedBy=default.target" in unit
    assert "User=" not in unit


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The services that would have been installed."""
    found: list[Settings] = []

    def install(here: Membership, settings: Settings, *, system: bool) -> str:
        found.append(settings)
        return "systemctl status"

    monkeypatch.setattr(service, "check_possible", lambda *, system: None)
    monkeypatch.setattr(service, "install", install)
    monkeypatch.setattr(service, "linger", lambda: None)
    return found


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were looked at, and found free."""
    found: list[str] = []
    monkeypatch.setattr(endpoint, "check_free", found.append)
    return found


def test_a_service_serves_metrics_to_its_machine(
    home: Path, asked: list[Any], installed: list[Settings], free: list[str]
) -> None:
    assert run(FakePool(), "worker", "join", TOKEN.encode(), "--service").exit_code == 0
    assert free == ["127.0.0.1:9438"]
    for system in (True, False):
        unit = service.unit_text(Membership(home, "example.org"), installed[0], system=system)
        assert " --metrics 127.0.0.1:9438" in unit
        assert "--metrics-allow" not in unit


def test_others_may_read_the_metrics_of_a_service_if_they_are_named(
    home: Path, asked: list[Any], installed: list[Settings], free: list[str]
) -> None:
    words = ("--metrics", "0.0.0.0:9438", "--metrics-allow", "192.0.2.31,198.51.100.0/24")
    assert run(FakePool(), "worker", "join", TOKEN.encode(), "--service", *words).exit_code == 0
    unit = service.unit_text(Membership(home, "example.org"), installed[0], system=True)
    assert " --metrics 0.0.0.0:9438 " in unit
    assert " --metrics-allow 192.0.2.31 --metrics-allow 198.51.100.0/24 " in unit
    assert Membership(home, "example.org").options()["metrics_allow"] == (
        "192.0.2.31", "198.51.100.0/24",
    )  # fmt: skip


def test_metrics_of_a_worker_can_be_left_away(
    home: Path,
    started: list[WorkerOptions],
    asked: list[Any],
    installed: list[Settings],
    free: list[str],
) -> None:
    other = msgspec.structs.replace(TOKEN, pool="other.org")
    run(FakePool(), "worker", "join", TOKEN.encode(), "--service", "--metrics", "")
    run(FakePool(), "worker", "join", other.encode())
    assert [installed[0].metrics, started[0].metrics, *free] == ["", ""]
    assert "--metrics" not in service.unit_text(
        Membership(home, "example.org"), installed[0], system=True
    )


def test_no_token_is_spent_if_the_port_of_the_metrics_is_taken(
    home: Path, asked: list[Any], installed: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(*_: Any, **__: Any) -> socket.socket:
        raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(socket, "create_server", taken)
    result = run(FakePool(), "worker", "join", TOKEN.encode(), "--service")
    assert result.exit_code == UsageError.exit_status
    assert "metrics cannot be served at 127.0.0.1:9438" in result.stderr
    assert "give --metrics another address, or '' for none" in result.stderr
    assert asked == installed == []


def test_a_worker_that_has_joined_is_left_to_systemd_later(
    home: Path, installed: list[Settings]
) -> None:
    keep(home, "example.org")
    result = run(FakePool(), "worker", "service")
    assert (result.exit_code, result.stdout) == (0, "systemctl status\n")
    assert installed == [msgspec.structs.replace(SETTINGS, cpus=4.0, tags=("R",))]
    assert run(FakePool(), "worker", "service", "--pool", "other.org").exit_code == 7
    quiet = run(FakePool(), "worker", "service", "-o", "quiet").stdout
    assert quiet == "lab7@workers.example.org\n"


def test_a_service_that_there_is_runs_its_new_unit(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "systemctl"
    program.write_text('#!/bin/sh\necho "$@" >>"$0.asked"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = keep(home, "example.org")
    service.install(found, found.settings(), system=False)
    name = service.name_of("example.org")
    assert (tmp_path / "systemd" / "user" / name).exists()
    assert (tmp_path / "systemctl.asked").read_text().splitlines() == [
        "--user daemon-reload", f"--user enable {name}", f"--user restart {name}",
    ]  # fmt: skip


def test_directories_that_are_not_absolute_are_none(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the XDG Base Directory Specification, and so for systemd; the unit would not be found."""
    program = tmp_path / "systemctl"
    program.write_text('#!/bin/sh\necho "$XDG_RUNTIME_DIR" >>"$0.directory"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run")
    monkeypatch.chdir(tmp_path)
    found = keep(home, "example.org")
    service.install(found, found.settings(), system=False)
    name = service.name_of("example.org")
    assert (tmp_path / ".config/systemd/user" / name).exists()
    assert not (tmp_path / "config").exists()
    directories = set((tmp_path / "systemctl.directory").read_text().split())
    assert directories == {f"/run/user/{os.geteuid()}"}


@pytest.mark.parametrize("system", [False, True])
def test_a_worker_that_is_stuck_or_stopped_is_started_again(home: Path, system: bool) -> None:
    unit = service.unit_text(keep(home, "example.org"), SETTINGS, system=system)
    assert "\nRestart=on-failure\n" in unit  # that includes the watchdog: systemd.service(5)
    assert "\nWatchdogSec=1min\n" in unit


def test_the_machines_unit_hands_the_account_over_and_is_not_root(home: Path) -> None:
    found = Membership(home, "example.org")
    found.prepare("PEM")
    found.store(SETTINGS, "lab7@workers.example.org", "secret")
    settings = msgspec.structs.replace(
        SETTINGS,
        cpus=2.0,
        memory_bytes=1 << 30,
        tags=("R", "GPU"),
        shares=("/scratch",),
        pulls=True,
    )
    unit = service.unit_text(found, settings, system=True)
    assert f"StandardInput=file:{found.credentials}\n" in unit
    assert f"LoadCredential=ca.pem:{found.ca_file}\n" in unit
    assert (
        "worker run --pool example.org --metrics 127.0.0.1:9438 --credentials -"
        " --host xmpp.example.org --port 5222 --tls --sessions 1 --cpus 2.0"
        " --memory 1073741824 --tags R,GPU --isolation auto --pull"
        " --share /scratch"
        " --ca-file ${CREDENTIALS_DIRECTORY}/ca.pem --data-dir ${STATE_DIRECTORY}\n"
    ) in unit
    assert "User=kestrel-worker\n" in unit
    assert "ReadWritePaths=/scratch\n" in unit
    assert "WantedBy=multi-user.target" in unit
    assert "secret" not in unit


def test_a_share_with_blanks_in_its_path_is_one_path(home: Path) -> None:
    """Of two words systemd would open a directory that nobody means, or start no service."""
    settings = msgspec.structs.replace(SETTINGS, shares=("/data/my $results\nUser=root",))
    unit = service.unit_text(keep(home, "example.org"), settings, system=True)
    assert 'ReadWritePaths="/data/my $results\\nUser=root"\n' in unit
    assert "User=root" not in unit.splitlines()
    assert '--share "/data/my $$results\\nUser=root"' in unit, "in a command, $ is a variable's"


def test_a_device_that_is_shared_is_open_to_the_service_and_no_other(home: Path) -> None:
    def opened(*shares: str) -> list[str]:
        settings = msgspec.structs.replace(SETTINGS, shares=shares)
        unit = service.unit_text(keep(home, "example.org"), settings, system=True)
        (home / "example.org" / "credentials").unlink()
        words = ("PrivateDevices=", "DeviceAllow=", "ReadWritePaths=")
        return [line for line in unit.splitlines() if line.startswith(words)]

    assert opened() == ["PrivateDevices=yes"]
    assert opened("/scratch") == ["PrivateDevices=yes", "ReadWritePaths=/scratch"]
    assert opened("/dev/null") == [
        "PrivateDevices=yes", "PrivateDevices=no", "DeviceAllow=/dev/null rw",
    ]  # fmt: skip
    assert {"DeviceAllow=/dev/null rw", "DeviceAllow=/dev/zero rw"} <= {*opened("/dev")}


def test_join_as_a_service_installs_it_and_says_how_to_see_it(
    home: Path,
    started: list[WorkerOptions],
    asked: list[tuple[Token, str, Path | None]],
    free: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "check_possible", lambda *, system: None)
    monkeypatch.setattr(
        service, "install", lambda here, settings, *, system: f"systemctl status {here.pool}"
    )
    result = run(FakePool(), "worker", "join", TOKEN.encode(), "--service")
    assert result.stdout == "systemctl status example.org\n"
    assert started == []


@pytest.mark.parametrize("said", [None, "loginctl enable-linger ada"])
def test_a_user_who_may_not_linger_is_told_what_root_has_to_do(
    home: Path,
    asked: list[tuple[Token, str, Path | None]],
    free: list[str],
    monkeypatch: pytest.MonkeyPatch,
    said: str | None,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(service, "check_possible", lambda *, system: None)
    monkeypatch.setattr(service, "install", lambda here, settings, *, system: "how it is")
    monkeypatch.setattr(service, "linger", lambda: said)
    result = run(FakePool(), "worker", "join", TOKEN.encode(), "--service")
    assert result.stdout == "how it is\n"
    assert (f"hint: sudo {said}" in result.stderr) == (said is not None)


@pytest.mark.parametrize(("status", "said"), [(0, None), (1, "loginctl enable-linger")])
def test_the_user_is_made_to_linger_if_he_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, said: str | None
) -> None:
    program = tmp_path / "loginctl"
    program.write_text(f'#!/bin/sh\necho "$@" >"$0.asked"\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    user = pwd.getpwuid(os.geteuid()).pw_name
    assert service.linger() == (said and f"{said} {user}")
    asked = (tmp_path / "loginctl.asked").read_text()
    assert asked == f"enable-linger --no-ask-password {user}\n"


def test_there_is_no_service_for_a_user_for_whom_no_systemd_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(MissingTool, match="no systemd runs for this user") as raised:
        service.check_possible(system=False)
    assert "sudo loginctl enable-linger" in str(raised.value.hint)
    (tmp_path / "systemd").mkdir()
    (tmp_path / "systemd/private").touch()
    service.check_possible(system=False)


@pytest.mark.parametrize("part", ["prefix", "base_prefix"])
def test_there_is_no_service_of_a_program_that_its_user_cannot_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """One in the home of whoever has called sudo, for example, or its Python."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for each in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, each, "/usr")
    service.check_possible(system=True)
    tmp_path.chmod(0o750)
    monkeypatch.setattr(sys, part, str(tmp_path / "venv"))
    (tmp_path / "venv").mkdir()
    with pytest.raises(UsageError, match="the service's user cannot read") as raised:
        service.check_possible(system=True)
    assert str(raised.value.cause).endswith(" is closed to other users")


def test_no_token_is_spent_where_there_can_be_no_service(
    home: Path,
    asked: list[tuple[Token, str, Path | None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    result = run(FakePool(), "worker", "join", TOKEN.encode(), "--service")
    assert result.exit_code == 9
    assert asked == []
