"""A user's connection to servers that say anything: it ends with an answer or one error, in time.

Nothing is sent anywhere, and the clock is the test's: a server that falls silent costs no time.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from neighbourskit import EagerLoop
from serverkit import RUBBISH, Babbling, Recorded, Server, in_base64
from streamkit import BINDS, BOUND, PLAIN, SASL

from kestrelctl.errors import KestrelError, NotAllowed, TimedOut, Unreachable, Untrusted
from kestrelctl.protocol.answers import AnyAnswer, Changed
from kestrelctl.protocol.requests import CancelJobs
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.loop_stream import XmppStream
from kestrelctl.xmpp.user import PATIENCE_SECONDS, connect_user

#: That of a request, and then of a server that does not close its side.
MOST_SECONDS = PATIENCE_SECONDS + 30.0 + 5.0
LOGIN_SECONDS = 1.0


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


class Foreign(Server):
    """One that lets nobody in as we could."""

    def __init__(self) -> None:
        super().__init__()
        self._offers = [PLAIN.replace("PLAIN", "EXTERNAL"), BINDS]


def test_a_server_without_a_login_for_us_has_refused_nobody() -> None:
    found = outcome(Foreign)
    assert isinstance(found, KestrelError)
    assert not isinstance(found, NotAllowed)
    assert (found.message, found.cause) == (
        "the server has no login that is known here", "it offers EXTERNAL",
    )  # fmt: skip


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
