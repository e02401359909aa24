"""Guessing passwords at a real private server: slow, and its owner gets in nevertheless."""

from __future__ import annotations

import asyncio
import base64
import contextlib

from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer

FREE_GUESSES = 20
GUESSERS = 12


async def log_in(server: PrivateServer, jid: str, password: str, *, source: str = LOOPBACK) -> str:
    """What the server says of a password (SASL PLAIN): success, or why not."""
    name, _, host = jid.partition("@")
    reader, writer = await asyncio.open_connection(
        LOOPBACK, server.client_port, local_addr=(source, 0)
    )
    try:
        writer.write(
            f"<stream:stream xmlns='jabber:client' to='{host}' version='1.0'"
            " xmlns:stream='http://etherx.jabber.org/streams'>".encode()
        )
        await reader.readuntil(b"</stream:features>")
        secret = base64.b64encode(f"\0{name}\0{password}".encode()).decode()
        writer.write(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>"
            f"{secret}</auth>".encode()
        )
        answer = (await reader.readuntil(b">")).decode()
        if "success" in answer:
            return "success"
        return answer + (await reader.readuntil(b"</failure>")).decode()
    finally:
        writer.transport.abort()


class Guessers:
    """Some who guess at one account, all from one address, as fast as they are let."""

    def __init__(self, server: PrivateServer, jid: str) -> None:
        self.failed = 0
        self._tasks = [asyncio.create_task(self._guess(server, jid)) for _ in range(GUESSERS)]

    async def _guess(self, server: PrivateServer, jid: str) -> None:
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                assert "not-authorized" in await log_in(server, jid, f"guess {self.failed}")
                self.failed += 1

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_who_guesses_is_slowed_and_the_owner_gets_in(private_server: PrivateServer) -> None:
    jid = f"ada@{private_server.users_domain}"
    other = f"bob@{private_server.users_domain}"
    secret, others = private_server.add_account(jid), private_server.add_account(other)
    guessers = Guessers(private_server, jid)
    try:
        async with asyncio.timeout(20):
            while guessers.failed < FREE_GUESSES:
                await asyncio.sleep(0.02)
        # Only who is in line with them waits: others log in many times while they guess a few.
        before = guessers.failed
        for _ in range(50):
            assert await log_in(private_server, other, others) == "success"
            assert await log_in(private_server, jid, secret, source="127.0.0.2") == "success"
        assert guessers.failed - before < 50
        before = guessers.failed
        async with asyncio.timeout(25):
            assert await log_in(private_server, jid, secret) == "success"
        assert guessers.failed - before <= 2 * GUESSERS
    finally:
        await guessers.stop()


async def test_many_sessions_of_one_account_log_in_at_once(private_server: PrivateServer) -> None:
    jid = f"w1@{private_server.workers_domain}"
    secret = private_server.add_account(jid)
    found = await asyncio.gather(*(log_in(private_server, jid, secret) for _ in range(200)))
    assert found == ["success"] * 200
