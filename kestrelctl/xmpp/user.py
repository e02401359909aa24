"""A user's connection to the pool: requests, their answers, and what the pool sends unasked."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kestrelctl.core.pacing.backoff import LONGEST_SECONDS, pause_seconds
from kestrelctl.errors import (
    BY_CODE,
    Busy,
    KestrelError,
    TimedOut,
    Undelivered,
    Unreachable,
)
from kestrelctl.protocol import codec
from kestrelctl.protocol.channels import TaskWrote
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.protocol.job_answers import Ended
from kestrelctl.protocol.request import Failed, Reply
from kestrelctl.xmpp import stanza, xmpp_session

if TYPE_CHECKING:
    from kestrelctl.protocol.requests import AnyRequest
    from kestrelctl.protocol.upload_slots import Slot

#: How long a user waits for a server, or a manager, that is away: it may only be restarting.
PATIENCE_SECONDS = 10.0
#: The longest pause between two tries to reach a manager that is away.
LONGEST_PAUSE_SECONDS = 1.0
#: A request that may be done twice is sent again after so long without an answer: a manager that
#: was killed a moment ago may have taken it along, and the server cannot know.
REPEAT_SECONDS = 10.0
#: Conditions of a request that the server returned because nobody is where the manager should be.
#: Prosody says the first while a component is not connected.
AWAY = ("remote-server-timeout", "remote-server-not-found", "service-unavailable")


class ManagerAway(Undelivered):
    """The request came back because nobody is where the manager should be, yet."""


class PerhapsHeard(Unreachable):
    """The manager or the server went away meanwhile: nobody knows whether the request was read."""


class UserConnection:
    """One session that asks the pool. Requests may overlap; each is answered by its id."""

    def __init__(self, pool: str) -> None:
        self._pool = f"jobs@{pool}"
        self._domain = pool
        self._ids = itertools.count(1)
        self._answers = codec.CodecOfExpected(Failed)
        self._pending: dict[str, asyncio.Future[Reply]] = {}
        self._pushed: asyncio.Queue[Ended] = asyncio.Queue()
        self._frames: asyncio.Queue[TaskWrote] = asyncio.Queue()
        self._online = asyncio.Event()
        self._why = ""
        self.session: xmpp_session.XmppSession

    # -- Listener ----------------------------------------------------------------------------------

    def on_online(self) -> None:
        self._online.set()

    def on_offline(self, why: str) -> None:
        self._why = why
        self._online.clear()
        lost = PerhapsHeard("the connection to the pool was lost", cause=why)
        self._fail(self.session.problem or lost)

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        if not stanza.is_from(self._domain, sender):
            return
        try:
            answer = self._answers.decode(payload)
        except codec.BadMessage as error:
            unread = KestrelError("the pool answered what cannot be read", cause=str(error))
            request_id = codec.id_in(payload)
            if not request_id:  # nobody knows whose answer it is
                self._fail(unread)
            elif (future := self._pending.pop(request_id, None)) and not future.done():
                future.set_exception(unread)
            return
        if isinstance(answer, Ended):
            self._pushed.put_nowait(answer)
            return
        if isinstance(answer, TaskWrote):
            self._frames.put_nowait(answer)
            return
        future = self._pending.pop(answer.id, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        """Does nothing: chat messages are for people."""

    def on_bounce(self, sender: str, condition: str) -> None:
        if sender != self._pool:
            return
        # Nobody knows which of several requests came back: the others may have been read.
        one = len(self._pending) == 1
        away = condition in AWAY
        kind: type[Unreachable] = Undelivered if one else Unreachable
        if away:
            kind = ManagerAway if one else PerhapsHeard
        self._fail(
            kind(
                "the manager does not answer" if away else "the server delivered no request",
                cause=f"the server returned the request: {condition}",
                hint="is the manager running? see `kestrelctl manager run --help`"
                if away
                else "what the server refuses, its log tells",
            )
        )

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Does nothing: the pool sends users no presence."""

    # -- for callers -------------------------------------------------------------------------------

    async def wait_online(self, timeout_seconds: float) -> None:
        """Returns once the session is up.

        Raises:
            NotAllowed: the credentials were refused.
            Untrusted: the server cannot prove that it is the one that is meant.
            Unreachable: it did not come up in time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._online.is_set():
                    if self.session.refused or self.session.problem:
                        break
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await self._online.wait()
        except TimeoutError:
            pass
        if self.session.refused:
            raise BY_CODE["not-allowed"]("the server refused the login", cause=self.session.refused)
        if self.session.problem:
            raise self.session.problem
        if not self._online.is_set():
            raise Unreachable(cause=self._why or f"no session within {timeout_seconds:g} s")

    async def ask(
        self, request: AnyRequest, timeout_seconds: float = 30.0, *, waits: bool = True
    ) -> Reply:
        """Sends a request and returns its answer.

        While the manager says that the account has too much under way, it waits and asks again:
        nothing was done then (`errors.Busy`). It does the same, up to `PATIENCE_SECONDS`, while the
        server is away, or the manager has yet to connect to it. What only reads it also asks again
        after one of them went away meanwhile; who changes something is told of that.

        Args:
            waits: whether to wait for those that are away; a caller that shows it does not.

        Raises:
            KestrelError: the pool refused it (the class belongs to its code).
            Busy: the manager said so until the time was over.
            UsageError: the request does not fit into a message, and was not sent.
            Unreachable: the manager or the server is away, or went away meanwhile and the request
                may have been heard.
            TimedOut: no answer in time.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        patience_seconds = min(timeout_seconds, PATIENCE_SECONDS) if waits else 0.0
        for refusals in itertools.count(1):
            if not self._online.is_set():
                await self.wait_online(max(0.0, began + patience_seconds - clock()))
            try:
                return await self._ask_once(request, timeout_seconds)
            except (Busy, ManagerAway, PerhapsHeard) as error:
                if isinstance(error, PerhapsHeard) and not request.repeats:
                    raise
                busy = isinstance(error, Busy)
                longest_seconds = LONGEST_SECONDS if busy else LONGEST_PAUSE_SECONDS
                pause = pause_seconds(refusals, random.random(), longest_seconds)
                if clock() + pause >= began + (timeout_seconds if busy else patience_seconds):
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _ask_once(self, request: AnyRequest, timeout_seconds: float) -> Reply:
        request_id = str(next(self._ids))
        payload = stanza.payload_of(msgspec.structs.replace(request, id=request_id))
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._answers.expect(*request.answered_by)
        self._pending[request_id] = future
        pause_seconds = REPEAT_SECONDS if request.may_repeat() else None
        try:
            async with asyncio.timeout(timeout_seconds):
                while not future.done():
                    self.session.send(payload, self._pool)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause_seconds):
                            await asyncio.shield(future)
                answer = future.result()
        except TimeoutError:
            raise TimedOut(
                f"the pool did not answer within {timeout_seconds:g} s",
                hint="`kestrelctl pool status` shows whether the manager is well",
            ) from None
        finally:
            self._pending.pop(request_id, None)
        if isinstance(answer, Failed):
            raise answer.error()
        return answer

    async def request_slot(self, size_bytes: int, filename: str) -> Slot:
        """Asks for a place in the pool's file share (see `slots.request_slot`)."""
        from kestrelctl.xmpp import slots

        return await slots.request_slot(self.session, self._domain, size_bytes, filename)

    async def pushed(self) -> AsyncIterator[Ended]:
        """Yields what the pool sends unasked: the ends of watched jobs."""
        while True:
            yield await self._pushed.get()

    async def task_frames(self) -> AsyncIterator[TaskWrote]:
        """Yields what tasks write to their channels, of jobs whose channels this session opened."""
        while True:
            yield await self._frames.get()

    async def close(self) -> None:
        await self.session.stop()
        self._online.clear()
        closed = self.session.problem = KestrelError("the session with the pool was closed")
        self._fail(closed)

    def _fail(self, error: KestrelError) -> None:
        pending, self._pending = self._pending, {}
        for future in pending.values():
            if not future.done():
                future.set_exception(error)


@contextlib.asynccontextmanager
async def connect_user(
    jid: str,
    password: str,
    pool: str,
    host: str,
    port: int,
    *,
    tls: bool,
    ca_file: Path | None = None,
    timeout_seconds: float = PATIENCE_SECONDS,
) -> AsyncIterator[UserConnection]:
    """Connects to the pool as a user, for the length of a `with`.

    Args:
        ca_file: whom to trust; see `tls.context`.

    Raises:
        KestrelError: as `UserConnection.wait_online`.
    """
    connection = UserConnection(pool)
    connection.session = xmpp_session.client(
        jid, password, host, port, connection, tls=tls, ca_file=ca_file
    )
    connection.session.start()
    try:
        await connection.wait_online(timeout_seconds)
        yield connection
    finally:
        await connection.close()
