"""Serves accounts in turns: what one sends is done at once, until it takes more than its share.

Time is what accounts compete for, because the manager does one thing at a time. An account that
has had its share of it waits in a line of its own; the lines take turns, between all that arrives
from others. A line is bounded: what does not fit is refused, and the one who sent it can ask again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from kestrelctl.core.pacing.budget import Budget
from kestrelctl.errors import Busy

#: The part of the manager's time that an account may take without ever waiting.
SHARE = 0.25
#: Seconds of work that an account may cause at once after a rest.
BURST_SECONDS = 0.1
#: The time for which lines are served before others have their turn.
SLICE_SECONDS = 0.005
#: Requests of an account that may be under way at a time: they wait for a commit or for a worker.
MOST_UNFINISHED = 64
#: Accounts that are remembered before those with nothing to remember are looked for.
MANY_ACCOUNTS = 1000


@dataclass(frozen=True)
class LineBounds:
    """The most that may wait.

    Attributes:
        most: pieces of work of one account.
        most_bytes: bytes of one account, as they came.
        most_bytes_together: bytes of all accounts; above it, each may have its part and no more.
    """

    most: int
    most_bytes: int
    most_bytes_together: int


#: An honest user has few requests under way: `submit` sends its lines one after another.
USER_LINES = LineBounds(256, 4 << 20, 32 << 20)
#: An account may have thousands of sessions, which all say hello when the server comes back.
WORKER_LINES = LineBounds(20_000, 16 << 20, 64 << 20)

#: What a user is told whose line is full.
TOO_MANY = Busy(
    "too many requests of this account wait at the manager",
    cause="they were sent faster than they can be answered, or the answers are not read",
    hint="wait for answers before asking more; nothing was done, so ask again",
)


class _Account:
    __slots__ = ("bytes", "in_ring", "name", "spent", "stepping", "unfinished", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.spent = Budget(SHARE, BURST_SECONDS)
        #: (session, size in bytes, what to do)
        self.waiting: deque[tuple[str, int, Callable[[], None]]] = deque()
        self.bytes = 0
        self.in_ring = False
        self.unfinished = 0
        #: A request has been begun, and what its first step costs is not known yet.
        self.stepping = False


class Turns:
    """Work by account, in turns.

    Args:
        now: seconds, steady.
        may_go_on: whether an account may be served now, as far as others can tell.
    """

    def __init__(
        self,
        now: Callable[[], float],
        bounds: LineBounds,
        may_go_on: Callable[[str], bool] = lambda account: True,
    ) -> None:
        self._now = now
        self._bounds = bounds
        self._may_go_on = may_go_on
        self._accounts: dict[str, _Account] = {}
        self._ring: deque[_Account] = deque()
        self._planned = False
        self._began = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        #: The bytes of all that waits.
        self.waiting_bytes = 0

    def take(self, jid: str, account: str, size_bytes: int, work: Callable[[], None]) -> bool:
        """Does something now or when it is the account's turn, in the order in which it came.

        Args:
            jid: the session that wants it done.

        Returns:
            False if the account's line is full: it will not be done.
        """
        found = self._account(account)
        began = self._now()
        if not found.waiting and self._may_start(found) and found.spent.has_room(began):
            self._do(found, work, began)
            return True
        if len(found.waiting) >= self._bounds.most or not self._has_room(found, size_bytes):
            return False
        self._line_up(found)
        found.waiting.append((jid, size_bytes, work))
        found.bytes += size_bytes
        self.waiting_bytes += size_bytes
        self.go_on()
        return True

    def spawn(self, account: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begins work that may last, and charges the account for its first step.

        What comes after the first step has waited for a commit or a worker, and is little.
        """
        found = self._account(account)
        found.unfinished += 1
        found.stepping = True
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._timed(work))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._finished(task, found))
        loop.call_soon(self._stepped, found)

    def drop(self, jid: str) -> int:
        """Forgets what a session wants done, because it has gone; returns how much that was."""
        account = self._accounts.get(jid.partition("/")[0])
        if account is None:
            return 0
        kept = [entry for entry in account.waiting if entry[0] != jid]
        dropped = len(account.waiting) - len(kept)
        gone_bytes = account.bytes - sum(size for _, size, _ in kept)
        account.bytes -= gone_bytes
        self.waiting_bytes -= gone_bytes
        account.waiting.clear()
        account.waiting.extend(kept)
        return dropped

    def go_on(self) -> None:
        """Looks soon whether a line can be served."""
        if self._ring and not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._slice)

    # -- inside ------------------------------------------------------------------------------------

    def _account(self, name: str) -> _Account:
        found = self._accounts.get(name)
        if found is None:
            if len(self._accounts) >= MANY_ACCOUNTS:
                self._forget_the_quiet()
            found = self._accounts[name] = _Account(name)
        return found

    def _forget_the_quiet(self) -> None:
        moment = self._now()
        for name, account in list(self._accounts.items()):
            busy = account.waiting or account.unfinished
            if not busy and account.spent.is_untouched(moment):
                del self._accounts[name]

    def _may_start(self, account: _Account) -> bool:
        return (
            not account.stepping
            and account.unfinished < MOST_UNFINISHED
            and self._may_go_on(account.name)
        )

    def _has_room(self, account: _Account, size_bytes: int) -> bool:
        own = account.bytes + size_bytes
        if own > self._bounds.most_bytes:
            return False
        together = self._bounds.most_bytes_together
        if self.waiting_bytes + size_bytes <= together:
            return True
        return own <= together // max(1, len(self._ring))

    def _line_up(self, account: _Account) -> None:
        if not account.in_ring:
            account.in_ring = True
            self._ring.append(account)

    def _do(self, account: _Account, work: Callable[[], None], began: float) -> None:
        try:
            work()
        finally:
            ended = self._now()
            account.spent.spend(ended - began, ended)

    def _slice(self) -> None:
        """Serves the lines in turns for a moment, and plans to go on after others had theirs."""
        self._planned = False
        until = self._now() + SLICE_SECONDS
        blocked = 0
        while self._ring and blocked < len(self._ring):
            account = self._ring.popleft()
            account.in_ring = False
            if not account.waiting:
                continue
            if not self._may_start(account):
                self._line_up(account)
                blocked += 1
                continue
            blocked = 0
            _, size, work = account.waiting.popleft()
            account.bytes -= size
            self.waiting_bytes -= size
            if account.waiting:
                self._line_up(account)
            try:
                self._do(account, work, self._now())
            except BaseException:
                self.go_on()
                raise
            if account.stepping or self._now() >= until:
                self.go_on()
                return

    async def _timed(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._began = self._now()
        await work()

    def _stepped(self, account: _Account) -> None:
        """Charges an account for its work's first step: nothing else has run since it began."""
        account.stepping = False
        moment = self._now()
        account.spent.spend(moment - self._began, moment)
        self.go_on()

    def _finished(self, task: asyncio.Task[None], account: _Account) -> None:
        self._tasks.discard(task)
        account.unfinished -= 1
        self.go_on()
