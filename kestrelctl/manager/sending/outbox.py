"""Answers on their way to users: written as fast as the server takes them, in turns by account.

What the connection holds is one for all: an answer that waits there keeps attempts from workers and
answers from everybody else. So little is given to it at a time, small answers before large ones.

Where tasks are large, work alone may fill the connection for as long as there is any. So an answer
waits there no longer than for what was before it: a mark is sent, and when the server has come as
far as that, a few answers go whatever has followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from kestrelctl.clock_and_session import Session
from kestrelctl.timer import Timer

#: An answer that is not larger goes out at once while the connection has room.
SMALL_BYTES = 16 * 1024
#: Answers are held back while more than this waits in the connection.
ROOM_BYTES = 256 * 1024
#: The bytes that go each time the server has dealt with what was before; a begun answer goes whole.
PASSING_BYTES = 64 * 1024
#: Above this, requests of an account wait until its answers have gone out.
ENOUGH_BYTES = 1 << 20
#: Above these, answers to an account are dropped: it asked for them and does not take them.
MOST_BYTES = 4 << 20
MOST_ANSWERS = 1000
#: The time between two looks at the connection while answers wait.
LOOK_SECONDS = 0.005


class _Answer(NamedTuple):
    jid: str
    text: str
    typed: bool  #: a person asked
    sender: str


class _Line:
    __slots__ = ("bytes", "large", "small")

    def __init__(self) -> None:
        self.small: deque[_Answer] = deque()
        self.large: deque[_Answer] = deque()
        self.bytes = 0


class Outbox:
    """Answers that wait for room.

    Args:
        session: the connection as it is now.
        sender: the address that answers come from.
        drained: called with nothing when an account's answers have gone out.
    """

    def __init__(
        self, session: Callable[[], Session], sender: str, drained: Callable[[], None]
    ) -> None:
        self._session = session
        self._sender = sender
        self._drained = drained
        self._lines: dict[str, _Line] = {}
        self._timer = Timer(self._look)
        #: A mark is on its way through the connection.
        self._marked = False

    def put(self, jid: str, text: str, *, typed: bool, sender: str = "") -> bool:
        """Sends an answer, now or in its turn.

        Args:
            typed: whether a person asked.
            sender: the address that it comes from, if it is not that of the others.

        Returns:
            False if it was dropped: too much waits for that account.
        """
        account = jid.partition("/")[0]
        answer = _Answer(jid, text, typed, sender or self._sender)
        small = len(text) <= SMALL_BYTES
        if (small or not self._lines) and self._has_room():
            self._send(answer)
            return True
        line = self._lines.setdefault(account, _Line())
        if line.bytes + len(text) > MOST_BYTES or len(line.small) + len(line.large) >= MOST_ANSWERS:
            return False
        (line.small if small else line.large).append(answer)
        line.bytes += len(text)
        self._mark()
        self._look_soon()
        return True

    def has_room(self, account: str) -> bool:
        """Whether so little waits for an account that it may ask for more."""
        line = self._lines.get(account)
        return line is None or line.bytes < ENOUGH_BYTES

    def waiting_bytes(self) -> int:
        """The bytes of all answers that wait."""
        return sum(line.bytes for line in self._lines.values())

    def drop(self, jid: str) -> int:
        """Forgets the answers to a session that has gone; returns how many there were."""
        account = jid.partition("/")[0]
        line = self._lines.get(account)
        if line is None:
            return 0
        dropped = 0
        for waiting in (line.small, line.large):
            kept = [entry for entry in waiting if entry.jid != jid]
            dropped += len(waiting) - len(kept)
            waiting.clear()
            waiting.extend(kept)
        line.bytes = sum(len(entry.text) for each in (line.small, line.large) for entry in each)
        if not line.bytes:
            del self._lines[account]
        return dropped

    def _has_room(self) -> bool:
        """Whether little waits in the connection; a mark that is still out has been lost then."""
        if self._session().backlog_bytes() >= ROOM_BYTES:
            return False
        self._marked = False
        return True

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self._session().when_taken(self._let_some_pass)

    def _let_some_pass(self) -> None:
        """Sends a few answers: what was in the connection when they came has been dealt with."""
        self._marked = False
        sent_bytes = 0
        while self._lines and sent_bytes < PASSING_BYTES:
            sent_bytes += self._send_next()
        if self._lines:
            self._mark()
        self._drained()

    def _look_soon(self) -> None:
        self._timer.set_once(LOOK_SECONDS)

    def _look(self) -> None:
        while self._lines and self._has_room():
            self._send_next()
        if self._lines:
            self._look_soon()
        self._drained()

    def _send_next(self) -> int:
        """Sends one answer: a small one if there is any; accounts take turns. Returns its size."""
        account = next((name for name, line in self._lines.items() if line.small), "")
        account = account or next(iter(self._lines))
        line = self._lines.pop(account)
        answer = (line.small or line.large).popleft()
        line.bytes -= len(answer.text)
        if line.small or line.large:
            self._lines[account] = line  # at the end: a dict keeps the order in which it was filled
        self._send(answer)
        return len(answer.text)

    def _send(self, answer: _Answer) -> None:
        session = self._session()
        send = session.send_body if answer.typed else session.send
        send(answer.text, answer.jid, answer.sender)
