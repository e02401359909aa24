"""What `up` is told of other servers: wrong options are refused before anything starts."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
from pathlib import Path

import pytest
from certificates import expire
from cli_fake_pool import FakePool, run

from kestrelctl.errors import UsageError
from kestrelctl.local import control, other_servers
from kestrelctl.local.pool_state import PoolState, pool_directory
from kestrelctl.xmpp.federation import Federation
from kestrelctl.xmpp.prosody import LOCAL_DOMAIN, LOOPBACK, PrivateServer

CHECKOUT = Path(__file__).parents[3]
POOL, FRIENDS = "pool.example.org", "example.net"


@pytest.fixture(autouse=True)
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """With what pools were started; none really is."""
    found: list[dict[str, object]] = []

    def start(directory: Path, *_words: object, **options: object) -> None:
        (directory / "manager").mkdir(exist_ok=True)
        found.append(options)

    async def ready(_process: object, directory: Path, _workers: int) -> PoolState:
        return PoolState(
            name=directory.name, pid=1, domain="d", host="h", port=1, user="u", password_file="p",
            admin="a", admin_password_file="q", workers=1, server_pid=0, manager_pid=0,
            worker_pids=[],
        )  # fmt: skip

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(control, "find_prosody", lambda: Path("/bin/true"))
    monkeypatch.setattr(control, "_start", start)
    monkeypatch.setattr(control, "_ready", ready)
    monkeypatch.chdir(tmp_path)
    return found


def issue(name: str, domain: str, curve: str = "P-256") -> None:
    """Writes NAME.crt and NAME.key here."""
    ask = f"openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:{curve} -nodes"
    names = ["-subj", f"/CN={domain}", "-addext", f"subjectAltName=DNS:{domain}"]
    sign = "openssl x509 -req -copy_extensions copyall"
    for words in (
        [*ask.split(), "-keyout", f"{name}.key", "-out", "csr", *names],
        [*sign.split(), "-in", "csr", "-key", f"{name}.key", "-out", f"{name}.crt",
         "-days", "1"],
    ):  # fmt: skip
        subprocess.run(words, check=True, capture_output=True)


def up(*words: str, certificate: str = "c.crt", key: str = "c.key") -> tuple[int, str]:
    """How `up` with a certificate ends, and what it says."""
    result = run(FakePool(), "up", *words, "--certificate", certificate, "--key", key)
    return result.exit_code, result.stderr


OPEN = ("--domain", POOL, "--federated-domain", FRIENDS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--remote-user", f"ada@{FRIENDS}"], "no other server may reach the pool"),
        (["--federation-listen", "127.0.0.1:5269"], "no other server may reach the pool"),
        (["--certificate", "c.crt", "--key", "c.key"], "no other server may reach the pool"),
        ([*OPEN], "--certificate FILE --key FILE"),
        ([*OPEN, "--certificate", "c.crt"], "--certificate FILE --key FILE"),
        ([*OPEN, "--remote-user", "ada@example.com"], f"allowed: {FRIENDS}"),
        ([*OPEN, "--remote-user", f"ada@{FRIENDS}/phone"], "is not an address"),
        ([*OPEN, "--remote-user", FRIENDS], "is not an address"),
        (["--federated-domain", 'x" }'], "is not a domain"),
        (["--domain", "ada@example.org"], "is not a domain"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    words: list[str], said: str, started: list[object]
) -> None:
    result = run(FakePool(), "up", *words)
    assert result.exit_code == 2
    assert said in result.stderr
    assert "hint: " in result.stderr
    assert not started
    assert not pool_directory("default").exists()


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "example.org:5269", "5269", "[::]"])
def test_others_connect_to_an_address_and_a_port(listen: str, started: list[object]) -> None:
    assert up(*OPEN, "--federation-listen", listen)[0] == 2
    assert not started


def test_the_pool_proves_its_name_with_a_certificate_that_is_valid_now(
    started: list[object],
) -> None:
    issue("c", POOL)
    issue("other", "example.com")
    issue("old", POOL)
    expire(Path("old.crt"), Path("old.key"))
    issue("coin", POOL, curve="secp256k1")
    refused = {
        "the pool needs a name": up("--federated-domain", FRIENDS),
        f"workers.{POOL} is the pool's own": up(*OPEN, "--federated-domain", f"workers.{POOL}"),
        "no.key cannot be read": up(*OPEN, key="no.key"),
        "no.crt cannot be read": up(*OPEN, certificate="no.crt"),
        "are not a certificate and its key": up(*OPEN, key="other.key"),
        f"is not one for {POOL} now": up(*OPEN, certificate="other.crt", key="other.key"),
        "certificate has expired": up(*OPEN, certificate="old.crt", key="old.key"),
        "no connection can be encrypted with": up(*OPEN, certificate="coin.crt", key="coin.key"),
    }
    for said, (status, stderr) in refused.items():
        assert (status, said in stderr) == (2, True), (said, stderr)
    assert not started
    assert not pool_directory("default").exists()


def test_a_pool_is_told_each_time_who_reaches_it_and_keeps_its_domain(
    started: list[dict[str, object]], tmp_path: Path
) -> None:
    issue("c", POOL)
    with socket.create_server((LOOPBACK, 0)) as taken:
        listen = f"{LOOPBACK}:{taken.getsockname()[1]}"
        status, stderr = up(*OPEN, "--federation-listen", listen)
        assert status == 2
        assert "Address already in use" in stderr
        assert not started
    words = ("--remote-user", f"Ada@{FRIENDS}", "--federation-listen", listen)
    status, stderr = up(*OPEN, *words)
    assert (status, stderr[:16]) == (0, "next: kestrelctl")
    assert run(FakePool(), "up").exit_code == 0
    expected = Federation(
        domains=(FRIENDS,), users=(f"ada@{FRIENDS}",), certificate=str(tmp_path / "c.crt"),
        key=str(tmp_path / "c.key"), interfaces=(LOOPBACK,), port=int(listen.rpartition(":")[2]),
    )  # fmt: skip
    told = [(options["domain"], options["federation"]) for options in started]
    assert told == [(POOL, expected), (POOL, None)]
    refused = run(FakePool(), "up", "--domain", "other.example.org")
    assert refused.exit_code == 2
    assert "its jobs belong to accounts of that domain" in refused.stderr
    assert run(FakePool(), "up", "--name", "b", "--domain", "other.example.org").exit_code == 0


def test_a_pool_from_before_domains_could_be_chosen_keeps_its_own() -> None:
    (pool_directory("default") / "manager").mkdir(parents=True)
    with pytest.raises(UsageError, match=LOCAL_DOMAIN):
        asyncio.run(control.up("default", 1, domain=POOL))


def test_other_servers_are_off_unless_they_are_named(tmp_path: Path) -> None:
    PrivateServer.create(tmp_path / "server")
    text = (tmp_path / "server" / "prosody.cfg.lua").read_text()
    assert text.count("s2s") == 2
    assert 'modules_disabled = { "s2s", "s2s_auth_certs"' in text
    assert "federated_domains" not in text
    assert "ssl" not in text


def test_only_named_servers_with_a_valid_certificate_reach_the_component_alone(
    tmp_path: Path,
) -> None:
    found = other_servers.federation_of(
        [FRIENDS, "Example.COM"], [], Path("/c.crt"), Path("/c.key"), ""
    )
    PrivateServer.create(tmp_path / "server", POOL, federation=found)
    text = (tmp_path / "server" / "prosody.cfg.lua").read_text()
    for line in (
        'kestrel_streams_federated_domains = { "example.net", "example.com" }',
        's2s_interfaces = { "*", "::" }',
        "s2s_ports = { 5269 }",
        "s2s_secure_auth = true",
        "s2s_require_encryption = true",
        'interfaces = { "127.0.0.1" }',
    ):
        assert f"\n{line}\n" in text
    before, _, component = text.partition(f'Component "{POOL}"')
    assert '"tls", "s2s", "s2s_auth_certs", "kestrel_streams"' in component
    assert 'key = "/c.key"' in component
    assert '"tls"' not in before
    assert "ssl" not in before


def test_the_role_sets_the_same_options(tmp_path: Path) -> None:
    found = Federation(domains=(FRIENDS,), certificate="/c.crt", key="/c.key")
    PrivateServer.create(tmp_path / "server", POOL, federation=found)
    template = CHECKOUT / "roles/xmpp_server/templates/prosody.cfg.lua.j2"
    option = re.compile(r"^((?:s2s|kestrel_streams_fed)\w+) = (true|)", re.MULTILINE)
    ours = (tmp_path / "server" / "prosody.cfg.lua").read_text()
    assert option.findall(ours) == option.findall(template.read_text())
