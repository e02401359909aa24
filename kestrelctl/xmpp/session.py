"""One connection to the XMPP server that is kept up: a worker's, a user's, or the manager's.

The only module that knows slixmpp. Incoming stanzas go to a `Listener`; outgoing ones are collected
and written once per turn of the event loop.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import random
import socket
import ssl
from typing import Any, Protocol
from xml.etree.ElementTree import Element

from slixmpp.clientxmpp import ClientXMPP
from slixmpp.componentxmpp import ComponentXMPP

from kestrelctl.core.backoff import pause_seconds
from kestrelctl.errors import UsageError
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.xmpp import stanza

log = logging.getLogger(__name__)

_JSON = f"{{{JSON_NAMESPACE}}}json"
#: A peer that neither answers nor closes is given up after this long.
_USER_TIMEOUT_MS = 20_000
_CONNECT_SECONDS = 30.0
#: Stanzas that follow a write sooner than this are written together.
COMPANY_SECONDS = 0.003


class Listener(Protocol):
    """Who hears what a session receives."""

    def on_online(self) -> None:
        """The session is up."""

    def on_offline(self, why: str) -> None:
        """The session is down; it will try again."""

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """A JSON container has arrived."""

    def on_body(self, sender: str, to: str, body: str) -> None:
        """Somebody typed something."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """A message could not be delivered to `sender`."""

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Somebody is `available` or `unavailable` (or another presence type of RFC 6121)."""


class Session:
    """A connection that reconnects by itself, with jittered pauses, until it is stopped."""

    def __init__(self, stream: Any, listener: Listener, host: str, port: int) -> None:
        self._stream = stream
        self._listener = listener
        self._host, self._port = host, port
        self._outbox: list[str] = []
        self._flushed_at = 0.0
        self._failures = 0
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._watchdog: asyncio.TimerHandle | None = None
        self.online = False
        #: Set when the server refuses the credentials: trying again would not help.
        self.refused: str | None = None
        stream.add_filter("in", self._take)
        stream.add_event_handler("session_start", self._on_start)
        stream.add_event_handler("disconnected", self._on_disconnected)
        stream.add_event_handler("connection_failed", self._on_failed)
        stream.add_event_handler("failed_all_auth", self._on_refused)
        stream.add_event_handler("stream_error", self._on_stream_error)

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to connect; `Listener.on_online` follows."""
        self._timer = None
        if self._stopping:
            return
        self._watchdog = asyncio.get_running_loop().call_later(_CONNECT_SECONDS, self._too_slow)
        self._stream.connect(self._host, self._port)

    async def stop(self) -> None:
        """Sends what is still to be sent and closes the connection."""
        self._stopping = True
        for timer in (self._timer, self._watchdog):
            if timer is not None:
                timer.cancel()
        self._flush()
        self._stream.cancel_connection_attempt()
        if self._stream.transport is not None:
            await self._stream.disconnect(wait=1.0)
        filters = getattr(self._stream, "_run_out_filters", None)
        if filters is not None:
            filters.cancel()

    # -- out ---------------------------------------------------------------------------------------

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload. While offline it is dropped: the protocol repeats what matters."""
        self._put(stanza.message(payload, to, sender))

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message for a person."""
        self._put(stanza.chat(text, to, sender))

    def send_presence(self, to: str, kind: str | None = None, sender: str | None = None) -> None:
        """Sends directed presence."""
        self._put(stanza.presence(to, kind, sender))

    def _put(self, text: str) -> None:
        if not self.online:
            return
        if not self._outbox:
            loop = asyncio.get_running_loop()
            since = loop.time() - self._flushed_at
            if since > COMPANY_SECONDS:
                loop.call_soon(self._flush)
            else:
                loop.call_later(COMPANY_SECONDS - since, self._flush)
        self._outbox.append(text)

    def _flush(self) -> None:
        self._flushed_at = asyncio.get_running_loop().time()
        if self._outbox and self.online and self._stream.transport is not None:
            self._stream.transport.write("".join(self._outbox).encode())
        self._outbox.clear()

    # -- in ----------------------------------------------------------------------------------------

    def _take(self, found: Any) -> Any:
        """Takes messages and presence out of the stream before the library looks for handlers.

        It would hold each stanza against a dozen of them, keep rosters, and answer presence.
        """
        if not found.xml.tag.endswith(("}message", "}presence")):
            return found
        self._receive(found.xml)
        return None

    def _receive(self, xml: Element) -> None:
        sender = xml.get("from", "")
        kind = xml.get("type", "")
        if xml.tag.endswith("}presence"):
            self._listener.on_presence(sender, xml.get("to", ""), kind or "available")
        elif kind == "error":
            self._listener.on_bounce(sender, _condition(xml))
        else:
            container = xml.find(_JSON)
            if container is not None:
                self._listener.on_payload(sender, xml.get("to", ""), container.text or "")
                return
            for child in xml:
                if child.tag.endswith("}body") and child.text:
                    self._listener.on_body(sender, xml.get("to", ""), child.text)

    # -- from the library --------------------------------------------------------------------------

    def _on_start(self, _event: Any) -> None:
        self._calm_watchdog()
        self._failures = 0
        self.online = True
        _detect_dead_peers(self._stream.transport)
        self._listener.on_online()

    def _on_disconnected(self, why: Any) -> None:
        self._lost(str(why or "connection closed"))

    def _on_failed(self, why: Any) -> None:
        self._stream.cancel_connection_attempt()
        self._lost(str(why))

    def _on_refused(self, _event: Any) -> None:
        self.refused = "the server refused the credentials"
        self._lost(self.refused)

    def _on_stream_error(self, error: Any) -> None:
        condition = str(error["condition"])
        if condition in ("not-authorized", "host-unknown"):
            self.refused = f"the server refused the credentials: {error['text'] or condition}"
            self._lost(self.refused)

    def _too_slow(self) -> None:
        self._watchdog = None
        self._stream.cancel_connection_attempt()
        self._stream.abort()
        self._lost(f"no session within {_CONNECT_SECONDS:g} s")

    def _calm_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None

    def _lost(self, why: str) -> None:
        self._calm_watchdog()
        was_online, self.online = self.online, False
        self._outbox.clear()
        if self._stopping or self._timer is not None:
            return
        self._failures += 1
        pause = pause_seconds(self._failures, random.random())
        self._timer = asyncio.get_running_loop().call_later(pause, self.start)
        if was_online or self._failures == 1:
            self._listener.on_offline(why)


def _condition(xml: Element) -> str:
    for child in xml:
        if child.tag.endswith("}error"):
            for condition in child:
                return condition.tag.rpartition("}")[2]
    return "undefined-condition"


def _detect_dead_peers(transport: asyncio.Transport | None) -> None:
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None:
        return
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 15),
        ("TCP_KEEPINTVL", 5),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            found.setsockopt(socket.IPPROTO_TCP, option, value)


def component(domain: str, secret: str, host: str, port: int, listener: Listener) -> Session:
    """The manager's session: an external component at the pool's domain (XEP-0114)."""
    return Session(ComponentXMPP(domain, secret, host, port), listener, host, port)


_tls: ssl.SSLContext | None = None


def _tls_context() -> ssl.SSLContext:
    """One context for all sessions of the process: making one takes longer than a login."""
    global _tls
    if _tls is None:
        _tls = ssl.create_default_context()
    return _tls


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def client(
    jid: str, password: str, host: str, port: int, listener: Listener, *, tls: bool
) -> Session:
    """A worker's or user's session.

    Args:
        jid: the account; with a resource, that one is asked for.
        tls: whether the connection must be encrypted.

    Raises:
        UsageError: without TLS the password would leave this machine in the clear.
    """
    if not tls and not _is_loopback(host):
        raise UsageError(
            f"the password would go to {host} in the clear",
            cause="TLS is off, and the server is not on this machine",
            hint="leave TLS on: remove `tls = false` or `--no-tls`",
        )
    context = _tls_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stream = ClientXMPP(jid, password, ssl_context=context, lang=None)
    stream.enable_starttls = tls
    stream.enable_direct_tls = False
    stream.enable_plaintext = not tls
    stream.plugin["feature_mechanisms"].unencrypted_plain = not tls
    if not tls:
        stream.plugin["feature_mechanisms"].use_mech = "PLAIN"
    return Session(stream, listener, host, port)
