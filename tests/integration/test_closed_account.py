"""An account that is deleted at a real server while its owner is on the way in."""

from __future__ import annotations

import asyncio
import base64

import pytest

from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer

SECONDS = 20.0
BIND = "<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"


class Login:
    """A client that has given its password, and has no session yet."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def say(self, stanza: str, until: str) -> str:
        self._writer.write(stanza.encode())
        said = await asyncio.wait_for(self._reader.readuntil(until.encode()), SECONDS)
        return said.decode()

    def close(self) -> None:
        self._writer.transport.abort()


async def log_in(server: PrivateServer, jid: str, password: str) -> Login:
    name, _, host = jid.partition("@")
    login = Login(*await asyncio.open_connection(LOOPBACK, server.client_port))
    opening = (
        f"<stream:stream xmlns='jabber:client' to='{host}' version='1.0'"
        " xmlns:stream='http://etherx.jabber.org/streams'>"
    )
    secret = base64.b64encode(f"\0{name}\0{password}".encode()).decode()
    await login.say(opening, "</stream:features>")
    await login.say(
        f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{secret}</auth>",
        "<success",
    )
    await login.say(opening, "</stream:features>")
    return login


@pytest.mark.parametrize("host", ["users_domain", "workers_domain"])
async def test_who_logged_in_before_the_account_was_deleted_gets_no_session(
    private_server: PrivateServer, host: str
) -> None:
    domain = getattr(private_server, host)
    leaver, stayer = f"leaver@{domain}", f"stayer@{domain}"
    logins = {}
    for jid in (leaver, stayer):
        password = private_server.add_account(jid)
        logins[jid] = await log_in(private_server, jid, password)
    [file] = private_server.directory.rglob("leaver.dat")
    file.unlink()
    refused = await logins[leaver].say(BIND, "</iq>")
    assert "not-authorized" in refused
    assert "Account deleted" in refused
    assert f"{stayer}/" in await logins[stayer].say(BIND, "</iq>")
    for login in logins.values():
        login.close()
