"""A client on the way in: it has given its password, and has no session yet."""

from __future__ import annotations

import asyncio
import base64

SECONDS = 60.0
BIND = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"


class Refused(Exception):
    """The server takes no such name with such a password."""


class HalfLogin:
    """A client that has given its password, and has no session yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, stanza: str, until: str) -> str:
        """Sends something; returns what comes until a text, with this text."""
        self._writer.write(stanza.encode())
        said = await asyncio.wait_for(self._reader.readuntil(until.encode()), SECONDS)
        return said.decode()

    def close(self) -> None:
        self._writer.transport.abort()


async def log_in_by_half(port: int, jid: str, password: str) -> HalfLogin:
    """Logs in at a server on loopback, without TLS, and begins no session.

    Raises:
        Refused: the password, or the name, is none of the server's.
    """
    name, _, host = jid.partition("@")
    login = HalfLogin(*await asyncio.open_connection("127.0.0.1", port))
    opening = (
        f"<stream:stream xmlns='jabber:client' to='{host}' version='1.0'"
        " xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    secret = base64.b64encode(f"\0{name}\0{password}".encode()).decode()
    await login.say(opening, "</stream:features>")
    answer = await login.say(
        f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>",
        "xmpp-sasl",
    )
    if "<failure" in answer:
        login.close()
        raise Refused(answer)
    await login.say(opening, "</stream:features>")
    return login
