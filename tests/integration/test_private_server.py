"""The promises of the private server that the pool is built on, each asked of a real Prosody."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from slixmpp import ClientXMPP, ComponentXMPP
from slixmpp.xmlstream.handler import Callback
from slixmpp.xmlstream.matcher import MatchXPath

from kestrelctl.errors import Unreachable
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer

JSON = "{urn:xmpp:json:0}json"


class Peer:
    """One session, and what it received."""

    def __init__(self, session: ClientXMPP | ComponentXMPP) -> None:
        self.session = session
        self.messages: asyncio.Queue[Any] = asyncio.Queue()
        self.presences: asyncio.Queue[Any] = asyncio.Queue()
        for name, queue in (("message", self.messages), ("presence", self.presences)):
            matcher = MatchXPath(f"{{{session.default_ns}}}{name}")
            session.register_handler(Callback(f"take every {name}", matcher, queue.put_nowait))

    @property
    def jid(self) -> str:
        return str(self.session.boundjid.full)

    def send_json(self, value: object, to: str, sender: str | None = None) -> None:
        message = self.session.make_message(mto=to, mfrom=sender)
        container = ElementTree.Element(JSON)
        container.text = json.dumps(value)
        message.append(container)
        message.send()

    async def message(self) -> Any:
        async with asyncio.timeout(10):
            return await self.messages.get()

    async def presence(self) -> Any:
        async with asyncio.timeout(10):
            return await self.presences.get()


def json_of(message: Any) -> object:
    return json.loads(message.xml.findtext(JSON))


def client(jid: str, password: str) -> ClientXMPP:
    """Return a client that, on loopback, does without TLS."""
    session = ClientXMPP(jid, password, sasl_mech="PLAIN")
    session.plugin["feature_mechanisms"].unencrypted_plain = True
    session.enable_direct_tls = session.enable_starttls = False
    session.enable_plaintext = True
    return session


async def logged_in(session: ClientXMPP | ComponentXMPP, port: int) -> Peer:
    peer = Peer(session)
    started = asyncio.Event()
    session.add_event_handler("session_start", lambda _: started.set())
    await session.connect(LOOPBACK, port)
    async with asyncio.timeout(10):
        await started.wait()
    return peer


async def log_in(server: PrivateServer, jid: str, password: str) -> Peer:
    return await logged_in(client(jid, password), server.client_port)


@pytest.fixture
async def pool(private_server: PrivateServer) -> AsyncIterator[Peer]:
    """The component that answers for the pool's domain."""
    component = ComponentXMPP(private_server.domain, private_server.secret, fix_error_ns=True)
    peer = await logged_in(component, private_server.component_port)
    yield peer
    await component.disconnect()


@pytest.fixture
async def worker(private_server: PrivateServer) -> AsyncIterator[Peer]:
    """A client of a worker's account that has sent no presence at all."""
    jid = f"w-1.x@{private_server.workers_domain}"
    peer = await log_in(private_server, f"{jid}/agent", private_server.add_account(jid))
    yield peer
    await peer.session.disconnect()


async def test_messages_pass_both_ways_without_broadcast_presence(
    private_server: PrivateServer, pool: Peer, worker: Peer
) -> None:
    worker.send_json({"type": "hello", "text": 'say "ü" <&>'}, to=f"pool@{private_server.domain}")
    hello = await pool.message()
    assert json_of(hello) == {"type": "hello", "text": 'say "ü" <&>'}
    assert hello["from"] == worker.jid

    pool.send_json({"type": "welcome"}, to=worker.jid, sender=f"pool@{private_server.domain}")
    welcome = await worker.message()
    assert json_of(welcome) == {"type": "welcome"}
    assert welcome["from"] == f"pool@{private_server.domain}"


async def test_a_user_logs_in_to_the_other_host(private_server: PrivateServer, pool: Peer) -> None:
    jid = f"ada@{private_server.users_domain}"
    ada = await log_in(private_server, jid, private_server.add_account(jid))
    ada.send_json({"type": "submit"}, to=f"jobs@{private_server.domain}")
    assert json_of(await pool.message()) == {"type": "submit"}
    await ada.session.disconnect()


async def test_large_batches_pass_both_ways(
    private_server: PrivateServer, pool: Peer, worker: Peer
) -> None:
    batch = ["x" * 1000] * 900
    worker.send_json(batch, to=f"pool@{private_server.domain}")
    assert json_of(await pool.message()) == batch
    pool.send_json(batch, to=worker.jid, sender=f"pool@{private_server.domain}")
    assert json_of(await worker.message()) == batch


async def test_a_message_to_a_worker_that_is_gone_comes_back(
    private_server: PrivateServer, pool: Peer, worker: Peer
) -> None:
    gone = worker.jid.replace("/agent", "/gone")
    pool.send_json({"type": "run"}, to=gone, sender=f"pool@{private_server.domain}")
    error = await pool.message()
    assert error["type"] == "error"
    assert error["from"] == gone
    assert error["error"]["condition"] == "service-unavailable"


async def test_a_message_comes_back_while_the_pool_is_down(
    private_server: PrivateServer, worker: Peer
) -> None:
    worker.send_json({"type": "hello"}, to=f"pool@{private_server.domain}")
    error = await worker.message()
    assert error["type"] == "error"
    assert error["from"] == f"pool@{private_server.domain}"


async def test_messages_are_not_kept_for_a_worker_that_is_away(
    private_server: PrivateServer, pool: Peer
) -> None:
    away = f"away@{private_server.workers_domain}"
    private_server.add_account(away)
    pool.send_json({"type": "run"}, to=away, sender=f"pool@{private_server.domain}")
    assert (await pool.message())["type"] == "error"


async def test_who_does_not_read_what_he_is_sent_is_closed(
    private_server: PrivateServer, pool: Peer, worker: Peer
) -> None:
    """What the kernels keep on both sides comes on top of the server's bound."""
    sender = f"pool@{private_server.domain}"
    worker.session.transport.pause_reading()
    for _ in range(26):
        pool.send_json(["x" * 1000] * 900, to=worker.jid, sender=sender)
    async with asyncio.timeout(20):
        while pool.messages.empty():
            pool.send_json({"type": "run"}, to=worker.jid, sender=sender)
            await asyncio.sleep(0.05)
    assert (await pool.message())["type"] == "error"
    assert "does not read what it is sent" in private_server.log_file.read_text()
    worker.session.transport.resume_reading()


WORKER_PROCESS = """
import asyncio, sys
from slixmpp import ClientXMPP

jid, password, pool, port = sys.argv[1:]

async def main():
    client = ClientXMPP(jid, password, sasl_mech="PLAIN")
    client.plugin["feature_mechanisms"].unencrypted_plain = True
    client.enable_direct_tls = client.enable_starttls = False
    client.enable_plaintext = True
    client.add_event_handler("session_start", lambda _: client.send_presence(pto=pool))
    await client.connect("127.0.0.1", int(port))
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_killed_worker_is_missed_because_its_connection_ended(
    private_server: PrivateServer, pool: Peer
) -> None:
    """The server waits for no timeout: `presence` would give up sooner."""
    server = private_server
    jid = f"victim@{server.workers_domain}"
    arguments = (jid, server.add_account(jid), f"pool@{server.domain}", str(server.client_port))
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER_PROCESS, *arguments)
    try:
        joined = await pool.presence()
        assert joined["type"] == "available"
        assert joined["from"].bare == jid
    finally:
        process.kill()
    left = await pool.presence()
    assert left["type"] == "unavailable"
    assert left["from"] == joined["from"]
    await process.wait()


async def test_a_wrong_password_is_refused(private_server: PrivateServer) -> None:
    jid = f"w1@{private_server.workers_domain}"
    private_server.add_account(jid)
    session = client(jid, "guess")
    refusals: asyncio.Queue[Any] = asyncio.Queue()
    session.add_event_handler("failed_auth", refusals.put_nowait)
    await session.connect(LOOPBACK, private_server.client_port)
    async with asyncio.timeout(10):
        assert (await refusals.get())["condition"] == "not-authorized"
    await session.disconnect()


async def test_nobody_else_can_read_the_keys(private_server: PrivateServer, worker: Peer) -> None:
    assert stat.S_IMODE(private_server.directory.stat().st_mode) == 0o700
    files = [path for path in private_server.directory.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".lua", ".dat", ".log", ".pid"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert private_server.secret not in repr(private_server)


async def test_it_listens_on_loopback_alone(private_server: PrivateServer) -> None:
    for port in (private_server.client_port, private_server.component_port):
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", port)


async def test_it_shows_its_metrics_on_loopback_if_asked_to(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp", metrics=True)
    process = await asyncio.create_subprocess_exec(*server.command())
    try:
        await server.wait_ready()
        reader, writer = await asyncio.open_connection(LOOPBACK, server.http_port)
        writer.write(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(10):
            page = await reader.readuntil(b"# EOF\n")
        writer.close()
        assert b"\nprosody_stats_collection_seconds_count 1\n" in page
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", server.http_port)
    finally:
        process.terminate()
        await process.wait()


async def test_without_being_asked_it_shows_none(private_server: PrivateServer) -> None:
    assert not private_server.metrics
    assert "openmetrics" not in (private_server.directory / "prosody.cfg.lua").read_text()


async def test_waiting_for_a_server_that_is_not_started_ends(tmp_path: Path) -> None:
    server = PrivateServer.create(tmp_path / "xmpp")
    with pytest.raises(Unreachable, match="did not answer"):
        await server.wait_ready(timeout_seconds=0.1)
