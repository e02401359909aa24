"""The actions of a handler on events: it runs a program, sends a mail, or tells a web server."""

from __future__ import annotations

import asyncio
import http.client
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from kestrelctl.child_program import child_program
from kestrelctl.core.membership.handler_definition import HandlerDefinition
from kestrelctl.core.membership.handler_words import ToldEvent, variables
from kestrelctl.manager.handlers.letter import event_letter
from kestrelctl.manager.mail.own_thread import in_a_thread
from kestrelctl.manager.mail.server import NotNow, NotToHim, Post

#: The most of what a program prints that may be in the log if it fails.
MOST_PRINTED_BYTES = 4_096


class HandlerFailed(Exception):
    """A handler has not done what it is for; the text says why.

    Attributes:
        again: whether it may be done later.
    """

    def __init__(self, why: str, *, again: bool) -> None:
        super().__init__(why)
        self.again = again


class HandlerChannel(Protocol):
    """Does what a handler is there for.

    Attributes:
        together: how many events it is given at once at most.
    """

    together: int

    async def tell(self, told: Sequence[ToldEvent]) -> None:
        """Tells of some events, the oldest first. HandlerFailed if that was not done."""


class ProgramChannel:
    """Runs a program for an event, which has it in variables and, as JSON, on its input."""

    together = 1

    def __init__(self, words: Sequence[str], timeout_seconds: float) -> None:
        self._words = words
        self._timeout_seconds = timeout_seconds

    async def tell(self, told: Sequence[ToldEvent]) -> None:
        """Runs the program for the one event; see `HandlerChannel.tell`."""
        [one] = told
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                child_program(
                    self._words,
                    variables(one),
                    stdin=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                ) as program,
            ):
                printed = await _spoken_to(program, msgspec.json.encode(one) + b"\n")
                status = await program.wait()
        except TimeoutError:
            why = f"it took longer than {self._timeout_seconds:g} s"
            raise HandlerFailed(why, again=False) from None
        except (OSError, ValueError) as error:
            raise HandlerFailed(str(error), again=False) from None
        if status:
            how = f"exit status {status}" if status > 0 else f"signal {-status}"
            said = " ".join(printed.decode(errors="replace").split())[-200:]
            raise HandlerFailed(f"{how}: {said}" if said else how, again=False)


async def _spoken_to(program: asyncio.subprocess.Process, said: bytes) -> bytes:
    """Returns the end of what a program prints; input that it does not read is no fault."""
    assert program.stdin is not None
    assert program.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        program.stdin.write(said)
        await program.stdin.drain()
    program.stdin.close()
    printed = b""
    while more := await program.stdout.read(MOST_PRINTED_BYTES):
        printed = (printed + more)[-MOST_PRINTED_BYTES:]
    return printed


class MailChannel:
    """Sends a mail about all events that wait."""

    together = 10_000

    def __init__(self, post: Post, to: str, pool: str, now: Callable[[], float]) -> None:
        self._post = post
        self._to = to
        self._pool = pool
        self._now = now

    async def tell(self, told: Sequence[ToldEvent]) -> None:
        """Sends one mail about the events; see `HandlerChannel.tell`."""
        letter = event_letter(
            told, pool=self._pool, sender=self._post.sender, to=self._to, now=self._now()
        )
        try:
            await self._post.send(letter)
        except NotNow as error:
            raise HandlerFailed(str(error), again=True) from None
        except NotToHim as error:
            raise HandlerFailed(str(error), again=not error.for_good) from None


class WebhookChannel:
    """Posts an event as JSON to a web server; it is done when that answers with 2xx."""

    together = 1

    def __init__(self, address: str, timeout_seconds: float) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds

    async def tell(self, told: Sequence[ToldEvent]) -> None:
        """Posts the one event; see `HandlerChannel.tell`."""
        [one] = told
        request = _Post(self._address, msgspec.json.encode(one), self._timeout_seconds)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await in_a_thread("webhook", request.send)
        except TimeoutError:
            request.abort()  # one that answers a byte at a time would keep its thread for ever
            why = f"it took longer than {self._timeout_seconds:g} s"
            raise HandlerFailed(why, again=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise HandlerFailed(str(error) or type(error).__name__, again=True) from None
        if not 200 <= request.status < 300:
            again = request.status >= 500 or request.status in (408, 429)
            raise HandlerFailed(f"it answers with status {request.status}", again=again)


class _Post:
    """One request, which another thread may end.

    Attributes:
        status: the answer's; 0 before there is one.
    """

    def __init__(self, address: str, body: bytes, timeout_seconds: float) -> None:
        parts = urlsplit(address)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._body = body
        self.status = 0
        host, port = parts.hostname or "", parts.port
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=timeout_seconds, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)

    def send(self) -> None:
        """Sends the request, and waits for its answer."""
        try:
            headers = {"Content-Type": "application/json", "User-Agent": "kestrel"}
            self._connection.request("POST", self._path, self._body, headers)
            self.status = self._connection.getresponse().status
        finally:
            self._connection.close()

    def abort(self) -> None:
        """Ends the request, wherever it is."""
        found = self._connection.sock
        if found is not None:
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)


def way_of(
    handler: HandlerDefinition, post: Post | None, pool: str, now: Callable[[], float]
) -> HandlerChannel | None:
    """Makes the channel of a handler; None if it would send mail and there is no server for that.

    Args:
        pool: as its users name it to commands.
    """
    if handler.run:
        return ProgramChannel(handler.run, handler.timeout_seconds)
    if handler.webhook:
        return WebhookChannel(handler.webhook, handler.timeout_seconds)
    return None if post is None else MailChannel(post, handler.mail, pool, now)
