"""Sends requests whose answer is lost again, over a fresh connection, if they may be sent twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, TypeVar

from kestrelctl.access.connection import Connection, ask
from kestrelctl.cli.show.screen import Screen
from kestrelctl.errors import KestrelError, NotFound, TimedOut, Undelivered, Unreachable
from kestrelctl.protocol.request import Changed

if TYPE_CHECKING:
    from kestrelctl.protocol.requests import AnyRequest

T = TypeVar("T")

#: Pauses before the second and each further try: long enough for a manager that is restarted.
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


class Redial:
    """A connection to the pool that can be made anew, for the length of a `with`.

    Args:
        open_pool: makes a connection.

    Attributes:
        connection: the present connection.
    """

    connection: Connection

    def __init__(
        self, open_pool: Callable[[], AbstractAsyncContextManager[Connection]], screen: Screen
    ) -> None:
        self._open_pool = open_pool
        self._screen = screen
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Redial:
        await self._connect()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def _connect(self) -> None:
        self.connection = await self._stack.enter_async_context(self._open_pool())

    async def change(self, request: AnyRequest, *, twice: bool) -> Changed:
        """Sends a request that changes something, and returns the answer.

        Args:
            twice: whether it is safe to send it again.
        """

        async def send(connection: Connection) -> Changed:
            return await ask(connection, request, Changed)

        hint = "look at what it was to change before you ask again"
        return await self.until_answered(send, hint, pauses=PAUSES_SECONDS if twice else ())

    async def until_answered(
        self,
        send: Callable[[Connection], Awaitable[T]],
        hint: str,
        *,
        pauses: tuple[float, ...] | None = None,
    ) -> T:
        """Returns what `send` returns, and calls it again when the answer is lost.

        Args:
            send: sends something that may be sent twice.
            hint: the hint for the user if no answer comes at all.
            pauses: seconds before the second and each further try.

        Raises:
            Undelivered: the first try did not reach the manager.
            Unreachable: the last try had no answer because the connection was lost.
            TimedOut: the last try had no answer in time.
            KestrelError: the pool refused it.
        """
        try:
            return await send(self.connection)
        except Undelivered:
            raise
        except (Unreachable, TimedOut) as error:
            lost: KestrelError = error
        import asyncio  # here: seldom is an answer lost

        for pause in PAUSES_SECONDS if pauses is None else pauses:
            self._screen.warn(
                f"no answer came: {lost.message}",
                cause=lost.cause,
                hint=_and_its_own("it is sent again, which cannot do it twice", lost),
            )
            await asyncio.sleep(pause)
            try:
                await self._stack.aclose()
                await self._connect()
                return await send(self.connection)
            except (Unreachable, TimedOut) as error:
                lost = error
            except NotFound as error:
                cause = "an earlier try, whose answer was lost, may have done it"
                raise NotFound(error.message, cause=cause, hint=error.hint) from None
        kind = TimedOut if isinstance(lost, TimedOut) else Unreachable
        raise kind(
            lost.message,
            cause="it may have been done all the same",
            hint=_and_its_own(hint, lost),
        ) from lost


def _and_its_own(hint: str, lost: KestrelError) -> str:
    """A hint, and behind it that of the error itself."""
    return f"{hint}; {lost.hint}" if lost.hint else hint
