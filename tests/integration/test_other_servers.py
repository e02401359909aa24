"""Accounts at other servers: those of a domain that is allowed reach the pool, and nobody else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from daemons import Spawn
from people import write_names
from servers import Authority, running

from kestrelctl.errors import KestrelError, NotAllowed
from kestrelctl.local.pool_state import pool_directory, read_state
from kestrelctl.protocol import answers, requests
from kestrelctl.xmpp.prosody import PrivateServer, find_prosody, free_ports
from kestrelctl.xmpp.user import connect_user

POOL, ELSEWHERE = "pool.internal", "elsewhere.internal"
#: One allowed domain, and one that is not; both at the other server.
FRIENDS, STRANGERS = f"users.{ELSEWHERE}", f"workers.{ELSEWHERE}"
SECONDS = 20.0
#: A module of a server of an allowed domain, which sends over the stream that was opened to the
#: pool what is for the hosts beside it, too.
_OVER_ONE_STREAM = f"""\
module:hook("route/remote", function (event)
    local stream = prosody.hosts["{FRIENDS}"].s2sout["{POOL}"];
    if event.to_host == "{POOL}" or not stream then return; end
    stream.sends2s(event.stanza);
    return true;
end, 2000);
"""


#: Runs in place of Prosody: adds a module that knows where both are, and whom to trust.
_PROSODY = """\
#!/bin/sh
sed -i -e 's|plugin_paths = {{|& "{directory}",|' -e 's|"saslauth", |&"names", |' \\
    -e 's|ssl = {{|& cafile = "{authority}";|' "$2"
exec {prosody} "$@"
"""


@dataclass(frozen=True)
class Federation:
    pool: PrivateServer
    elsewhere: PrivateServer


def configure(server: PrivateServer, directory: Path, authority: Authority, port: int) -> None:
    """Has the other server talk to others, for all of its accounts."""
    names = (server.domain, f"users.{server.domain}", f"workers.{server.domain}")
    authority.issue(server.directory, *names)
    file = server.directory / "prosody.cfg.lua"
    text = file.read_text()
    text = text.replace('"saslauth", ', '"saslauth", "tls", ')
    text = text.replace(', "kestrel_guard"', ', "over_one_stream"')
    text = text.replace('"s2s", "s2s_auth_certs", ', "")
    text = text.replace('modules_enabled = { "kestrel_guard" }', "")
    options = (
        f's2s_ports = {{ {port} }}\ns2s_interfaces = {{ "127.0.0.2" }}\ns2s_secure_auth = true\n'
        f'ssl = {{ certificate = "{server.directory}/server.crt"; key = "{server.directory}/'
        f'server.key" }}\n'
    )
    file.write_text(text.replace("VirtualHost", f"{options}VirtualHost", 1))
    (directory / "mod_over_one_stream.lua").write_text(_OVER_ONE_STREAM)


@pytest.fixture
async def federation(
    tmp_path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Federation]:
    """Two servers: another one, and that of a pool of `up` that knows one account there."""
    authority = Authority(tmp_path / "authority")
    pool_port, other_port = free_ports(2)
    elsewhere = ("127.0.0.2", other_port)
    places = {POOL: ("127.0.0.1", pool_port), FRIENDS: elsewhere, STRANGERS: elsewhere}
    write_names(tmp_path, places)
    program = tmp_path / "bin" / "prosody"
    program.parent.mkdir()
    program.write_text(
        _PROSODY.format(directory=tmp_path, authority=authority.file, prosody=find_prosody())
    )
    program.chmod(0o755)
    authority.issue(tmp_path, POOL)
    other = PrivateServer.create(tmp_path / "other", ELSEWHERE)
    configure(other, tmp_path, authority, other_port)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    async with running(other):
        up = spawn(
            "up", "--workers", "1", "--domain", POOL,
            "--federated-domain", FRIENDS, "--remote-user", f"ann@{FRIENDS}",
            "--certificate", tmp_path / "server.crt", "--key", tmp_path / "server.key",
            "--federation-listen", f"127.0.0.1:{pool_port}",
        )  # fmt: skip
        try:
            assert await asyncio.to_thread(up.wait, 60) == 0, up.communicate()
            directory = pool_directory("default")
            state = read_state(directory)
            assert state is not None
            yield Federation(
                PrivateServer(directory / "server", POOL, state.port, 0, ""), elsewhere=other
            )
        finally:
            await asyncio.to_thread(spawn("down", "--delete", "--yes").wait, 60)


async def ask(server: PrivateServer, jid: str) -> object:
    """What an account is answered."""
    password = server.add_account(jid)
    port = server.client_port
    async with connect_user(jid, password, POOL, "127.0.0.1", port, tls=False) as user:
        return await user.ask(requests.PoolStatus(), timeout_seconds=SECONDS)


async def test_an_allowed_domain_reaches_the_pool_and_another_does_not(
    federation: Federation,
) -> None:
    assert isinstance(await ask(federation.elsewhere, f"ann@{FRIENDS}"), answers.PoolSummary)
    with pytest.raises(NotAllowed):
        await ask(federation.elsewhere, f"eve@{FRIENDS}")
    with pytest.raises(KestrelError) as refusal:
        await ask(federation.elsewhere, f"ann@{STRANGERS}")
    assert not isinstance(refusal.value, NotAllowed)
    log = federation.pool.log_file.read_text()
    assert f"refused a stream from {STRANGERS}" in log


async def test_a_stream_to_the_pool_leads_to_nobody_beside_it(federation: Federation) -> None:
    jid, bob = f"ann@{FRIENDS}", f"bob@users.{POOL}"
    password = federation.elsewhere.add_account(jid)
    port = federation.elsewhere.client_port
    async with connect_user(jid, password, POOL, "127.0.0.1", port, tls=False) as user:
        await user.ask(requests.PoolStatus())  # there is a stream now
        user.session.send("{}", bob)
        async with asyncio.timeout(SECONDS):
            while f"refused a stanza of {FRIENDS} for {bob}" not in (
                federation.pool.log_file.read_text()
            ):
                await asyncio.sleep(0.05)
