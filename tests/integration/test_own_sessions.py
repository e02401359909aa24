"""What an account may send to its own sessions, at a real server: each stanza arrives where it is
addressed to, and what makes the server work much is refused to an account that owes too much."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer

SECONDS = 20.0
#: They fit into one read of the server, which is 8 KiB: no pause comes in between.
MANY = 250


class Session:
    """A session with nothing but its stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count()

    def write(self, stanzas: str) -> None:
        self._writer.write(stanzas.encode())

    async def until(self, text: str) -> str:
        """All that comes up to this text."""
        found = await asyncio.wait_for(self._reader.readuntil(text.encode()), SECONDS)
        return found.decode()

    async def heard(self) -> str:
        """All that has come by the time that the server has read what was written."""
        name = f"heard-{next(self._ids)}"
        self.write(f"<iq type='get' id='{name}'><ping xmlns='urn:xmpp:ping'/></iq>")
        return await self.until(name)


@asynccontextmanager
async def session(
    server: PrivateServer, name: str, resource: str, password: str
) -> AsyncIterator[Session]:
    reader, writer = await asyncio.open_connection(
        LOOPBACK, server.client_port, limit=16 * 1024 * 1024
    )
    found = Session(reader, writer)
    opening = (
        f"<stream:stream xmlns='jabber:client' to='{server.users_domain}' version='1.0'"
        " xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    secret = base64.b64encode(f"\0{name}\0{password}".encode()).decode()
    found.write(opening)
    await found.until("</stream:features>")
    found.write(f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>")
    await found.until("<success")
    found.write(opening)
    await found.until("</stream:features>")
    found.write(
        "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>"
        f"<resource>{resource}</resource></bind></iq>"
    )
    await found.until("</iq>")
    try:
        yield found
    finally:
        writer.close()
        await writer.wait_closed()


async def until_gone(observer: Session, address: str) -> None:
    """Waits until a session has ended."""
    async with asyncio.timeout(SECONDS):
        while True:
            observer.write(f"<message to='{address}' id='are-you-there'><a/></message>")
            if "service-unavailable" in await observer.heard():
                return
            await asyncio.sleep(0.05)


async def test_a_message_to_oneself_reaches_one_session_and_is_not_kept(
    private_server: PrivateServer,
) -> None:
    jid = f"eve@{private_server.users_domain}"
    password = private_server.add_account(jid)
    async with (
        session(private_server, "eve", "one", password) as one,
        session(private_server, "eve", "two", password) as two,
    ):
        for each in (one, two):
            each.write("<presence/>")
            await each.heard()
        addresses = ("", f" to='{jid}'", f" to='{jid}/gone'")
        for address in addresses:
            one.write(f"<message{address} type='chat'><body>all</body></message>")
        answers = await one.heard()
        one.write(f"<message to='{jid}/two' type='chat'><body>two alone</body></message>")
        assert answers.count("service-unavailable") == len(addresses)
        assert "two alone" in await two.until("two alone")
        assert "<body>all" not in answers + await two.heard()


async def test_who_owes_much_is_refused_what_goes_to_all_of_his_sessions(
    private_server: PrivateServer,
) -> None:
    password = private_server.add_account(f"eve@{private_server.users_domain}")
    async with AsyncExitStack() as stack:
        first, *others = [
            await stack.enter_async_context(session(private_server, "eve", f"r{number}", password))
            for number in range(15)
        ]
        for each in others:
            each.write("<presence/>")
            await each.heard()
        first.write("<presence type='unavailable'/>" * MANY)
        answers = await first.heard()
        assert "asks too much at once" in answers
        told = (await others[0].heard()).count("unavailable")
        assert told < 0.8 * MANY
        # Who goes is let go.
        others[1].write("<presence type='unavailable'/>")
        assert "<error" not in await others[1].heard()


async def test_a_session_that_has_gone_is_forgotten(private_server: PrivateServer) -> None:
    jid = f"eve@{private_server.users_domain}"
    password = private_server.add_account(jid)
    async with session(private_server, "eve", "observer", password) as observer:
        async with session(private_server, "eve", "one", password) as one:
            async with session(private_server, "eve", "two", password) as two:
                one.write(f"<presence to='{jid}/two'/>")
                await two.until("<presence")
            await until_gone(observer, f"{jid}/two")
            two_again = session(private_server, "eve", "two", password)
            two = await two_again.__aenter__()
        await until_gone(observer, f"{jid}/one")
        assert "unavailable" not in await two.heard()
        await two_again.__aexit__(None, None, None)
