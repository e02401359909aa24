"""A stream of stanzas to and from an XMPP server (RFC 6120; XEP-0114 for components).

It can do what Kestrel needs: one address and port, encryption before anything is said or none, the
mechanisms of `sasl`, and a resource. The stanza that carries work, a message with a JSON container
(XEP-0335), is read without making a tree of elements.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from base64 import b64decode, b64encode
from typing import Protocol
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from kestrelctl.errors import Untrusted, UsageError
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.protocol.forms import as_text, attribute, element
from kestrelctl.xmpp import sasl

CLIENT = "jabber:client"
COMPONENT = "jabber:component:accept"
_STREAM = "http://etherx.jabber.org/streams"
_STREAM_ERRORS = "urn:ietf:params:xml:ns:xmpp-streams"
_TLS = "urn:ietf:params:xml:ns:xmpp-tls"
_SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
_SASL_ANSWERS = ("challenge", "success", "failure")
_BIND = "urn:ietf:params:xml:ns:xmpp-bind"
_JSON = f"{{{JSON_NAMESPACE}}}json"
_MESSAGE = f"{{{CLIENT}}}message"
_HEADER, _FEATURES = f"{{{_STREAM}}}stream", f"{{{_STREAM}}}features"
_ROOT, _STANZA, _CHILD = 1, 2, 3  # depths
_CLOSE_SECONDS = 1.0
_MOST_NAME = 100  # characters of a name that are told
#: More of a tag is not waited for, but left to the parser.
_MOST_TAG_BYTES = 64 * 1024
#: A server that says more in one stanza, or before it lets an account in, is not listened to any
#: longer. Our servers take stanzas of 1 MiB, of which each quote may become six bytes.
MOST_UNREAD_BYTES = 8 * 1024 * 1024


class StreamFailed(Exception):
    """The server has ended the stream and says why (RFC 6120, 4.9).

    Attributes:
        condition: which kind of error.
        text: for people; may be empty.
    """

    def __init__(self, condition: str, text: str = "") -> None:
        super().__init__(condition)
        self.condition = condition
        self.text = text


class BadStream(StreamFailed):
    """The server says what no server may say. The stream was ended for that, on our side."""


class LoginRefused(Exception):
    """The server does not let an account in (RFC 6120, 6.5), or binds no resource to it (7.6.2).

    Attributes:
        condition, text: as in `StreamFailed`.
        is_bind: whether the account was let in before.
    """

    def __init__(self, condition: str, text: str = "", *, is_bind: bool = False) -> None:
        super().__init__(condition)
        self.condition = condition
        self.text = text
        self.is_bind = is_bind


def condition_of(error: Element) -> str:
    """The condition of a stanza's or a stream's error."""
    for child in error:
        name = child.tag.rpartition("}")[2]
        if name != "text":
            return name
    return "undefined-condition"


def text_of(error: Element) -> str:
    """The words of an error; empty if it has none."""
    found = next((child.text for child in error if child.tag.endswith("}text")), None)
    return found or ""


class StreamListener(Protocol):
    """Hears what a stream brings once it is open."""

    def on_json(self, stanza: dict[str, str], text: str) -> None:
        """A message with a JSON container has come; `stanza` has its attributes."""

    def on_stanza(self, stanza: Element) -> None:
        """Any other stanza has come; its namespace is that of clients, whatever the stream is."""

    def on_closed(self, why: object) -> None:
        """The stream has ended; `why` is an exception, or words."""


class XmppStream(asyncio.Protocol):
    """One connection.

    Args:
        listener: is told what comes, from `listen` on.
    """

    def __init__(self, listener: StreamListener) -> None:
        self._listener = listener
        self.transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._early: asyncio.Queue[Element | Exception] = asyncio.Queue()
        self._listens = False
        self._is_over = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._unread_bytes = 0  # since the last stanza that was handed on
        self._half_tag = b""
        self.id = ""
        self._expect_stream()  # some servers speak first

    # ---- to open it

    async def connect(
        self, host: str, port: int, context: ssl.SSLContext | None = None, domain: str = ""
    ) -> None:
        """Connects.

        Args:
            context: for an encrypted connection from the start.
            domain: the domain that the server's certificate must name.

        Raises:
            OSError: nobody is there, or `context` does not trust the server.
        """
        name = domain if context is not None else None
        await self._loop.create_connection(
            lambda: self, host, port, ssl=context, server_hostname=name
        )

    async def begin(self, to: str, namespace: str, language: str = "") -> None:
        """Opens the stream, and sets `id`, the server's name for it. Raises as `read` does."""
        self._expect_stream()
        said = f" xml:lang='{language}' version='1.0'" if language else ""
        self.write(
            f"<stream:stream to='{attribute(to)}' xmlns='{namespace}'"
            f" xmlns:stream='{_STREAM}'{said}>"
        )
        self.id = (await self.expect(_HEADER)).get("id", "")

    async def read(self) -> Element:
        """Returns the next element; only before `listen` is called.

        Raises:
            StreamFailed: the server has ended the stream.
            OSError: the connection is lost.
        """
        found = await self._early.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def expect(self, *tags: str) -> Element:
        """Returns the next element, which has one of the tags.

        Raises:
            BadStream: it has another one; or as `read` does.
        """
        found = await self.read()
        if found.tag not in tags:
            raise BadStream("unsupported-stanza-type", f"it says {found.tag[:_MOST_NAME]}")
        return found

    async def encrypt(self, context: ssl.SSLContext, domain: str) -> None:
        """Starts TLS (RFC 6120, 5).

        Raises:
            Untrusted: more than the consent to it has come in the clear, which anybody on the way
                may have added; it would be read as the first words under encryption.
            OSError: `context` does not trust the server.
        """
        if not self._early.empty():
            await self.read()
            raise Untrusted("the server goes on in the clear where the encryption was to begin")
        assert self.transport is not None
        transport = self.transport
        self.transport = await self._loop.start_tls(
            transport, self, context, server_hostname=domain
        )

    def listen(self) -> None:
        """Hands what comes to the listener from now on, beginning with what has come unasked."""
        self._listens = True
        while not self._early.empty():
            self._hand_on(self._early.get_nowait())

    # ---- to use it

    def write(self, text: str) -> None:
        """Sends a text, if there is a connection."""
        if self.transport is not None:
            self.transport.write(text.encode())

    async def close(self) -> None:
        """Closes the stream, and waits a moment for the server to do so, too."""
        self._is_over = True
        if self.transport is None:
            return
        self.write("</stream:stream>")
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await asyncio.shield(self._closed)
        except TimeoutError:
            pass
        self.abort()

    def abort(self) -> None:
        """Ends the connection at once, and tells nobody."""
        self._is_over = True
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    # ---- from the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        if self._half_tag:
            data, self._half_tag = self._half_tag + data, b""
        if not data.endswith(b">"):
            begin = data.rfind(b"<")
            if begin >= 0 and len(data) - begin <= _MOST_TAG_BYTES and b">" not in data[begin:]:
                data, self._half_tag = data[:begin], data[begin:]
        try:
            self._parser.Parse(data)
        except expat.ExpatError as error:
            self._end(BadStream("not-well-formed", str(error)))
        if self._unread_bytes > MOST_UNREAD_BYTES:
            self._end(BadStream("policy-violation", "it says too much at once"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("connection closed"))
        self.transport = None
        if not self._closed.done():
            self._closed.set_result(None)

    def _end(self, why: Exception) -> None:
        """Tells once that the stream has ended."""
        if self._is_over:
            return
        self._is_over = True
        self._parser.StartElementHandler = None  # what follows in the same piece is for nobody
        self._parser.EndElementHandler = None
        if self._listens:
            self._listener.on_closed(why)
        else:
            self._early.put_nowait(why)
        if self.transport is not None:
            self.transport.abort()

    # ---- from the parser

    def _expect_stream(self) -> None:
        """Makes a new parser: each stream is a document of its own."""
        parser = self._parser = expat.ParserCreate("UTF-8", "}")
        # Since 2.6, and 2.5 of Debian 12, expat looks at half a tag again only when twice as much
        # has come: the last stanza of all would wait for the next one. So it is given whole tags.
        self._half_tag = b""
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._finish
        # RFC 6120, 11.1
        parser.StartDoctypeDeclHandler = self._refuse
        parser.ProcessingInstructionHandler = self._refuse
        self._depth = 0
        self._names: dict[str, str] = {}
        self._tree: TreeBuilder | None = None  # of the stanza that is being read
        self._message: dict[str, str] = {}  # attributes of a message without a tree
        self._json: list[str] | None = None  # the text of its container

    def _refuse(self, *_: object) -> None:
        raise expat.ExpatError("a document type or a processing instruction")

    def _name(self, name: str) -> str:
        """A name as element trees have it."""
        known = self._names.get(name)
        if known is None:
            namespace, mark, local = name.rpartition("}")
            if namespace == COMPONENT:
                namespace = CLIENT
            known = f"{{{namespace}}}{local}" if mark else local
            if len(self._names) < 1000:
                self._names[name] = known
        return known

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        depth = self._depth = self._depth + 1
        tag = self._name(name)
        if self._tree is not None:
            self._tree.start(tag, self._named(attributes))
        elif depth == _STANZA:
            if self._listens and tag == _MESSAGE and attributes.get("type") != "error":
                self._message = attributes
            else:
                self._begin_tree(tag, attributes)
        elif depth == _CHILD and self._json is None:
            if tag == _JSON:
                self._json = []
                self._parser.CharacterDataHandler = self._json.append
            else:
                self._begin_tree(_MESSAGE, self._message).start(tag, self._named(attributes))
        elif depth == _ROOT:
            if self._listens or tag != _HEADER:
                raise expat.ExpatError("no stream")
            self._early.put_nowait(Element(tag, attributes))
        else:
            self._parser.CharacterDataHandler = None  # the text of the first container counts

    def _begin_tree(self, tag: str, attributes: dict[str, str]) -> TreeBuilder:
        tree = self._tree = TreeBuilder()
        tree.start(tag, self._named(attributes))
        self._parser.CharacterDataHandler = tree.data
        return tree

    def _named(self, attributes: dict[str, str]) -> dict[str, str]:
        return {self._name(name): value for name, value in attributes.items()}

    def _finish(self, name: str) -> None:
        depth = self._depth = self._depth - 1
        if self._tree is not None:
            self._tree.end(self._name(name))
            if depth == _ROOT:
                tree, self._tree = self._tree, None
                self._parser.CharacterDataHandler = None
                self._take(tree.close())
        elif depth == _STANZA:
            self._parser.CharacterDataHandler = None
        elif depth == _ROOT:
            text, self._json = self._json, None
            if text is not None:
                self._unread_bytes = 0
                self._listener.on_json(self._message, "".join(text))
            else:
                self._take(Element(_MESSAGE, self._named(self._message)))
        elif depth == 0:
            self._end(ConnectionResetError("End of stream"))

    def _take(self, found: Element) -> None:
        if found.tag == f"{{{_STREAM}}}error":
            self._end(StreamFailed(condition_of(found), text_of(found)))
        elif self._listens:
            self._unread_bytes = 0
            self._listener.on_stanza(found)
        else:
            self._early.put_nowait(found)

    def _hand_on(self, found: Element | Exception) -> None:
        if isinstance(found, Exception):
            self._listener.on_closed(found)
        else:
            self._listener.on_stanza(found)


class StreamLogin(Protocol):
    """Opens a stream for an account or a component.

    Attributes:
        domain: that of the server.
    """

    domain: str

    async def open(self, stream: XmppStream, host: str, port: int) -> str:
        """Opens a stream, and returns the address that it has.

        Raises:
            OSError: nobody is there, or is not to be trusted.
            StreamFailed, LoginRefused: the server says no.
            KestrelError: the two sides do not agree about encryption.
        """


class ComponentLogin:
    """The login of a component (XEP-0114).

    Args:
        context: for TLS from the start; the protocol knows no other.
    """

    def __init__(self, domain: str, secret: str, context: ssl.SSLContext | None) -> None:
        self.domain = domain
        self._secret = secret
        self._context = context

    async def open(self, stream: XmppStream, host: str, port: int) -> str:
        await stream.connect(host, port, self._context, self.domain)
        await stream.begin(self.domain, COMPONENT)
        digest = hashlib.sha1((stream.id + self._secret).encode(), usedforsecurity=False)
        stream.write(f"<handshake>{digest.hexdigest()}</handshake>")
        await stream.expect(f"{{{CLIENT}}}handshake")
        return self.domain


class ClientLogin:
    """The login of an account.

    Args:
        jid: its address; if it has a resource, that one is asked for.
        context: for STARTTLS; None for no encryption, to a server on this machine.
    """

    def __init__(self, jid: str, password: str, context: ssl.SSLContext | None) -> None:
        bare, _, self._resource = jid.partition("/")
        self._user, _, self.domain = bare.rpartition("@")
        self._password = password
        self._context = context

    async def open(self, stream: XmppStream, host: str, port: int) -> str:
        await stream.connect(host, port)
        offers = await self._begin(stream)
        agree(offers, wants=self._context is not None)
        if self._context is not None:
            stream.write(f"<starttls xmlns='{_TLS}'/>")
            answer = await stream.expect(f"{{{_TLS}}}proceed", f"{{{_TLS}}}failure")
            if answer.tag != f"{{{_TLS}}}proceed":
                raise Untrusted("the server does not begin the encryption that it offers")
            await stream.encrypt(self._context, self.domain)
            offers = await self._begin(stream)
        await self._authenticate(stream, offers)
        await self._begin(stream)
        return await self._bind(stream)

    async def _begin(self, stream: XmppStream) -> Element:
        """The features that the server offers on a new stream."""
        await stream.begin(self.domain, CLIENT, "en")
        return await stream.expect(_FEATURES)

    async def _authenticate(self, stream: XmppStream, offers: Element) -> None:
        names = [each.text or "" for each in offers.iter(f"{{{_SASL}}}mechanism")]
        encrypted = self._context is not None
        mechanism = sasl.choose(names, self._user, self._password, encrypted=encrypted)
        if mechanism is None:
            raise LoginRefused("invalid-mechanism", f"it offers {', '.join(names) or 'none'}")
        first = b64encode(mechanism.first()).decode() or "="
        stream.write(f"<auth xmlns='{_SASL}' mechanism='{mechanism.name}'>{first}</auth>")
        while True:
            answer = await stream.expect(*(f"{{{_SASL}}}{name}" for name in _SASL_ANSWERS))
            if answer.tag.endswith("}failure"):
                raise LoginRefused(condition_of(answer), text_of(answer))
            said = _decoded(answer.text)
            if answer.tag.endswith("}success"):
                mechanism.finish(said)
                return
            reply = b64encode(mechanism.answer(said)).decode()
            stream.write(f"<response xmlns='{_SASL}'>{reply}</response>")

    async def _bind(self, stream: XmppStream) -> str:
        asked = as_text(element("resource", self._resource)) if self._resource else ""
        stream.write(f"<iq type='set' id='bind'><bind xmlns='{_BIND}'>{asked}</bind></iq>")
        answer = await stream.read()
        while answer.get("id") != "bind":  # what has come meanwhile is for nobody
            answer = await stream.read()
        bound = answer.find(f"{{{_BIND}}}bind/{{{_BIND}}}jid")
        if answer.get("type") != "result" or bound is None or not bound.text:
            error = answer.find(f"{{{CLIENT}}}error")
            error = answer if error is None else error
            raise LoginRefused(condition_of(error), text_of(error), is_bind=True)
        return bound.text


def _decoded(text: str | None) -> bytes:
    """Decodes what the server has said in base64 (RFC 6120, 6.4.2: `=` for nothing)."""
    try:
        return b64decode("" if text is None or text == "=" else text)
    except ValueError:
        raise Untrusted("the server's side of the login cannot be read") from None


def agree(offers: Element, *, wants: bool) -> None:
    """Passes if both sides agree whether a stream is to be encrypted.

    An offer in the clear may have been changed on the way (RFC 6120, 13.9.4).

    Args:
        offers: the features of the stream.
        wants: whether it is to be encrypted.

    Raises:
        Untrusted, UsageError: they do not.
    """
    names = {child.tag.rpartition("}")[2] for child in offers}
    if wants and "starttls" not in names:
        raise Untrusted("the server offers no encryption")
    if not wants and "starttls" in names and not names & {"mechanisms", "bind"}:
        raise UsageError(
            "the server accepts encrypted connections only",
            hint="leave TLS on: remove `tls = false` or `--no-tls`",
        )
