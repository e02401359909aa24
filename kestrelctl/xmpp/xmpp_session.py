"""One connection to the XMPP server that is kept up: a worker's, a user's, or the manager's.

Incoming stanzas go to a `Listener`; outgoing ones are collected and written once per turn of the
event loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import Element

from kestrelctl.clock_and_session import Listener
from kestrelctl.core.model.names import is_loopback
from kestrelctl.core.pacing.backoff import pause_of_manager_seconds, pause_of_many_seconds
from kestrelctl.errors import KestrelError, TimedOut, Unreachable, UsageError
from kestrelctl.protocol.chat.body import typed_in
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.protocol.forms import PING, Iq, IqError
from kestrelctl.timer import Timer
from kestrelctl.xmpp import stanza
from kestrelctl.xmpp import tls as trust
from kestrelctl.xmpp.login import ComponentLogin, LoginRefused, StreamLogin, account_login
from kestrelctl.xmpp.loop_stream import XmppStream
from kestrelctl.xmpp.stream import BadStream, StreamFailed, condition_of, text_of

#: A peer that neither answers nor closes is given up after this long.
_USER_TIMEOUT_MS = 20_000


def detect_dead_peers(transport: asyncio.Transport | None) -> None:
    """Makes a connection end soon after its peer has vanished, where the system can do that."""
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


log = logging.getLogger(__name__)

_JSON = f"{{{JSON_NAMESPACE}}}json"
_PING = f"{{{PING}}}ping"
_CONNECT_SECONDS = 30.0
_NOT_NOW = "this manager does not lead now"
#: A larger stanza is not sent: the server would end the connection, which others use, too.
#: A payload that fits (`codec.fits`) is never that large.
MOST_STANZA_BYTES = 1_000_000
#: Stanzas that follow a write sooner than this are written together.
COMPANY_SECONDS = 0.003
#: After so many characters the server is asked how far it is.
ECHO_CHARACTERS = 64 * 1024
_MOST_CHARACTER_BYTES = 4  # UTF-8
#: The longest id of an IQ that is answered: the answer repeats it.
_MOST_ID_CHARACTERS = 200
_LOGINS = "known are SCRAM-SHA-256, SCRAM-SHA-1 and PLAIN; without TLS, PLAIN alone"
_IF_TOO_LARGE = "if that was too large, raise the server's limit for a stanza to 1 MiB"
#: The most that is told of the server's words when it ends a stream.
_MOST_TEXT_CHARACTERS = 200


class IqRefused(KestrelError):
    """An IQ was answered by an error (RFC 6120, 8.3).

    Attributes:
        condition: which error.
        text: for people; may be empty.
        answer: the whole answer.
    """

    def __init__(self, condition: str, text: str = "", answer: Element | None = None) -> None:
        super().__init__("the server refused a request", cause=condition)
        self.condition = condition
        self.text = text
        self.answer = answer


class XmppSession:
    """A connection that reconnects by itself, with jittered pauses, until it is stopped.

    Args:
        login: opens a stream with the server.
        ca_file: whom `login` trusts, for words about a server that it does not trust.
        pause_seconds: the pause before the next try to connect, by failures in a row and by chance.
    """

    def __init__(
        self,
        login: StreamLogin,
        listener: Listener,
        host: str,
        port: int,
        *,
        ca_file: Path | None,
        pause_seconds: Callable[[int, float], float] = pause_of_many_seconds,
    ) -> None:
        self._login = login
        self._stream: XmppStream | None = None
        self._opening: asyncio.Task[None] | None = None
        self._pause_seconds = pause_seconds
        self._listener = listener
        self._host, self._port = host, port
        self._ca_file = ca_file
        self._outbox: list[str] = []
        self._outbox_characters = 0
        self._echo_address = ""
        #: Characters since the start: written, up to the last mark, up to the last that came back.
        self._written = self._marked = self._echoed = 0
        #: Calls to make once the server has dealt with so many characters.
        self._untaken: list[tuple[int, Callable[[], None]]] = []
        self._iq_ids = itertools.count(1)
        self._iqs: dict[str, tuple[str, asyncio.Future[Element]]] = {}
        self._flushed_at = 0.0
        self._failures = 0
        self._stopping = False
        self._timer = Timer(self.start)
        self.online = False
        #: The address that the server knows it by, while it is online.
        self.address = ""
        #: Takes what somebody asks by IQ, to answer it later by `answer`; False if it does not.
        self.serve_iq: Callable[[Iq], bool] = lambda iq: False
        #: Whether it may connect, and send. It looks before each write, so that a process that was
        #: frozen says nothing when it goes on.
        self.may_speak: Callable[[], bool] = lambda: True
        #: Called when the server says that somebody else is connected with this address.
        self.on_conflict: Callable[[], None] = lambda: None
        #: Set when the server refuses the credentials: trying again would not help.
        self.refused: str | None = None
        #: Set while trying again cannot help until somebody mends something; it goes on trying.
        self.problem: KestrelError | None = None
        #: The state of the connection, in words.
        self.link = "connecting"

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to connect; `Listener.on_online` follows."""
        self._timer.stop()
        if not self._stopping:
            self._opening = asyncio.get_running_loop().create_task(self._open())

    async def _open(self) -> None:
        """Opens a stream, or plans the next try."""
        if not self.may_speak():
            self._lost(_NOT_NOW)
            return
        stream = self._stream = XmppStream(self)
        why: object
        try:
            async with asyncio.timeout(_CONNECT_SECONDS) as limit:
                self.address = await self._login.open(stream, self._host, self._port)
            self._on_start(stream)
            stream.listen()
            return
        except TimeoutError as error:  # a system that gives up raises it as well
            why = f"no session within {_CONNECT_SECONDS:g} s" if limit.expired() else error
        except LoginRefused as refusal:
            why = self._refusal(refusal)
        except StreamFailed as failure:
            why = self._failure(failure)
        except (KestrelError, OSError, UnicodeError) as error:  # a name that is none for DNS
            why = error
        except Exception as error:
            log.exception("the connection to the server")
            why = error
        stream.abort()
        self._lost(why)

    async def stop(self) -> None:
        """Sends what is still to be sent and closes the connection."""
        self._stopping = True
        self._timer.stop()
        self._flush()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
            await asyncio.wait((self._opening,))
            if self._stream is not None:
                self._stream.abort()
        if self._stream is not None:
            await self._stream.close()
        self._lost("it was stopped")

    def certificate(self) -> tuple[str, float] | None:
        """The server's host and the end of its certificate, seconds since the epoch.

        None if the connection is down, has no TLS, or the certificate was not checked.
        """
        transport = self._stream.transport if self._stream is not None else None
        found = transport.get_extra_info("peercert") if transport is not None else None
        if not found:
            return None
        return self._host, float(ssl.cert_time_to_seconds(found["notAfter"]))

    # -- out ---------------------------------------------------------------------------------------

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload. While offline it is dropped: the protocol repeats what matters."""
        self._put(stanza.message(payload, to, sender))

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message for a person."""
        self._put(stanza.chat(text, to, sender))

    def when_taken(self, done: Callable[[], None]) -> None:
        """Calls `done` when the server has dealt with all that was sent so far.

        It never does so if the connection is lost before. Only for a session with echoes.
        """
        if self.online:
            sent = self._written + self._outbox_characters
            self._untaken.append((sent, done))
            self._put(stanza.mark(str(sent), self._echo_address))

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        """Sends directed presence."""
        self._put(stanza.presence(to, kind, sender, show, status))

    def answer(self, iq: Iq, payload: str | IqError) -> None:
        """Answers what `serve_iq` has taken (see `stanza.answer`)."""
        self._put(stanza.answer(iq, payload))

    async def ask_iq(
        self,
        payload: str,
        to: str,
        sender: str | None = None,
        *,
        kind: str = "set",
        timeout_seconds: float = 10.0,
    ) -> Element:
        """Sends an IQ and returns its answer (RFC 6120, 8.2.3).

        It is for the few questions to the server itself; messages are cheaper.

        Args:
            payload: the XML element that it carries.
            kind: `get` or `set`.

        Raises:
            IqRefused: the answer is an error.
            Unreachable: there is no session, or it ended meanwhile.
            TimedOut: no answer in time.
        """
        if not self.online:
            raise Unreachable("there is no session with the server")
        iq_id = f"k{next(self._iq_ids)}"
        future: asyncio.Future[Element] = asyncio.get_running_loop().create_future()
        self._iqs[iq_id] = (to, future)
        self._put(stanza.iq(payload, to, iq_id, sender, kind))
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = await future
        except TimeoutError:
            raise TimedOut(f"{to} did not answer within {timeout_seconds:g} s") from None
        finally:
            del self._iqs[iq_id]
        if answer.get("type") == "error":
            raise IqRefused(*_error(answer), answer)
        return answer

    def backlog_bytes(self) -> int:
        """Estimates the bytes that were sent and that the server has yet to deal with.

        Without echoes, only those count that are not written yet: the kernels' buffers hold
        megabytes more, which nobody can look into.
        """
        if self._echo_address:
            return self._outbox_characters + self._written - self._echoed
        transport = self._stream.transport if self._stream is not None else None
        written = transport.get_write_buffer_size() if transport is not None else 0
        return written + self._outbox_characters

    def use_echoes(self, address: str) -> None:
        """Learns from messages to oneself how far the server is: it deals with one after another.

        Args:
            address: that of this session; what is sent there comes back.
        """
        self._echo_address = address

    def _add_echo(self) -> None:
        """Adds a message that comes back when the server has dealt with all before it."""
        self._outbox.append(stanza.mark(str(self._written), self._echo_address))
        self._marked = self._written

    def _is_echo(self, xml: Element) -> bool:
        if not self._echo_address or xml.get("from") != self._echo_address:
            return False
        mark = xml.get("id", "")
        if mark.isdecimal():
            self._echoed = max(self._echoed, min(int(mark), self._written))
            taken = [done for at, done in self._untaken if at <= self._echoed]
            self._untaken = [each for each in self._untaken if each[0] > self._echoed]
            for done in taken:
                done()
        return True

    def _put(self, text: str) -> None:
        if not self.online:
            return
        if len(text) * _MOST_CHARACTER_BYTES > MOST_STANZA_BYTES:
            size = len(text.encode())
            if size > MOST_STANZA_BYTES:
                log.error("a stanza of %d bytes is not sent: %s…", size, text[:100])
                return
        if not self._outbox:
            loop = asyncio.get_running_loop()
            since = loop.time() - self._flushed_at
            if since > COMPANY_SECONDS:
                loop.call_soon(self._flush)
            else:
                loop.call_later(COMPANY_SECONDS - since, self._flush)
        self._outbox.append(text)
        self._outbox_characters += len(text)

    def _flush(self) -> None:
        self._flushed_at = asyncio.get_running_loop().time()
        if self._outbox and not self.may_speak():
            self.fall_silent()
        if self._outbox and self.online:
            self._written += self._outbox_characters
            if self._echo_address and self._written - self._marked >= ECHO_CHARACTERS:
                self._add_echo()
        text = "".join(self._outbox)
        self._outbox.clear()  # first: what cannot be written keeps nothing back that follows
        self._outbox_characters = 0
        if text and self.online and self._stream is not None:
            self._stream.write(text)

    def fall_silent(self) -> None:
        """Ends the connection without what was still to be said, until it may speak again."""
        if self.online and self._stream is not None:
            self._stream.abort()
            self._lost(_NOT_NOW)

    # -- in ----------------------------------------------------------------------------------------

    def on_json(self, stanza: dict[str, str], text: str) -> None:
        """Takes a message with a JSON container."""
        self._listener.on_payload(stanza.get("from", ""), stanza.get("to", ""), text)

    def on_stanza(self, stanza: Element) -> None:
        """Takes any other stanza."""
        if stanza.tag.endswith("}iq"):
            if not self._is_answer(stanza):
                self._take_iq(stanza)
        elif stanza.tag.endswith(("}message", "}presence")) and not self._is_echo(stanza):
            self._receive(stanza)

    def on_closed(self, why: object) -> None:
        """Handles the end of the stream."""
        self._lost(self._failure(why) if isinstance(why, StreamFailed) else why)

    def _is_answer(self, xml: Element) -> bool:
        """Takes an answer to `ask_iq` from the address that was asked; tells whether it is one."""
        to, future = self._iqs.get(xml.get("id", ""), ("", None))
        if future is None or xml.get("from") != to or xml.get("type") not in ("result", "error"):
            return False
        if not future.done():
            future.set_result(xml)
        return True

    def _take_iq(self, xml: Element) -> None:
        """Hands on what somebody asks by IQ, or answers it (RFC 6120, 8.4).

        A server that is told that a client answers no pings (XEP-0199) may ask it no more, and
        keep its session for long after the client has vanished.
        """
        id_, kind = xml.get("id", ""), xml.get("type", "")
        if kind in ("get", "set") and len(id_) <= _MOST_ID_CHARACTERS:
            payload = xml[0] if len(xml) else Element("nothing")
            iq = Iq(xml.get("from", ""), xml.get("to", ""), kind, id_, payload)
            if not self.serve_iq(iq):
                lives = payload.tag == _PING and iq.sender == self._login.domain
                self.answer(iq, "" if lives else IqError("cancel", "service-unavailable"))

    def _receive(self, xml: Element) -> None:
        sender = xml.get("from", "")
        kind = xml.get("type", "")
        if xml.tag.endswith("}presence"):
            self._listener.on_presence(sender, xml.get("to", ""), kind or "available")
        elif kind == "error":
            self._listener.on_bounce(sender, _error(xml)[0])
        else:
            container = xml.find(_JSON)
            if container is not None:
                self._listener.on_payload(sender, xml.get("to", ""), container.text or "")
                return
            typed = typed_in(xml)
            if typed is not None:
                self._listener.on_body(sender, xml.get("to", ""), *typed)

    # -- life of a stream --------------------------------------------------------------------------

    def _on_start(self, stream: XmppStream) -> None:
        self._failures = 0
        self.problem = self.refused = None
        self.online = True
        self.link = "connected"
        detect_dead_peers(stream.transport)
        self._listener.on_online()

    def _refusal(self, refusal: LoginRefused) -> str | KestrelError:
        """Explains why the server does not let the account in, and notes refused credentials."""
        condition, text = refusal.condition, refusal.text[:_MOST_TEXT_CHARACTERS]
        if condition == "temporary-auth-failure":  # RFC 6120, 6.5.10: it may work later
            return "the server cannot check credentials now"
        if condition == "invalid-mechanism":  # 6.5.7: it has not looked at them
            return KestrelError(
                "the server has no login that is known here", cause=text or None, hint=_LOGINS
            )
        if refusal.is_of_credentials:
            self.refused = "the server refused the credentials"
        elif condition == "not-authorized":
            # Prosody answers so for an account that was deleted after it was authenticated.
            self.refused = f"the server refused the credentials: {text or condition}"
        return self.refused or f"it refused a session with <{condition}/>"

    def _failure(self, failure: StreamFailed) -> str | KestrelError:
        """Explains why the server ended the stream (RFC 6120, 4.9); notes refused credentials.

        All else may pass by. That goes for <host-unknown/> as well: a server says it that has just
        started, or was told to read its configuration again, and has not come to this host yet.
        """
        condition, text = failure.condition, failure.text[:_MOST_TEXT_CHARACTERS]
        if isinstance(failure, BadStream):
            return f"the server does not speak XMPP: {text}"
        if condition == "not-authorized":
            self.refused = f"the server refused the credentials: {text or condition}"
            return self.refused
        if condition == "conflict":
            self.on_conflict()
        words = f"it ended the connection with <{condition}/>" + (f" ({text})" if text else "")
        if condition == "policy-violation" and self.online:
            # The same again would end the next connection, too.
            return KestrelError(
                "the server does not take what it was sent", cause=words, hint=_IF_TOO_LARGE
            )
        return words

    def _lost(self, why: object) -> None:
        """Handles a connection that is gone, or was not made.

        Args:
            why: an exception, or words.
        """
        was_online, self.online = self.online, False
        self._outbox.clear()
        self._outbox_characters = 0
        self._marked = self._echoed = self._written  # what was under way is lost
        self._untaken.clear()
        for _, future in self._iqs.values():
            if not future.done():
                future.set_exception(Unreachable("the connection to the server was lost"))
        if self._stopping or self._timer.is_set:
            return
        self._failures += 1
        known = str(self.problem)
        self.problem = (
            why
            if isinstance(why, KestrelError)
            else trust.explain(why, self._login.domain, self._ca_file)
        )
        words = _in_words(self.problem or why)
        self.link = f"the server is away: {words}"
        pause = self._pause_seconds(self._failures, random.random())
        self._timer.set(pause)
        news = self.refused or str(self.problem) not in (known, "None")
        if was_online or self._failures == 1 or news:
            self._listener.on_offline(words)


def _in_words(why: object) -> str:
    """One line about a failure."""
    if not isinstance(why, KestrelError):
        return str(why)
    cause = f" ({why.cause})" if why.cause else ""
    return f"{why}{cause}" + (f"; {why.hint}" if why.hint else "")


def _error(xml: Element) -> tuple[str, str]:
    """The condition of a stanza that is an error, and what it says in words."""
    found = next((child for child in xml if child.tag.endswith("}error")), None)
    return ("undefined-condition", "") if found is None else (condition_of(found), text_of(found))


def check_component(host: str, *, tls: bool, ca_file: Path | None = None) -> None:
    """Passes if a component could connect this way, provided that its server lets it.

    Args:
        tls, ca_file: see `component`.

    Raises:
        UsageError: without TLS the secret would leave this machine in the clear; or the
            certificates of the authorities cannot be used.
    """
    if tls:
        trust.context(ca_file)
    elif not is_loopback(host):
        raise UsageError(
            f"the secret would go to {host} in the clear",
            cause="TLS is off, and the server is not on this machine",
            hint="--tls, with the server's port for components over TLS",
        )


def component(
    domain: str,
    secret: str,
    host: str,
    port: int,
    listener: Listener,
    *,
    tls: bool,
    ca_file: Path | None = None,
) -> XmppSession:
    """The manager's session: an external component at the pool's domain (XEP-0114).

    Args:
        tls: whether to connect over TLS, to a port for that; the protocol has no STARTTLS.
        ca_file: whom to trust; see `tls.context`.

    Raises:
        UsageError: see `check_component`.
    """
    check_component(host, tls=tls, ca_file=ca_file)
    context = trust.context(ca_file) if tls else None
    session = XmppSession(
        ComponentLogin(domain, secret, context),
        listener,
        host,
        port,
        ca_file=ca_file,
        pause_seconds=pause_of_manager_seconds,
    )
    session.use_echoes(domain)
    return session


def client(
    jid: str,
    password: str,
    host: str,
    port: int,
    listener: Listener,
    *,
    tls: bool,
    ca_file: Path | None = None,
) -> XmppSession:
    """A worker's or user's session; for its arguments and errors see `account_login`."""
    login = account_login(jid, password, host, tls=tls, ca_file=ca_file)
    return XmppSession(login, listener, host, port, ca_file=ca_file)
