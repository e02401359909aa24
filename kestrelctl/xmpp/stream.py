"""The reader of a stream of stanzas (RFC 6120, 4), and what a stream is to whoever opens it.

The stanza that carries work, a message with a JSON container (XEP-0335), is read without making a
tree of elements. Nothing here knows a connection.
"""

from __future__ import annotations

import abc
from collections import deque
from typing import TYPE_CHECKING, Protocol
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from kestrelctl.errors import Untrusted
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.protocol.forms import attribute

if TYPE_CHECKING:
    import ssl

CLIENT = "jabber:client"
COMPONENT = "jabber:component:accept"
_STREAM = "http://etherx.jabber.org/streams"
FEATURES = f"{{{_STREAM}}}features"
_JSON = f"{{{JSON_NAMESPACE}}}json"
_MESSAGE = f"{{{CLIENT}}}message"
_HEADER = f"{{{_STREAM}}}stream"
_ROOT, _STANZA, _CHILD = 1, 2, 3  # depths
#: After so long without an answer the next address of a server is tried beside it (RFC 8305, 5).
NEXT_ADDRESS_SECONDS = 0.25
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


class StanzaStream(abc.ABC):
    """A stream with a server, whatever connection carries it.

    Args:
        listener: is told what comes, from `listen` on.

    Attributes:
        id: the server's name for the stream.
    """

    def __init__(self, listener: StreamListener) -> None:
        self._listener = listener
        self._early: deque[Element | Exception] = deque()
        self._listens = False
        self._is_over = False
        self._unread_bytes = 0  # since the last stanza that was handed on
        self._half_tag = b""
        self.id = ""
        self._expect_stream()  # some servers speak first

    # ---- its connection

    @abc.abstractmethod
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

    @abc.abstractmethod
    async def encrypt(self, context: ssl.SSLContext, domain: str) -> None:
        """Starts TLS (RFC 6120, 5).

        Raises:
            Untrusted: more than the consent to it has come in the clear, which anybody on the way
                may have added; it would be read as the first words under encryption.
            OSError: `context` does not trust the server.
        """

    @abc.abstractmethod
    async def read(self) -> Element:
        """Returns the next element; only before `listen` is called.

        Raises:
            StreamFailed: the server has ended the stream.
            OSError: the connection is lost.
        """

    @abc.abstractmethod
    def write(self, text: str) -> None:
        """Sends a text, if there is a connection."""

    @abc.abstractmethod
    def abort(self) -> None:
        """Ends the connection at once, and tells nobody."""

    # ---- to open it

    async def begin(self, to: str, namespace: str, language: str = "") -> None:
        """Opens the stream, and sets `id`. Raises as `read` does."""
        self._expect_stream()
        said = f" xml:lang='{language}' version='1.0'" if language else ""
        self.write(
            f"<stream:stream to='{attribute(to)}' xmlns='{namespace}'"
            f" xmlns:stream='{_STREAM}'{said}>"
        )
        self.id = (await self.expect(_HEADER)).get("id", "")

    async def expect(self, *tags: str) -> Element:
        """Returns the next element, which has one of the tags.

        Raises:
            BadStream: it has another one; or as `read` does.
        """
        found = await self.read()
        if found.tag not in tags:
            raise BadStream("unsupported-stanza-type", f"it says {found.tag[:_MOST_NAME]}")
        return found

    def listen(self) -> None:
        """Hands what comes to the listener from now on, beginning with what has come unasked."""
        self._listens = True
        while self._early:
            self._hand_on(self._early.popleft())

    # ---- from the connection

    def data_received(self, data: bytes) -> None:
        """Reads what the connection brings."""
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

    def _end(self, why: Exception) -> None:
        """Tells once that the stream has ended."""
        if self._is_over:
            return
        self._hear_no_more()
        if self._listens:
            self._listener.on_closed(why)
        else:
            self._keep(why)
        self._hang_up()

    def _hear_no_more(self) -> None:
        """Hands on nothing more, not even of the piece that is being read."""
        self._is_over = True
        self._parser.StartElementHandler = None
        self._parser.EndElementHandler = None

    @abc.abstractmethod
    def _hang_up(self) -> None:
        """Ends the connection."""

    def _keep(self, found: Element | Exception) -> None:
        """Keeps what comes before anybody listens, for `read`."""
        self._early.append(found)

    async def _refuse_early(self) -> None:
        """Raises what `encrypt` raises if anything has come that is not read."""
        if self._early:
            await self.read()
            raise Untrusted("the server goes on in the clear where the encryption was to begin")

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
            self._keep(Element(tag, attributes))
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
            self._keep(found)

    def _hand_on(self, found: Element | Exception) -> None:
        if isinstance(found, Exception):
            self._listener.on_closed(found)
        else:
            self._listener.on_stanza(found)
