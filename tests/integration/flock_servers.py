"""Servers of pools that open streams to each other, and somebody who speaks as a pool's manager."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from xml.etree.ElementTree import Element, XMLPullParser

from servers import Authority, running

from kestrelctl.local.flock_addresses import write_address
from kestrelctl.xmpp.federation import Federation, FlockMembership
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer, free_ports

SECONDS = 20.0
#: A module of a server that says what its manager wants, as whoever that names, to anybody.
_FORGER = """\
module:set_global();
function module.add_host(module)
    module:hook("route/remote", function (event)
        local forged = event.stanza:get_child("forged");
        local stream = prosody.hosts[module.host].s2sout[event.to_host];
        if not forged or not stream then return; end
        event.stanza.attr.from = forged.attr.from or event.stanza.attr.from;
        event.stanza.attr.to = forged.attr.to or event.stanza.attr.to;
        stream.sends2s(event.stanza);
        return true;
    end, 2000);
end
"""


class Component:
    """A pool's manager, word by word (XEP-0114)."""

    def __init__(self, server: PrivateServer) -> None:
        self._server = server
        self._parser = XMLPullParser(("start", "end"))
        self._depth = 0
        self._stream_id = ""
        self._heard: asyncio.Queue[Element] = asyncio.Queue()

    async def log_in(self) -> None:
        """Returns when the server takes what it says."""
        self._reader, self._writer = await asyncio.open_connection(
            LOOPBACK, self._server.component_port
        )
        self.say(
            "<stream:stream xmlns='jabber:component:accept' "
            f"xmlns:stream='http://etherx.jabber.org/streams' to='{self._server.domain}'>"
        )
        self._listening = asyncio.create_task(self._listen())
        async with asyncio.timeout(SECONDS):
            while not self._stream_id:
                await asyncio.sleep(0.01)
            proof = hashlib.sha1((self._stream_id + self._server.secret).encode()).hexdigest()
            self.say(f"<handshake>{proof}</handshake>")
            assert (await self._heard.get()).tag.endswith("handshake")

    async def log_out(self) -> None:
        self._listening.cancel()
        self._writer.close()

    def say(self, text: str) -> None:
        self._writer.write(text.encode())

    def message(self, to: str, body: str, sender: str = "", more: str = "") -> None:
        """Says something, as `flock@` of its domain unless a sender is named."""
        sender = sender or f"flock@{self._server.domain}"
        self.say(f"<message from='{sender}' to='{to}'><body>{body}</body>{more}</message>")

    async def repeat(self, to: str, body: str) -> None:
        """Says it again and again."""
        while True:
            self.message(to, body)
            await asyncio.sleep(0.5)

    async def hear(self, seconds: float = SECONDS) -> Element:
        """The next stanza."""
        async with asyncio.timeout(seconds):
            return await self._heard.get()

    async def hear_nothing_but(self, body: str) -> None:
        """Passes if the next that it hears is that message."""
        assert (await self.hear()).findtext("{*}body") == body

    async def drain(self) -> None:
        await self._writer.drain()

    async def _listen(self) -> None:
        while data := await self._reader.read(65536):
            self._parser.feed(data)
            for event, element in self._parser.read_events():
                self._depth += 1 if event == "start" else -1
                if event == "start" and self._depth == 1:
                    self._stream_id = element.get("id", "")
                if event == "end" and self._depth == 1:
                    self._heard.put_nowait(element)


class Servers:
    """Servers of pools, of which each knows where the others are.

    Args:
        directory: for all that they keep.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory / "authority")
        self.addresses = directory / "addresses"
        (directory / "mod_forger.lua").write_text(_FORGER)

    def federation(
        self,
        domain: str,
        *,
        authority: Authority | None = None,
        names: tuple[str, ...] = (),
        expired: bool = False,
        pins: dict[str, str] | None = None,
        users: tuple[str, ...] = (),
        in_flock: bool = True,
    ) -> Federation:
        """How the server of a domain talks to others; it has a certificate after this.

        Args:
            authority: that signs it; the flock's if none is named.
            names: for which it is; the domain's if none is named.
            expired: its certificate was valid until yesterday.
            pins: what it believes of others.
            users: domains of users elsewhere.
        """
        directory = self.directory / domain
        directory.mkdir(exist_ok=True)
        (authority or self.authority).issue(directory, *(names or (domain,)), expired=expired)
        return Federation(
            domains=users,
            certificate=str(directory / "server.crt"),
            key=str(directory / "server.key"),
            interfaces=(LOOPBACK,),
            port=free_ports(1)[0],
            flock=FlockMembership(
                authorities=str(self.authority.file),
                pins=pins or {},
                address_directories=(str(self.addresses),),
                through=domain,
            )
            if in_flock
            else None,
        )

    @asynccontextmanager
    async def pool(
        self,
        domain: str,
        federation: Federation,
        *,
        name: str = "",
        forges: bool = False,
        options: str = "",
    ) -> AsyncIterator[tuple[PrivateServer, Component]]:
        """A running server, and its manager.

        Args:
            name: what tells it from another server of that domain.
            forges: whether it also says what no honest server would.
            options: more of its configuration.
        """
        server = PrivateServer.create(
            self.directory / (name or domain) / "server", domain, federation=federation
        )
        file = server.directory / "prosody.cfg.lua"
        text = file.read_text()
        if forges:
            text = text.replace("plugin_paths = {", f'plugin_paths = {{ "{self.directory}",')
            text = text.replace('"kestrel_streams"', '"kestrel_streams", "forger"')
        file.write_text(text.replace("VirtualHost", f"{options}\nVirtualHost", 1))
        write_address(self.addresses, domain, f"{LOOPBACK}:{federation.port}")
        async with running(server):
            manager = Component(server)
            await manager.log_in()
            try:
                yield server, manager
            finally:
                await manager.log_out()


def pin_of(directory: Path, domain: str) -> str:
    """SHA-256 of the certificate of a domain, in hex."""
    pem = (directory / domain / "server.crt").read_text()
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


async def until_said(server: PrivateServer, words: str) -> None:
    """Waits until the server's log has these words."""
    async with asyncio.timeout(SECONDS):
        while words not in server.log_file.read_text():
            await asyncio.sleep(0.05)
