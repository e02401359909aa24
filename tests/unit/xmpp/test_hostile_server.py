"""A user's connection to servers that say anything: it ends with an answer or one error, in time.

Nothing is sent anywhere, and the clock is the test's: a server that falls silent costs no time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from html import escape
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from neighbourskit import EagerLoop
from streamkit import BINDS, BOUND, JSON, PLAIN, SASL, TLS_OFFER, TLS_PROCEED, features, header

from kestrelctl.errors import KestrelError, TimedOut, Unreachable, Untrusted
from kestrelctl.protocol import codec
from kestrelctl.protocol.answers import AnyAnswer, Changed
from kestrelctl.protocol.requests import CancelJobs
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.sasl import LEAST_ITERATIONS
from kestrelctl.xmpp.stream import XmppStream
from kestrelctl.xmpp.user import PATIENCE_SECONDS, connect_user

#: That of a request, and then of a server that does not close its side.
MOST_SECONDS = PATIENCE_SECONDS + 30.0 + 5.0
LOGIN_SECONDS = 1.0
SCRAM = f"<mechanisms xmlns='{SASL}'><mechanism>SCRAM-SHA-256</mechanism></mechanisms>"
SALT = b"salt of the server"


class Server:
    """One that does all as it should.

    Args:
        encrypted: whether it offers encryption, and then SCRAM; otherwise PLAIN.

    Attributes:
        closes: whether it closes the connection after what it has said last.
    """

    closes = False

    def __init__(self, *, encrypted: bool = False) -> None:
        self._offers = [TLS_OFFER, SCRAM, BINDS] if encrypted else [PLAIN, BINDS]
        self._own = self._challenge = ""
        self.iterations = LEAST_ITERATIONS

    def answer(self, said: str) -> bytes | None:
        """What it says to a text; None if it closes the connection."""
        kind = re.match(r"</?(\S+?)[\s>]", said)
        assert kind is not None, said
        answer: str | None = getattr(self, f"on_{kind[1].replace(':', '_')}")(said)
        return None if answer is None else answer.encode()

    def on_stream_stream(self, said: str) -> str | None:
        return None if said.startswith("</") else header() + features(self._offers.pop(0))

    def on_starttls(self, _said: str) -> str:
        return TLS_PROCEED

    def on_auth(self, said: str) -> str:
        if "PLAIN" in said:
            return f"<success xmlns='{SASL}'/>"
        self._own = words_in(said).removeprefix("n,,")
        self._challenge = (
            f"{self._own.partition(',')[2]}+,s={b64encode(SALT).decode()},i={self.iterations}"
        )
        return f"<challenge xmlns='{SASL}'>{in_base64(self._challenge)}</challenge>"

    def on_response(self, said: str) -> str:
        return f"<success xmlns='{SASL}'>{in_base64(f'v={self.signature(said)}')}</success>"

    def signature(self, said: str) -> str:
        """The proof that it knows the password (RFC 5802, 3)."""
        exchange = f"{self._own},{self._challenge},{words_in(said).rpartition(',p=')[0]}"
        salted = hashlib.pbkdf2_hmac("sha256", b"secret", SALT, self.iterations)
        key = hmac.digest(salted, b"Server Key", "sha256")
        return b64encode(hmac.digest(key, exchange.encode(), "sha256")).decode()

    def on_iq(self, _said: str) -> str:
        return BOUND

    def on_message(self, said: str) -> str:
        asked = re.search(r'"id":"(\d+)"', said)
        assert asked is not None
        answer = codec.encode(Changed(id=asked[1], what=["job 7"]))
        return f"<message from='jobs@x' to='ada@x/desk'>{JSON}{escape(answer)}</json></message>"


def in_base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def words_in(said: str) -> str:
    """What the client has said in base64."""
    found = re.search(">(.*?)<", said)
    assert found is not None
    return b64decode(found[1]).decode()


class Wire(asyncio.Transport):
    """The way between a stream and a server."""

    def __init__(self, stream: XmppStream, server: Server) -> None:
        super().__init__()
        self._stream = stream
        self._server = server
        self._is_closed = False

    def write(self, data: Any) -> None:
        answer = self._server.answer(bytes(data).decode())
        if answer:
            asyncio.get_running_loop().call_soon(self._bring, answer)
        if answer is None or self._server.closes:
            self.abort()

    def _bring(self, data: bytes) -> None:
        if not self._is_closed:
            self._stream.data_received(data)

    def abort(self) -> None:
        asyncio.get_running_loop().call_soon(self._close)

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._stream.connection_lost(None)


def outcome(make: Callable[[], Server], *, tls: bool = False) -> AnyAnswer | KestrelError:
    """What comes of a request; `make` is called for each connection. Anything else is raised."""

    class Stream(XmppStream):
        async def connect(self, host: str, port: int, *_: object) -> None:
            self.connection_made(Wire(self, make()))

        async def encrypt(self, *_: object) -> None:
            """Nothing is secret here."""

    async def ask() -> AnyAnswer | KestrelError:
        try:
            async with (
                asyncio.timeout(MOST_SECONDS),
                connect_user(
                    *("ada@x", "secret", "x", "127.0.0.1", 1),
                    tls=tls,
                    timeout_seconds=LOGIN_SECONDS,
                ) as user,
            ):
                return await user.ask(CancelJobs(jobs="7"))
        except KestrelError as error:
            return error

    unforeseen: list[object] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            unforeseen.append(record.getMessage())

    log = Log(logging.ERROR)
    logging.getLogger().addHandler(log)
    try:
        with (
            pytest.MonkeyPatch.context() as patch,
            asyncio.Runner(loop_factory=EagerLoop) as runner,
        ):
            patch.setattr(xmpp_session, "XmppStream", Stream)
            runner.get_loop().set_exception_handler(lambda _, what: unforeseen.append(what))
            found = runner.run(ask())
    finally:
        logging.getLogger().removeHandler(log)
    assert unforeseen == []
    return found


class Recorded(Server):
    """One that does as it should, but of all its words together says only so many bytes."""

    def __init__(self, most_bytes: int, *, encrypted: bool, silent: bool) -> None:
        super().__init__(encrypted=encrypted)
        self.said_bytes = 0
        self._most_bytes = most_bytes
        self._silent = silent

    def answer(self, said: str) -> bytes | None:
        left = self._most_bytes - self.said_bytes
        if left <= 0:
            return b"" if self._silent else None
        answer = super().answer(said)
        self.said_bytes += len(answer or b"")
        self.closes = len(answer or b"") > left and not self._silent
        return answer and answer[:left]


def length_of_all(*, encrypted: bool) -> int:
    """The bytes that a server says until a request is answered."""
    made: list[Recorded] = []

    def make() -> Server:
        made.append(Recorded(1 << 20, encrypted=encrypted, silent=False))
        return made[-1]

    assert outcome(make, tls=encrypted) == Changed(id="1", what=["job 7"])
    return made[0].said_bytes


@pytest.mark.parametrize("encrypted", [False, True])
def test_what_a_server_should_say_is_understood(encrypted: bool) -> None:
    assert length_of_all(encrypted=encrypted) > 0


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_connection_that_is_cut_at_any_byte_is_one_that_is_lost(encrypted: bool) -> None:
    length = length_of_all(encrypted=encrypted)
    assert length > 0
    for most_bytes in range(length):
        found = outcome(
            lambda most=most_bytes: Recorded(most, encrypted=encrypted, silent=False),  # type: ignore[misc]
            tls=encrypted,
        )
        assert isinstance(found, Unreachable), most_bytes


@settings(max_examples=60)
@given(st.data())
def test_a_server_that_falls_silent_at_any_byte_is_not_waited_for(data: st.DataObject) -> None:
    most_bytes = data.draw(st.integers(0, length_of_all(encrypted=False) - 1))
    found = outcome(lambda: Recorded(most_bytes, encrypted=False, silent=True))
    assert isinstance(found, Unreachable | TimedOut)


PIECES = [
    header(),
    header("jabber:component:accept"),
    header("urn:x"),
    f"{header()}<iq",
    features(PLAIN),
    features(SCRAM),
    features(TLS_OFFER),
    features(BINDS),
    features("<mechanisms/>"),
    features(PLAIN.replace(SASL, "urn:x")),
    f"<success xmlns='{SASL}'/>",
    f"<success xmlns='{SASL}'>dj0=</success>",
    f"<success xmlns='{SASL}'>é</success>",
    "<success/>",
    f"<challenge xmlns='{SASL}'>cj0=</challenge>",
    f"<challenge xmlns='{SASL}'>=</challenge>",
    f"<failure xmlns='{SASL}'/>",
    f"<failure xmlns='{SASL}'><not-authorized/><text>{'no' * 1000}</text></failure>",
    TLS_PROCEED,
    BOUND,
    BOUND.replace("result", "error"),
    "<iq id='bind' type='result'/>",
    f"<iq id='{'x' * 1000}' from='x' type='get'><ping xmlns='urn:xmpp:ping'/></iq>",
    f"<message from='jobs@x'>{JSON}{{}}</json></message>",
    f'<message from="jobs@x">{JSON}{{"type":"changed","id":"1"}}</json></message>',
    f"<message from='jobs@x'>{JSON}{'[' * 10_000}</json></message>",
    "<message from='jobs@x' type='error'/>",
    "<message from='jobs@x' type='error'><error><item-not-found/></error></message>",
    f"<presence from='{'x' * 100_000}' {'a' * 1000}='1'/>",
    "<iq>" + "<a>" * 2000,
    "<!DOCTYPE x [<!ENTITY a 'a'><!ENTITY b '&a;&a;&a;'>]>",
    "<?xml version='1.0' encoding='utf-16'?>",
    "<?xml version='1.0' encoding='klingon'?>",
    "<?xml-stylesheet href='x'?>",
    "<!-- -->",
    "<![CDATA[<message/>]]>",
    "&amp;&lt;&#0;",
    " ",
    "<stream:error/>",
    "<stream:error><see-other-host xmlns='urn:ietf:params:xml:ns:xmpp-streams'>y</see-other-host>"
    "</stream:error>",
    "</stream:stream>",
    "HTTP/1.1 400 Bad Request\r\n\r\n",
]
WORDS = st.sampled_from([piece.encode() for piece in PIECES])
RUBBISH = st.lists(st.one_of(WORDS, WORDS, st.binary(max_size=40)), max_size=4).map(b"".join)


class Babbling(Server):
    """One that answers the first words as it should, and then with what it is given."""

    def __init__(self, sane: int, rubbish: list[bytes], *, encrypted: bool, silent: bool) -> None:
        super().__init__(encrypted=encrypted)
        self._sane = sane
        self._rubbish = list(rubbish)
        self._end = b"" if silent else None

    def answer(self, said: str) -> bytes | None:
        self._sane -= 1
        if self._sane >= 0:
            return super().answer(said)
        return self._rubbish.pop(0) if self._rubbish else self._end


@settings(max_examples=300)
@given(
    sane=st.integers(0, 7),
    rubbish=st.lists(RUBBISH, min_size=1, max_size=4),
    encrypted=st.booleans(),
    silent=st.booleans(),
)
@example(sane=0, rubbish=[b"SSH-2.0-OpenSSH_9.2\r\n"], encrypted=True, silent=True)
@example(
    sane=0,
    rubbish=[b"<?xml version='1.0' encoding='klingon'?><a>"],
    encrypted=False,
    silent=False,
)
def test_rubbish_ends_with_an_answer_or_one_error(
    sane: int, rubbish: list[bytes], encrypted: bool, silent: bool
) -> None:
    found = outcome(
        lambda: Babbling(sane, rubbish, encrypted=encrypted, silent=silent), tls=encrypted
    )
    assert isinstance(found, Changed | KestrelError)
    if isinstance(found, KestrelError):
        assert found.message
        assert len(found.cause or "") < 1000


@pytest.mark.parametrize("words", ["SSH-2.0-OpenSSH_9.2\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_who_speaks_something_else_is_told_of_it(words: str) -> None:
    found = outcome(lambda: Babbling(0, [words.encode()], encrypted=False, silent=True))
    assert isinstance(found, Unreachable)
    assert "the server does not speak XMPP" in (found.cause or "")


class Forger(Server):
    """One that lets everybody in, but does not know the password."""

    def signature(self, said: str) -> str:
        return b64encode(bytes(32)).decode()


class Hasty(Server):
    """One that lets everybody in unasked."""

    def on_auth(self, said: str) -> str:
        return f"<success xmlns='{SASL}'/>"


class Cheap(Server):
    """One that wants to try many passwords."""

    def __init__(self, *, encrypted: bool) -> None:
        super().__init__(encrypted=encrypted)
        self.iterations = 1


class Curious(Server):
    """One that asks again and again."""

    def on_response(self, said: str) -> str:
        return f"<challenge xmlns='{SASL}'>{in_base64(self._challenge)}</challenge>"


class Plain(Server):
    """One that takes its offer of encryption back."""

    def __init__(self, *, encrypted: bool) -> None:
        super().__init__(encrypted=encrypted)
        self._offers = [PLAIN, BINDS]


@pytest.mark.parametrize("kind", [Forger, Hasty, Cheap, Curious, Plain])
def test_who_does_not_prove_that_it_is_the_server_is_not_asked(kind: type[Server]) -> None:
    asked: list[str] = []

    class Watched(kind):  # type: ignore[misc,valid-type]
        def on_message(self, said: str) -> str:
            asked.append(said)
            return str(super().on_message(said))

    found = outcome(lambda: Watched(encrypted=True), tls=True)
    assert isinstance(found, Untrusted)
    assert asked == []


class Twice(Server):
    """One that answers the request for a resource twice."""

    def on_iq(self, said: str) -> str:
        return BOUND + BOUND.replace("desk", "other")


def test_a_second_answer_about_the_address_changes_nothing() -> None:
    assert outcome(Twice) == Changed(id="1", what=["job 7"])
