"""What a stranger sends before he has logged in: it ends his connection and nothing else."""

from __future__ import annotations

import asyncio
import contextlib

import psutil
import pytest
from test_guesses import log_in

from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer

OPEN = "<stream:stream xmlns='jabber:client' to='{host}' version='1.0' xmlns:stream='http://etherx.jabber.org/streams'>"
ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "x" * 100}">' for n in range(10))
#: One of these in each of so many connections at once.
CONNECTIONS = 50
#: Before login the server takes 10,000 bytes at most; as elements they take that much memory.
MOST_SERVER_GROWTH_BYTES = (16 << 20) + CONNECTIONS * (2 << 20)
MANY_BYTES = 2_000_000

OPENINGS = {
    "entities that grow": f"<!DOCTYPE x [{ENTITIES}]><x>&e9;</x>",
    "an entity that names a file": '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><x>&e;</x>',
    "entities in a stream": OPEN + "&lol;",
    "a tag without an end": "<stream:stream " + "a" * MANY_BYTES,
    "attributes without an end": "<x " + "".join(f"a{n}='' " for n in range(MANY_BYTES // 10)),
    "elements in elements": OPEN + "<a>" * (MANY_BYTES // 3),
    "a large stanza": OPEN + "<auth>" + "A" * MANY_BYTES,
    "a comment": OPEN + "<!--" + "-" * MANY_BYTES,
    "no XML": "GET / HTTP/1.1\r\nHost: pool\r\n\r\n" * 1000,
    "nulls": "\0" * MANY_BYTES,
}


async def ends(server: PrivateServer, opening: str) -> bool:
    """Whether the server ends a connection that begins like this, soon."""
    reader, writer = await asyncio.open_connection(LOOPBACK, server.client_port)
    try:
        async with asyncio.timeout(15):
            try:
                writer.write(opening.encode())
                await writer.drain()
                while await reader.read(65536):
                    pass
            except ConnectionError:
                pass
            return True
    except TimeoutError:
        return False
    finally:
        writer.transport.abort()


def process_of(server: PrivateServer) -> psutil.Process:
    """The server's process, one of all those that earlier tests may have left."""
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if str(server.directory) in " ".join(child.cmdline()):
                return child
    raise LookupError(server.directory)


@pytest.mark.parametrize("name", OPENINGS)
async def test_an_opening_that_is_none_ends_its_connection_and_nothing_else(
    private_server: PrivateServer, name: str
) -> None:
    jid = f"ada@{private_server.users_domain}"
    password = private_server.add_account(jid)
    server = process_of(private_server)
    before = server.memory_info().rss
    opening = OPENINGS[name].replace("{host}", private_server.users_domain)
    strangers = asyncio.gather(*(ends(private_server, opening) for _ in range(CONNECTIONS)))
    async with asyncio.timeout(20):
        while not strangers.done():
            assert await log_in(private_server, jid, password) == "success"
            await asyncio.sleep(0.05)
    assert all(await strangers)
    assert server.memory_info().rss - before < MOST_SERVER_GROWTH_BYTES
