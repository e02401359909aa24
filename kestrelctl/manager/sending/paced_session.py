"""The manager's connection, with limits on what is sent over it: of each kind, and of all.

What may not go yet waits in the order in which it came, each kind in a line of its own, and work
for workers goes before everything else. Whoever sends does not wait: answers to users are held back
by the outbox while many bytes wait here, and work comes only for workers that have reported. Of
polls of a worker that are the same one waits: however low the limit, there are no more of them than
there are workers and different polls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kestrelctl.clock_and_session import Session
from kestrelctl.core.pacing.send_limit import Bucket, SendLimit
from kestrelctl.manager.sending.send_kind import KINDS, SendKind, kind_of
from kestrelctl.manager.sending.session_layer import SessionLayer

#: The loop is not woken sooner than this: what is due a moment later goes with it.
SHORTEST_PAUSE_SECONDS = 0.001


class _Waiting(NamedTuple):
    text: str
    to: str
    sender: str | None
    typed: bool


class PacedSession(SessionLayer):
    """A `ports.Session` that sends no faster than it may.

    Args:
        session: the connection.
        limits: of the kinds that have one, and of everything together.
        now: steady seconds.
    """

    def __init__(
        self,
        session: Session,
        limits: Mapping[SendKind, SendLimit],
        now: Callable[[], float],
    ) -> None:
        super().__init__(session)
        self._now = now
        self._lines: dict[SendKind, deque[_Waiting]] = {kind: deque() for kind in KINDS}
        #: Those that wait: another one that asks a worker for the same is not needed.
        self._polls: set[_Waiting] = set()
        self._waiting_bytes = 0
        buckets = {kind: Bucket(limit) for kind, limit in limits.items()}
        self._buckets = {
            kind: [buckets[each] for each in (kind, SendKind.ALL) if each in buckets]
            for kind in KINDS
        }
        self._timer: asyncio.TimerHandle | None = None
        self._when_empty: list[Callable[[], None]] = []

    # -- what goes at its own time -----------------------------------------------------------------

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload, now or when it may go. While offline it is dropped."""
        self._put(kind_of(sender, payload), _Waiting(payload, to, sender, False))

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message for a person, in the same way."""
        self._put(kind_of(sender, text), _Waiting(text, to, sender, True))

    def waiting(self) -> dict[str, int]:
        """How many messages of each kind wait for their time."""
        return {kind.value: len(line) for kind, line in self._lines.items()}

    def forget_waiting(self) -> None:
        """Drops all that waits: the connection was lost, and nobody there expects it any more."""
        for line in self._lines.values():
            line.clear()
        self._polls.clear()
        self._waiting_bytes = 0
        self._when_empty.clear()

    def forget_polls(self, to: str) -> None:
        """Drops the polls that wait for a worker, because it has gone."""
        kept = deque(each for each in self._lines[SendKind.POLLS] if each.to != to)
        for message in self._lines[SendKind.POLLS]:
            if message.to == to:
                self._polls.discard(message)
                self._waiting_bytes -= len(message.text)
        self._lines[SendKind.POLLS] = kept

    def _put(self, kind: SendKind, message: _Waiting) -> None:
        line = self._lines[kind]
        if not line and not self._pause_seconds(kind):
            self._write(kind, message)
            return
        if kind is SendKind.POLLS:
            if message in self._polls:
                return
            self._polls.add(message)
        line.append(message)
        self._waiting_bytes += len(message.text)
        self._look_later()

    def _pause_seconds(self, kind: SendKind) -> float:
        now = self._now()
        return max((bucket.pause_seconds(now) for bucket in self._buckets[kind]), default=0.0)

    def _write(self, kind: SendKind, message: _Waiting) -> None:
        now = self._now()
        for bucket in self._buckets[kind]:
            bucket.take(len(message.text), now)
        send = self._session.send_body if message.typed else self._session.send
        send(message.text, message.to, message.sender)

    def _look_later(self) -> None:
        if self._timer is not None:
            return
        pause = min(self._pause_seconds(kind) for kind, line in self._lines.items() if line)
        later = max(pause, SHORTEST_PAUSE_SECONDS)
        self._timer = asyncio.get_running_loop().call_later(later, self._look)

    def _look(self) -> None:
        """Sends what may go now: of each kind in its order, and work first."""
        self._timer = None
        for kind, line in self._lines.items():
            while line and not self._pause_seconds(kind):
                message = line.popleft()
                self._polls.discard(message)
                self._waiting_bytes -= len(message.text)
                self._write(kind, message)
        if any(self._lines.values()):
            self._look_later()
            return
        done, self._when_empty = self._when_empty, []
        for each in done:
            self._session.when_taken(each)

    # -- the connection ----------------------------------------------------------------------------

    async def stop(self) -> None:
        """Sends what waits, whatever the limits say, and closes the connection."""
        if self._timer is not None:
            self._timer.cancel()
        for kind, line in self._lines.items():
            while line:
                self._write(kind, line.popleft())
        await self._session.stop()

    def when_taken(self, done: Callable[[], None]) -> None:
        if any(self._lines.values()):
            self._when_empty.append(done)
        else:
            self._session.when_taken(done)

    def backlog_bytes(self) -> int:
        return self._session.backlog_bytes() + self._waiting_bytes
