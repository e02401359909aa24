"""A stream, read from a server that says what the test has it say."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any
from xml.etree.ElementTree import Element, tostring

import pytest
from neighbourskit import on_its_own_clock
from streamkit import BINDS, BOUND, JSON, PLAIN, SASL, TLS_OFFER, TLS_PROCEED, features, header

from kestrelctl.errors import Untrusted, UsageError
from kestrelctl.xmpp import tls
from kestrelctl.xmpp.login import ClientLogin, ComponentLogin, LoginRefused, StreamLogin
from kestrelctl.xmpp.loop_stream import XmppStream
from kestrelctl.xmpp.stream import CLIENT, COMPONENT, MOST_UNREAD_BYTES, BadStream, StreamFailed


class Heard:
    """A listener that keeps what it hears, as text."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_json(self, stanza: dict[str, str], text: str) -> None:
        self.told.append((stanza.get("from"), text))

    def on_stanza(self, stanza: Element) -> None:
        self.told.append(tostring(stanza, encoding="unicode"))

    def on_closed(self, why: object) -> None:
        self.told.append(why)


async def reading(*, namespace: str = CLIENT) -> tuple[XmppStream, Heard]:
    """A stream that listens, without a connection."""
    heard = Heard()
    stream = XmppStream(heard)
    stream._expect_stream()
    stream.data_received(header(namespace).encode())
    await stream.read()
    stream.listen()
    return stream, heard


@pytest.mark.parametrize("step", range(1, 12))
async def test_the_parser_never_has_half_a_tag(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some versions of expat would leave it until much more has come, which may be never."""
    stream, heard = await reading()
    parser, given = stream._parser, bytearray()

    class Watched:
        def __setattr__(self, name: str, value: object) -> None:
            setattr(parser, name, value)

        def Parse(self, data: bytes) -> None:
            given.extend(data)
            assert given.rfind(b"<") <= given.rfind(b">")
            parser.Parse(data)

    monkeypatch.setattr(stream, "_parser", Watched())
    said = f"<message from='a' to='b'>{JSON}1 &gt; 0</json></message>".encode()
    for at in range(0, len(said), step):
        stream.data_received(said[at : at + step])
    assert heard.told == [("a", "1 > 0")]


async def test_a_tag_without_an_end_is_not_kept() -> None:
    stream, _ = await reading()
    stream.data_received(b"<message from='" + b"x" * 1_000)
    assert len(stream._half_tag) > 1_000
    stream.data_received(b"x" * 100_000)
    assert stream._half_tag == b""


@pytest.mark.parametrize("namespace", [CLIENT, COMPONENT])
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_stanzas_are_the_same_however_they_come(namespace: str, step: int) -> None:
    stream, heard = await reading(namespace=namespace)
    said = (
        f"<message from='a' to='b'>{JSON}{{&quot;é&quot;:&lt;1}}</json></message>"
        "<message from='a' type='chat'><body>hi &amp; <b>you</b>!</body></message>\n"
        "<presence from='c'/><message from='d'/>"
    ).encode()
    for at in range(0, len(said), step):
        stream.data_received(said[at : at + step])
    assert heard.told == [
        ("a", '{"é":<1}'),
        f'<ns0:message xmlns:ns0="{CLIENT}" from="a" type="chat"><ns0:body>hi &amp; '
        "<ns0:b>you</ns0:b>!</ns0:body></ns0:message>",
        f'<ns0:presence xmlns:ns0="{CLIENT}" from="c" />',
        f'<ns0:message xmlns:ns0="{CLIENT}" from="d" />',
    ]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (f"{JSON}1</json>{JSON}2</json>", "1"),
        (f"{JSON}1</json><body>2</body>", "1"),
        (f"0{JSON}1</json>2", "1"),
        (f"{JSON}1<b>2</b>3</json>", "1"),
        (f"{JSON}</json>", ""),
        (f"{JSON}1<b/></json>{JSON}2</json>", "1"),
    ],
)
async def test_the_text_of_the_first_container_counts(content: str, text: str) -> None:
    stream, heard = await reading()
    stream.data_received(f"<message from='a'>{content}</message><message from='b'/>".encode())
    assert heard.told[0] == ("a", text)
    assert len(heard.told) == 2


async def test_a_message_that_came_back_is_no_work() -> None:
    stream, heard = await reading()
    stream.data_received(f"<message type='error'>{JSON}1</json><error/></message>".encode())
    assert "error" in heard.told[0]
    assert not isinstance(heard.told[0], tuple)


@pytest.mark.parametrize(
    "said",
    [
        "<message",
        "</x>",
        "<!DOCTYPE x>",
        "<?xml-stylesheet href='x'?>",
        "<a><b></a>",
        "<message>&nothing;</message>",
    ],
)
async def test_what_is_no_stream_ends_it(said: str) -> None:
    stream, heard = await reading()
    stream.data_received(f"{said}<message/>".encode())
    [why] = heard.told
    assert isinstance(why, BadStream)
    assert why.condition == "not-well-formed"


@pytest.mark.parametrize("begins", ["<message a='", "<message><json>", "<iq><a>", "<!--"])
async def test_a_stanza_without_an_end_is_not_waited_for(begins: str) -> None:
    """It would be kept until there is no memory left."""
    stream, heard = await reading()
    stream.data_received(begins.encode())
    for _ in range(0, MOST_UNREAD_BYTES, 1 << 20):
        assert heard.told == []
        stream.data_received(b"x" * (1 << 20))
    [why] = heard.told
    assert isinstance(why, BadStream)


async def test_many_stanzas_are_not_too_much() -> None:
    stream, heard = await reading()
    heard.on_stanza = heard.on_json = lambda *stanza: None  # type: ignore[method-assign]
    for stanza in (
        f"<message>{JSON}{'x' * (1 << 20)}</json></message>",
        f"<a>{'x' * (1 << 20)}</a>",
    ):
        for _ in range(0, MOST_UNREAD_BYTES, 1 << 19):
            stream.data_received(stanza.encode())
    assert heard.told == []


async def test_nothing_is_heard_after_an_end() -> None:
    stream, heard = await reading()
    error = "<stream:error><reset xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
    stream.data_received(f"{error}<message>{JSON}1</json></message>".encode())
    [why] = heard.told
    assert isinstance(why, StreamFailed)


async def test_an_end_is_told_once() -> None:
    stream, heard = await reading()
    stream.data_received(
        b"<stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/>"
        b"<text xmlns='urn:ietf:params:xml:ns:xmpp-streams'>Replaced</text></stream:error>"
        b"</stream:stream>"
    )
    stream.connection_lost(None)
    [why] = heard.told
    assert isinstance(why, StreamFailed)
    assert (why.condition, why.text) == ("conflict", "Replaced")


class Line:
    """A connection that takes whatever is written."""

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None: ...


async def test_nothing_is_handed_on_while_it_is_being_closed() -> None:
    """Whoever would take it is being closed as well."""
    stream, heard = await reading()
    stream.transport = Line()  # type: ignore[assignment]
    closing = asyncio.ensure_future(stream.close())
    await asyncio.sleep(0)
    stream.data_received(f"<message from='a'>{JSON}1</json></message><presence/>".encode())
    stream.connection_lost(None)
    await closing
    assert heard.told == []


async def test_nothing_of_a_piece_is_handed_on_after_an_abort() -> None:
    stream, heard = await reading()
    heard.on_stanza = lambda stanza: stream.abort()  # type: ignore[method-assign]
    stream.data_received(f"<presence/><message from='a'>{JSON}1</json></message>".encode())
    assert heard.told == []


async def test_stanzas_that_nest_deep_end_nothing() -> None:
    stream, heard = await reading()
    heard.on_stanza = lambda stanza: heard.told.append(stanza.tag)  # type: ignore[method-assign]
    stream.data_received(b"<iq>" + b"<a>" * 50_000 + b"</a>" * 50_000 + b"</iq><presence/>")
    assert heard.told == [f"{{{CLIENT}}}iq", f"{{{CLIENT}}}presence"]


class Server:
    """Answers each thing that is said by the next of its script.

    Attributes:
        said: what it was told.
    """

    def __init__(self) -> None:
        self.script: list[str] = []
        self.said: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in self.script:
            self.said.append((await reader.read(1 << 16)).decode(errors="replace"))
            writer.write(answer.encode())
            await writer.drain()
        await reader.read()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, int]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        yield server, listening.sockets[0].getsockname()[1]


async def opened(login: StreamLogin, port: int) -> tuple[str, Heard]:
    """The address that a login leads to, and what is heard then."""
    heard = Heard()
    stream = XmppStream(heard)
    try:
        address = await login.open(stream, "127.0.0.1", port)
        stream.listen()
        await stream.close()
    finally:
        stream.abort()
    return address, heard


async def test_an_account_logs_in(server: tuple[Server, int]) -> None:
    script, port = server
    script.script = [
        header() + features(PLAIN),
        f"<success xmlns='{SASL}'/>",
        header() + features(BINDS),
        BOUND + "<message from='early'/>",
    ]
    address, heard = await opened(ClientLogin("ada@x/desk", "pw", None), port)
    assert address == "ada@x/desk"
    assert "early" in heard.told[0], "what comes at once is not lost"
    assert "to='x'" in script.said[0]
    assert "xml:lang='en' version='1.0'" in script.said[0]
    assert b64encode(b"\0ada\0pw").decode() in script.said[1]
    assert "<resource>desk</resource>" in script.said[3]


@pytest.mark.parametrize(
    ("answers", "refusal"),
    [
        ([header() + features(f"<mechanisms xmlns='{SASL}'/>")], LoginRefused),
        (
            [header() + features(PLAIN), f"<failure xmlns='{SASL}'><not-authorized/></failure>"],
            LoginRefused,
        ),
        (
            [
                header() + features(PLAIN),
                f"<success xmlns='{SASL}'/>",
                header() + features(BINDS),
                "<iq type='error' id='bind'><error type='cancel'><not-allowed "
                "xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>",
            ],
            LoginRefused,
        ),
        (
            [
                header() + "<stream:error><host-unknown "
                "xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>"
            ],
            StreamFailed,
        ),
        ([header() + features("<starttls xmlns='x'/>")], UsageError),
        (["<html>"], BadStream),
        ([header() + "<message/>"], BadStream),
        ([header() + features(PLAIN), "<message/>"], BadStream),
        ([header() + "</stream:stream>"], OSError),
    ],
)
async def test_a_login_that_fails_says_why(
    server: tuple[Server, int], answers: list[str], refusal: type[Exception]
) -> None:
    script, port = server
    script.script = answers
    with pytest.raises(refusal):
        await opened(ClientLogin("ada@x", "pw", None), port)


@on_its_own_clock
async def test_an_address_at_which_nobody_answers_is_not_waited_for_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A name may have one of a network that leads nowhere from here."""
    loop = asyncio.get_running_loop()
    addresses = [("192.0.2.1", 5222), ("192.0.2.2", 5222)]
    tried: list[tuple[str, int]] = []

    async def getaddrinfo(*_: object, **__: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in addresses]

    async def sock_connect(_: socket.socket, address: tuple[str, int]) -> None:
        tried.append(address)
        await asyncio.Event().wait()

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(loop, "sock_connect", sock_connect)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await XmppStream(Heard()).connect("pool.example.org", 5222)
    assert tried == addresses


async def test_nobody_logs_in_where_nobody_listens(unused_tcp_port: int) -> None:
    with pytest.raises(OSError, match="111"):
        await opened(ClientLogin("ada@x", "pw", None), unused_tcp_port)


async def test_a_component_shows_that_it_knows_the_secret(server: tuple[Server, int]) -> None:
    script, port = server
    script.script = [header(COMPONENT), "<handshake/>"]
    address, _ = await opened(ComponentLogin("pool.x", "secret", None), port)
    assert address == "pool.x"
    # SHA-1 of the stream's id and the secret (XEP-0114, 3)
    assert script.said[1] == "<handshake>c1b046000bef3cde3ab96dc8f51d516878a29432</handshake>"


async def test_who_does_not_begin_to_encrypt_is_not_trusted(server: tuple[Server, int]) -> None:
    script, port = server
    script.script = [
        header() + features(TLS_OFFER + PLAIN),
        "<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
    ]
    with pytest.raises(Untrusted):
        await opened(ClientLogin("ada@x", "pw", tls.context(None)), port)
    assert "ada" not in "".join(script.said)


@pytest.mark.parametrize("added", ["<message from='jobs@x'/>", "<a/><b/>"])
async def test_what_is_added_in_the_clear_is_not_heard_under_encryption(
    server: tuple[Server, int], added: str
) -> None:
    """Whoever is on the way could answer the login and speak for the pool otherwise."""
    script, port = server
    script.script = [
        header() + features(TLS_OFFER),
        TLS_PROCEED + added,
        "no TLS",
    ]
    with pytest.raises(Untrusted, match="in the clear"):
        await opened(ClientLogin("ada@x", "pw", tls.context(None)), port)
