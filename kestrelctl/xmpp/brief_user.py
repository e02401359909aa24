"""A user's connection for a command of a moment: it blocks, and asks what may be asked twice.

Whatever does not go well ends it, for the command to begin anew over the usual one (`user`). Only
what the server or the pool refuses is final.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from xml.etree.ElementTree import Element

from msgspec.structs import replace

from kestrelctl.at_once import TakesLonger
from kestrelctl.errors import Busy, KestrelError, NotAllowed
from kestrelctl.protocol import codec
from kestrelctl.protocol.request import Failed, Reply
from kestrelctl.xmpp import stanza
from kestrelctl.xmpp.login import LoginRefused, StreamLogin
from kestrelctl.xmpp.stream import (
    NEXT_ADDRESS_SECONDS,
    StanzaStream,
    StreamFailed,
    StreamListener,
)

if TYPE_CHECKING:
    import ssl

    from kestrelctl.protocol.channels import TaskWrote
    from kestrelctl.protocol.job_answers import Ended
    from kestrelctl.protocol.requests import AnyRequest
    from kestrelctl.protocol.upload_slots import Slot

#: The longest that it takes to log in.
LOGIN_SECONDS = 2.0
#: The longest that an answer takes; the usual connection asks again after as long.
ANSWER_SECONDS = 10.0
_PIECE_BYTES = 1 << 16


class BlockingStream(StanzaStream):
    """A stream whose calls return when what they wait for has come.

    Attributes:
        deadline: the time of the monotonic clock at which they give up, in seconds.
    """

    def __init__(self, listener: StreamListener) -> None:
        super().__init__(listener)
        self.deadline = 0.0
        self._socket: socket.socket | None = None

    async def connect(
        self, host: str, port: int, context: ssl.SSLContext | None = None, domain: str = ""
    ) -> None:
        name = host.encode() if host.isascii() else host  # a text would load the codec of names
        addresses = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        connected = self._socket = socket.socket(family, kind, protocol)
        most_seconds = LOGIN_SECONDS if len(addresses) == 1 else NEXT_ADDRESS_SECONDS
        connected.settimeout(min(self._left_seconds(), most_seconds))
        connected.connect(address)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self._socket = context.wrap_socket(connected, server_hostname=domain)

    async def encrypt(self, context: ssl.SSLContext, domain: str) -> None:
        await self._refuse_early()
        assert self._socket is not None
        self._socket.settimeout(self._left_seconds())
        self._socket = context.wrap_socket(self._socket, server_hostname=domain)

    async def read(self) -> Element:
        while not self._early:
            self.receive()
        found = self._early.popleft()
        if isinstance(found, Exception):
            raise found
        return found

    def receive(self) -> None:
        """Reads the next piece that comes.

        Raises:
            OSError: none comes in time, or the connection is gone.
        """
        if self._socket is None:
            raise ConnectionResetError("connection closed")
        self._socket.settimeout(self._left_seconds())
        data = self._socket.recv(_PIECE_BYTES)
        if data:
            self.data_received(data)
        else:
            self._end(ConnectionResetError("connection closed"))

    def write(self, text: str) -> None:
        if self._socket is not None:
            self._socket.settimeout(self._left_seconds())
            self._socket.sendall(text.encode())

    def abort(self) -> None:
        self._hear_no_more()
        self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _left_seconds(self) -> float:
        left_seconds = self.deadline - time.monotonic()
        if left_seconds <= 0:
            raise TimeoutError
        return left_seconds


class BriefConnection:
    """A session that asks the pool one thing after another (`access.connection.Connection`).

    Args:
        pool: the domain of the pool.
    """

    def __init__(self, pool: str) -> None:
        self._pool = f"jobs@{pool}"
        self._domain = pool
        self._stream = BlockingStream(self)
        self._ids = itertools.count(1)
        self._answers = codec.CodecOfExpected(Failed)
        self._awaited = ""
        self._answer: Reply | None = None

    async def open(self, login: StreamLogin, host: str, port: int) -> None:
        """Logs in.

        Raises:
            NotAllowed: the server refused the credentials.
            TakesLonger: it does not succeed at once.
        """
        self._stream.deadline = time.monotonic() + LOGIN_SECONDS
        try:
            await login.open(self._stream, host, port)
            self._stream.listen()
        except LoginRefused as refusal:
            if not refusal.is_of_credentials:
                raise TakesLonger from refusal
            raise NotAllowed(
                "the server refused the login", cause="the server refused the credentials"
            ) from refusal
        except (OSError, UnicodeError, StreamFailed, KestrelError) as error:
            raise TakesLonger from error

    async def ask(
        self, request: AnyRequest, timeout_seconds: float = 30.0, *, waits: bool = True
    ) -> Reply:
        """Returns the answer to a request.

        Raises:
            KestrelError: the pool refused it; the class belongs to the code of `Failed`.
            UsageError: the request does not fit into a message, and was not sent.
            TakesLonger: there is no answer yet, or the request must not be sent twice.
        """
        if not request.may_repeat():
            raise TakesLonger
        self._awaited, self._answer = str(next(self._ids)), None
        payload = stanza.payload_of(replace(request, id=self._awaited))
        self._answers.expect(*request.answered_by)
        self._stream.deadline = time.monotonic() + min(timeout_seconds, ANSWER_SECONDS)
        try:
            self._stream.write(stanza.message(payload, self._pool))
            while self._answer is None:
                self._stream.receive()
        except OSError as error:
            raise TakesLonger from error
        if isinstance(self._answer, Failed):
            refusal = self._answer.error()
            if isinstance(refusal, Busy):
                raise TakesLonger from refusal
            raise refusal
        return self._answer

    def pushed(self) -> AsyncIterator[Ended]:
        """Raises TakesLonger: nobody knows when something comes unasked."""
        raise TakesLonger

    def task_frames(self) -> AsyncIterator[TaskWrote]:
        """Raises TakesLonger, as `pushed`."""
        raise TakesLonger

    async def request_slot(self, size_bytes: int, filename: str) -> Slot:
        """Raises TakesLonger: whoever sends files does more besides."""
        raise TakesLonger

    async def close(self) -> None:
        """Ends the session."""
        with suppress(OSError):  # the server has hung up
            self._stream.write("</stream:stream>")
        self._stream.abort()

    # -- StreamListener ----------------------------------------------------------------------------

    def on_json(self, attributes: dict[str, str], text: str) -> None:
        """Takes the answer; what comes besides is for nobody."""
        if not stanza.is_from(self._domain, attributes.get("from", "")):
            return
        try:
            answer = self._answers.decode(text)
        except codec.BadMessage as error:
            raise TakesLonger from error
        if answer.id == self._awaited:
            self._answer = answer

    def on_stanza(self, found: Element) -> None:
        """Ends the session if the request has come back: nobody is where the manager should be."""
        if found.get("type") == "error" and found.get("from") == self._pool:
            raise TakesLonger

    def on_closed(self, why: object) -> None:
        """Does nothing: who waits for an answer finds the connection gone."""


@asynccontextmanager
async def connect_briefly(
    pool: str, login: StreamLogin, host: str, port: int
) -> AsyncIterator[BriefConnection]:
    """Connects to the pool as a user, for the length of a `with`; raises as `open`."""
    connection = BriefConnection(pool)
    try:
        await connection.open(login, host, port)
        yield connection
    finally:
        await connection.close()
