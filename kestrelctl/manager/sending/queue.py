"""Sends the manager's messages in lanes over one connection: work, other pools, answers, polls.

The server deals with all that it is sent in its order. A pool may hand out a hundred megabytes in a
moment (many workers, tasks with large arguments), and whatever else was to be sent would wait for
minutes behind them. So what goes to workers waits here, in its order, while the connection has
much to deal with, and the other lanes overtake it.

An operator may also limit what is sent, of each kind and of all. What may not go yet waits in its
lane, and work goes before everything else. Whoever sends does not wait: answers to users are held
back by the outbox while many bytes of them wait here, and work comes only for workers that have
reported. Of equal polls of a worker only one waits: however low the limit, there are no more of
them than there are workers and different polls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from kestrelctl.clock_and_session import Session
from kestrelctl.core.pacing.send_limit import Bucket, SendKind, SendLimit
from kestrelctl.timer import Timer

#: The lanes, in the order in which messages go when some wait in all of them.
LANES = (SendKind.WORK, SendKind.FLOCK, SendKind.ANSWERS, SendKind.POLLS)
#: The lanes to workers: no more goes there while the server has so much to deal with. Answers alone
#: stay below it for most of the time (`outbox.ROOM_BYTES`), so that work has its turn, too.
TO_WORKERS = (SendKind.WORK, SendKind.POLLS)
MOST_BYTES = 512 * 1024
#: The time between two looks at the connection while something waits for room.
LOOK_SECONDS = 0.005
#: The least time until the loop is woken: what is due a moment later goes with it.
SHORTEST_PAUSE_SECONDS = 0.001

#: The beginning of a message that asks a worker for values.
_POLL = '{"type":"read_properties"'


class _Message(NamedTuple):
    text: str
    to: str
    sender: str | None
    typed: bool


class SendQueue:
    """A `Session` that sends what may go, and keeps the rest until it may.

    Args:
        session: the connection.
        now: steady seconds.
        limits: of the kinds that have one, and of everything together.
    """

    def __init__(
        self,
        session: Session,
        now: Callable[[], float],
        limits: Mapping[SendKind, SendLimit] | None = None,
    ) -> None:
        self._session = session
        self._now = now
        self._lanes: dict[SendKind, deque[_Message]] = {kind: deque() for kind in LANES}
        #: The polls that wait: another one that asks a worker for the same is not needed.
        self._polls: set[_Message] = set()
        #: The bytes of what waits and does not go to workers.
        self._waiting_bytes = 0
        buckets = {kind: Bucket(limit) for kind, limit in (limits or {}).items()}
        self._buckets = {
            kind: [buckets[each] for each in (kind, SendKind.ALL) if each in buckets]
            for kind in LANES
        }
        self._timer = Timer(self._look)
        self._when_gone: list[Callable[[], None]] = []

    # -- what goes when it may ---------------------------------------------------------------------

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload, now or when it may go. While offline it is dropped."""
        self._put(_kind_of(sender, payload), _Message(payload, to, sender, False))

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message, in the same way: for a person, or a worker that is sent these."""
        self._put(_kind_of(sender, text), _Message(text, to, sender, True))

    def waiting(self) -> dict[str, int]:
        """The number of messages of each kind that wait."""
        return {kind.value: len(lane) for kind, lane in self._lanes.items()}

    def forget_waiting(self) -> None:
        """Drops all that waits: the connection was lost, and workers are told anew what is true."""
        for lane in self._lanes.values():
            lane.clear()
        self._polls.clear()
        self._waiting_bytes = 0
        self._when_gone.clear()

    def forget_polls(self, to: str) -> None:
        """Drops the polls that wait for a worker, because it has gone."""
        polls = self._lanes[SendKind.POLLS]
        kept = deque(each for each in polls if each.to != to)
        self._polls.difference_update(each for each in polls if each.to == to)
        self._lanes[SendKind.POLLS] = kept

    def _put(self, kind: SendKind, message: _Message) -> None:
        lane = self._lanes[kind]
        if not lane and not self._pause_seconds(kind):
            self._write(kind, message)
            return
        if kind is SendKind.POLLS:
            if message in self._polls:
                return
            self._polls.add(message)
        lane.append(message)
        if kind not in TO_WORKERS:
            self._waiting_bytes += len(message.text)
        self._look_later()

    def _pause_seconds(self, kind: SendKind) -> float:
        """The time after which to try again; 0 if the next message of a kind may go."""
        if kind in TO_WORKERS and self._session.backlog_bytes() >= MOST_BYTES:
            return LOOK_SECONDS
        buckets = self._buckets[kind]
        if not buckets:
            return 0.0
        now = self._now()
        return max(bucket.pause_seconds(now) for bucket in buckets)

    def _write(self, kind: SendKind, message: _Message) -> None:
        for bucket in self._buckets[kind]:
            bucket.take(len(message.text), self._now())
        send = self._session.send_body if message.typed else self._session.send
        send(message.text, message.to, message.sender)

    def _write_next(self, kind: SendKind) -> None:
        message = self._lanes[kind].popleft()
        if kind is SendKind.POLLS:
            self._polls.discard(message)
        if kind not in TO_WORKERS:
            self._waiting_bytes -= len(message.text)
        self._write(kind, message)

    def _look_later(self) -> None:
        if not self._timer.is_set:
            pause = min(self._pause_seconds(kind) for kind, lane in self._lanes.items() if lane)
            self._timer.set(max(pause, SHORTEST_PAUSE_SECONDS))

    def _look(self) -> None:
        """Sends what may go now: of each kind in its order, and work first."""
        for kind, lane in self._lanes.items():
            while lane and not self._pause_seconds(kind):
                self._write_next(kind)
        if any(self._lanes.values()):
            self._look_later()
        if not self._waiting_bytes:
            gone, self._when_gone = self._when_gone, []
            for done in gone:
                self._session.when_taken(done)

    # -- the connection ----------------------------------------------------------------------------

    @property
    def online(self) -> bool:
        return self._session.online

    @property
    def refused(self) -> str | None:
        return self._session.refused

    @property
    def link(self) -> str:
        return self._session.link

    def start(self) -> None:
        self._session.start()

    async def stop(self) -> None:
        """Sends what waits, whatever the limits say, and closes the connection."""
        self._timer.stop()
        for kind, lane in self._lanes.items():
            while lane:
                self._write_next(kind)
        await self._session.stop()

    def when_taken(self, done: Callable[[], None]) -> None:
        """Calls `done` when the server has dealt with all that was sent so far.

        What waits for workers does not count: the other lanes overtake it.
        """
        if self._waiting_bytes:
            self._when_gone.append(done)
        else:
            self._session.when_taken(done)

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        self._session.send_presence(to, kind, sender, show, status)

    def backlog_bytes(self) -> int:
        """The bytes that go before an answer that is sent now: not what waits for workers."""
        return self._session.backlog_bytes() + self._waiting_bytes

    def certificate(self) -> tuple[str, float] | None:
        return self._session.certificate()


def _kind_of(sender: str | None, text: str) -> SendKind:
    """The kind of a message, by the address that it comes from and by what it is.

    Args:
        sender: None for the pool's domain.
        text: its payload.
    """
    name = (sender or "").partition("@")[0]
    if name == "pool":
        return SendKind.POLLS if text.startswith(_POLL) else SendKind.WORK
    return SendKind.FLOCK if name == "flock" else SendKind.ANSWERS
