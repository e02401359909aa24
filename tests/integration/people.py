"""A person at a real server, with slixmpp as it comes: what any chat client sees."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from slixmpp.clientxmpp import ClientXMPP
from slixmpp.exceptions import IqError

from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp.prosody import PrivateServer

SECONDS = 20.0


class Person:
    """A session with presence and a roster.

    Attributes:
        seen: the latest presence of each contact: (kind, show, status).
        errors: how many presences were errors.
    """

    def __init__(self, state: PoolState, name: str, password: str = "") -> None:
        directory = Path(state.password_file).parent
        server = PrivateServer(directory / "server", state.domain, state.port, 0, "")
        jid = f"{name}@users.{state.domain}"
        self._address = (state.host, state.port)
        self.pool = state.domain
        password = password or server.add_account(jid)
        self.client = ClientXMPP(jid, password, ssl_context=ssl.create_default_context())
        self.client.enable_starttls = self.client.enable_direct_tls = False
        self.client.enable_plaintext = True
        self.client.plugin["feature_mechanisms"].unencrypted_plain = True
        for plugin in ("xep_0004", "xep_0030", "xep_0050", "xep_0054", "xep_0059", "xep_0199"):
            self.client.register_plugin(plugin)
        self.seen: dict[str, tuple[str, str, str]] = {}
        #: Each presence that came, with who it is of.
        self.came: list[tuple[str, tuple[str, str, str]]] = []
        self.errors = 0
        self.chat: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._ready = asyncio.Event()
        self.client.add_filter("in", self._look)
        self.client.add_event_handler("session_start", self._start)
        self.client.add_event_handler("message", self._hear)

    async def __aenter__(self) -> Person:
        self.client.connect(*self._address)
        await asyncio.wait_for(self._ready.wait(), SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        # The server must know: what is said later would go to a session that nobody reads.
        await self.client.disconnect(wait=SECONDS)
        self.client._run_out_filters.cancel()

    async def _start(self, _event: Any) -> None:
        await self.client.get_roster()
        self.client.send_presence()
        self._ready.set()

    def _look(self, stanza: Any) -> Any:
        xml: Element = stanza.xml
        if xml.tag == "{jabber:client}presence":
            name = xml.get("from", "").partition("/")[0]
            words = (
                xml.get("type", "available"),
                xml.findtext("{jabber:client}show") or "",
                xml.findtext("{jabber:client}status") or "",
            )
            self.errors += words[0] == "error"
            self.seen[name] = words
            self.came.append((name, words))
            self._changed.set()
        return stanza

    def _hear(self, message: Any) -> None:
        self.chat.put_nowait((str(message["from"]), message["body"]))

    async def sees(self, who: str, what: Callable[[str, str, str], bool]) -> tuple[str, str, str]:
        """Waits until somebody's presence is so."""
        address = f"{who}@{self.pool}" if who else self.pool
        async with asyncio.timeout(SECONDS):
            while address not in self.seen or not what(*self.seen[address]):
                self._changed.clear()
                await self._changed.wait()
        return self.seen[address]

    async def saw(self, who: str, what: Callable[[str, str, str], bool], since: int) -> None:
        """Waits until somebody's presence was so, if only for a moment.

        Args:
            since: how many presences had come before.
        """
        address = f"{who}@{self.pool}" if who else self.pool
        async with asyncio.timeout(SECONDS):
            while not any(name == address and what(*words) for name, words in self.came[since:]):
                self._changed.clear()
                await self._changed.wait()

    def subscribe(self, who: str) -> None:
        self.client.send_presence(pto=f"{who}@{self.pool}" if who else self.pool, ptype="subscribe")

    async def run(self, who: str, node: str, **values: Any) -> Any:
        """Runs a command from the menu, and fills in its form if there are values."""
        address = f"{who}@{self.pool}"
        adhoc = self.client.plugin["xep_0050"]
        found = await adhoc.send_command(address, node)
        if not values:
            return found["command"]
        form = self.client.plugin["xep_0004"].make_form(ftype="submit")
        for name, value in values.items():
            form.add_field(var=name, value=value)
        session = found["command"]["sessionid"]
        answer = await adhoc.send_command(
            address, node, action="complete", payload=form.xml, sessionid=session
        )
        return answer["command"]


def fields(command: Any) -> dict[str, Any]:
    """What the form in an answer to a command tells."""
    return {name: field["value"] for name, field in command["form"].get_fields().items()}


def condition(error: IqError) -> str:
    return str(error.iq["error"]["condition"])


#: A module of Prosody that knows where servers are: there is no DNS here.
_NAMES = """\
module:set_global();
local service = require "net.resolvers.service";
local manual = require "net.resolvers.manual";
local known = {{ {known} }};
local ask = service.new;
service.new = function (name, kind, conn_type, extra)
    local where = known[name];
    if not where then return ask(name, kind, conn_type, extra); end
    if kind ~= "xmpp-server" then return manual.new({{}}, conn_type, extra); end
    return manual.new({{ {{ conn_type, where[1], where[2] }} }}, conn_type, extra);
end
"""


def write_names(directory: Path, places: dict[str, tuple[str, int]]) -> None:
    """Writes a module `names` for servers: at which address and port each name is."""
    known = "; ".join(f'["{name}"] = {{ "{ip}", {port} }}' for name, (ip, port) in places.items())
    (directory / "mod_names.lua").write_text(_NAMES.format(known=known))
