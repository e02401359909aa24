"""The manager's connection, in which only so much work for workers waits at a time.

The server deals with all that it is sent in its order. A pool may hand out a hundred megabytes in a
moment (many workers, tasks with large arguments), and whatever else was to be sent would wait for
minutes behind them. So the rest of the work waits here, in its order, and answers overtake it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from kestrelctl.clock_and_session import Session
from kestrelctl.manager.sending.session_layer import SessionLayer

#: No more work goes while the server has so much to deal with. Answers alone stay below it for most
#: of the time (`outbox.ROOM_BYTES`), so that work has its turn, too.
MOST_BYTES = 512 * 1024
#: How often the connection is looked at while work waits.
LOOK_SECONDS = 0.005


class WorkWindow(SessionLayer):
    """A `ports.Session` that holds work back.

    Args:
        session: the connection.
        pool: the address that work comes from; what comes from others is never held back.
    """

    def __init__(self, session: Session, pool: str) -> None:
        super().__init__(session)
        self._pool = pool
        self._waiting: deque[Callable[[], None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    # -- work --------------------------------------------------------------------------------------

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload; work, when there is room. While offline it is dropped."""
        if sender == self._pool and not self._has_room():
            self._wait(partial(self._session.send, payload, to, sender))
        else:
            self._session.send(payload, to, sender)

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message, in the same way: some workers are sent these."""
        if sender == self._pool and not self._has_room():
            self._wait(partial(self._session.send_body, text, to, sender))
        else:
            self._session.send_body(text, to, sender)

    def forget_waiting(self) -> None:
        """Drops all that waits: the connection was lost, and workers are told anew what is true."""
        self._waiting.clear()

    def _has_room(self) -> bool:
        return not self._waiting and self._session.backlog_bytes() < MOST_BYTES

    def _wait(self, send: Callable[[], None]) -> None:
        self._waiting.append(send)
        self._look_soon()

    def _look_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer = None
        while self._waiting and self._session.backlog_bytes() < MOST_BYTES:
            self._waiting.popleft()()
        if self._waiting:
            self._look_soon()

    # -- the connection ----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Sends what waits and closes the connection."""
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._waiting.popleft()()
        await self._session.stop()

    def when_taken(self, done: Callable[[], None]) -> None:
        """Calls `done` when the server has dealt with all that has gone so far: not what waits."""
        self._session.when_taken(done)

    def backlog_bytes(self) -> int:
        """Without the work that waits here, which answers overtake."""
        return self._session.backlog_bytes()
