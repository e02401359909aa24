"""Pools of one machine in a flock: the domain, the certificate and the place that each has."""

from __future__ import annotations

import ssl
import stat
import subprocess
from pathlib import Path

import msgspec
import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.errors import MissingTool, NotFound, UsageError
from kestrelctl.local import flock_authority, flock_membership
from kestrelctl.local.flock_addresses import read_address, remove_address, write_address
from kestrelctl.local.flock_authority import FlockAuthority
from kestrelctl.local.flock_membership import (
    addresses_of,
    check_domain,
    domain_to_join,
    flock_directory,
    flock_domain,
    membership,
)
from kestrelctl.local.other_servers import domain_of
from kestrelctl.local.pool_state import PoolState, pool_directory
from kestrelctl.local.supervisor import Supervisor
from kestrelctl.xmpp.federation import Federation, FlockMembership
from kestrelctl.xmpp.prosody import LOCAL_DOMAIN, PrivateServer

ASPEN, BIRCH = flock_domain("aspen"), flock_domain("birch")


@pytest.fixture(autouse=True)
def state_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def a_pool(monkeypatch: pytest.MonkeyPatch, name: str, domain: str) -> None:
    """Has a pool of that name run on this machine."""
    state = PoolState(
        name=name, pid=1, domain=domain, host="h", port=1, user="u", password_file="p",
        admin="a", admin_password_file="q", workers=1, server_pid=0, manager_pid=0, worker_pids=[],
    )  # fmt: skip
    monkeypatch.setattr(
        flock_membership, "read_state", lambda found: state if found.name == name else None
    )


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


# -- which domain, and through which pool ----------------------------------------------------------


def test_a_pool_of_a_flock_has_a_domain_of_its_own(tmp_path: Path) -> None:
    assert flock_domain("Aspen") == "aspen.kestrel.localhost"
    assert domain_of(tmp_path / "new", "", ASPEN) == ASPEN
    assert flock_domain("a_b") == "a_b.kestrel.localhost"
    with pytest.raises(UsageError, match="cannot be part of a domain"):
        flock_domain("a b")


def test_a_pool_that_has_the_domain_of_all_the_others_cannot_join() -> None:
    with pytest.raises(UsageError) as refusal:
        check_domain("old", LOCAL_DOMAIN)
    assert "--name OTHER --flock" in refusal.value.hint
    check_domain("aspen", ASPEN)


def test_one_joins_through_a_pool_that_runs_and_is_in_a_flock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match="does not run"):
        domain_to_join("aspen", "birch", BIRCH)
    (pool_directory("old") / "manager").mkdir(parents=True)
    with pytest.raises(UsageError, match="does not run") as refusal:
        domain_to_join("old", "birch", BIRCH)
    assert "--name OTHER --flock OTHER" in refusal.value.hint, "that one could not join"
    a_pool(monkeypatch, "aspen", ASPEN)
    with pytest.raises(UsageError, match="is in no flock"):
        domain_to_join("aspen", "birch", BIRCH)
    write_address(addresses_of(flock_directory()), ASPEN, "127.0.0.1:20001")
    assert domain_to_join("aspen", "birch", BIRCH) == ASPEN
    a_pool(monkeypatch, "old", LOCAL_DOMAIN)
    with pytest.raises(UsageError, match="is in no flock") as refusal:
        domain_to_join("old", "birch", BIRCH)
    assert LOCAL_DOMAIN in refusal.value.cause


def test_the_first_of_a_flock_joins_through_itself() -> None:
    assert domain_to_join("aspen", "aspen", ASPEN) == ASPEN


def test_up_joins_local_pools_or_is_reached_by_other_servers() -> None:
    result = run(
        FakePool(), "up", "--flock", "aspen", "--federated-domain", "example.net",
        "--certificate", "c", "--key", "k",
    )  # fmt: skip
    assert result.exit_code == UsageError.exit_status
    assert "not both" in result.stderr


# -- certificates ----------------------------------------------------------------------------------


def test_a_certificate_proves_a_pool_to_whoever_trusts_the_authority(tmp_path: Path) -> None:
    authority = FlockAuthority(tmp_path / "flock")
    certificate, key = authority.issue(tmp_path, ASPEN)
    text = subprocess.run(
        ["openssl", "x509", "-in", certificate, "-noout", "-text"],
        capture_output=True, check=True, text=True,
    ).stdout  # fmt: skip
    assert f"DNS:{ASPEN}" in text
    assert "TLS Web Server Authentication, TLS Web Client Authentication" in text
    assert "CA:FALSE" in text
    context = ssl.create_default_context(cafile=authority.file)
    context.load_cert_chain(certificate, key)


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    authority = FlockAuthority(tmp_path / "flock")
    _, key = authority.issue(tmp_path, ASPEN)
    assert mode(tmp_path / "flock") == 0o700
    assert mode(key) == mode(tmp_path / "flock" / "authority.key") == 0o600


def test_a_pool_keeps_its_certificate_until_that_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = FlockAuthority(tmp_path / "flock")
    certificate, key = authority.issue(tmp_path, ASPEN)
    first = certificate.read_bytes()
    assert FlockAuthority(tmp_path / "flock").issue(tmp_path, ASPEN) == (certificate, key)
    assert certificate.read_bytes() == first

    authority.issue(tmp_path, BIRCH)  # of another domain
    second = certificate.read_bytes()
    assert second != first

    key.write_text("damaged")
    authority.issue(tmp_path, BIRCH)
    third = certificate.read_bytes()
    assert third != second

    FlockAuthority(tmp_path / "another flock").issue(tmp_path, BIRCH)
    fourth = certificate.read_bytes()
    assert fourth != third

    authority.issue(tmp_path, BIRCH)
    fifth = certificate.read_bytes()
    monkeypatch.setattr(flock_authority, "RENEW_SECONDS", 366 * 86_400.0)
    authority.issue(tmp_path, BIRCH)  # it ends too soon now
    assert certificate.read_bytes() != fifth


def test_what_a_crash_left_of_an_authority_is_made_anew(tmp_path: Path) -> None:
    directory = tmp_path / "flock"
    directory.mkdir()
    (directory / "authority.key").write_text("half of a k")
    FlockAuthority(directory).issue(tmp_path, ASPEN)
    assert not list(directory.glob(".draft-*"))


def test_openssl_is_asked_for_where_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingTool, match="openssl"):
        FlockAuthority(tmp_path / "flock").issue(tmp_path, ASPEN)


# -- addresses -------------------------------------------------------------------------------------


def test_where_a_server_is_can_be_said_and_taken_back(tmp_path: Path) -> None:
    directory = tmp_path / "addresses"
    write_address(directory, ASPEN, "127.0.0.1:20001")
    write_address(directory, ASPEN, "127.0.0.1:20002")
    assert read_address(directory, ASPEN) == "127.0.0.1:20002"
    assert [file.name for file in directory.iterdir()] == [ASPEN]
    remove_address(directory, ASPEN)
    remove_address(directory, ASPEN)
    with pytest.raises(NotFound):
        read_address(directory, ASPEN)


def test_a_pool_looks_for_others_first_where_it_alone_is_told(tmp_path: Path) -> None:
    pool = tmp_path / "aspen"
    pool.mkdir()
    found = membership(tmp_path / "flock", pool, ASPEN, ASPEN).flock
    assert found is not None
    assert found.address_directories == (
        str(pool / "flock-addresses"),
        str(tmp_path / "flock" / "addresses"),
    )


# -- what server and manager are told --------------------------------------------------------------


def test_a_server_believes_the_authority_and_the_pins_of_its_flock(tmp_path: Path) -> None:
    federation = Federation(
        certificate="/c.crt",
        key="/c.key",
        interfaces=("127.0.0.1",),
        port=25269,
        flock=FlockMembership(
            authorities="/ca.pem",
            pins={"birch.example": "ab:cd"},
            address_directories=("/one", "/two"),
            through=ASPEN,
        ),
    )
    PrivateServer.create(tmp_path / "server", ASPEN, federation=federation)
    text = (tmp_path / "server" / "prosody.cfg.lua").read_text()
    for line in (
        'kestrel_streams_flock_authorities = "/ca.pem"',
        'kestrel_streams_flock_pins = { ["birch.example"] = "ab:cd" }',
        'kestrel_streams_address_directories = { "/one", "/two" }',
        's2s_interfaces = { "127.0.0.1" }',
        "s2s_secure_auth = true",
        "kestrel_streams_federated_domains = {  }",
    ):
        assert f"\n{line}\n" in text
    assert "dialback" not in text


def test_the_manager_is_told_through_whom_to_join(tmp_path: Path) -> None:
    federation = Federation(
        certificate="/c.crt",
        key="/c.key",
        flock=FlockMembership(through=BIRCH, minute_seconds=1.5),
    )
    for given, expected in ((federation, ["--flock", BIRCH, "--flock-minute", "1.5"]), (None, [])):
        supervisor = Supervisor(
            tmp_path, "aspen", 1, "process", "plain", metrics=False, domain=ASPEN, federation=given
        )
        words = supervisor._manager_command("root@users.aspen")
        at = words.index("--flock") if given else len(words)
        assert words[at : at + 4] == expected


def test_the_manager_is_told_by_which_name_its_users_know_the_pool(tmp_path: Path) -> None:
    supervisor = Supervisor(
        tmp_path, "aspen", 1, "process", "plain", metrics=False, domain=ASPEN, federation=None
    )
    words = supervisor._manager_command("root@users.aspen")
    assert words[words.index("--name") + 1] == "aspen"


def test_what_is_said_of_a_flock_survives_the_way_to_the_supervisor() -> None:
    said = Federation(
        certificate="/c", key="/k", flock=FlockMembership(through=ASPEN, pins={BIRCH: "ab"})
    )
    assert msgspec.json.decode(msgspec.json.encode(said), type=Federation) == said
