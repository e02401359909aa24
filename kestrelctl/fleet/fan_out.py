"""Work on many hosts at the same time, a bounded number of them, each with its own outcome."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from kestrelctl.errors import KestrelError, Unreachable
from kestrelctl.fleet.host import Host
from kestrelctl.fleet.shell import Connect, Shell

#: How long a caller that stops waits for connections to close: one was once seen not to close.
CLOSE_SECONDS = 5.0

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HostOutcome(Generic[T]):
    """The outcome of the work on a host: a value or an error."""

    host: str
    value: T | None = None
    error: KestrelError | None = None


@dataclass(frozen=True, slots=True)
class Said(Generic[S]):
    """Something that the work on a host reports before it is done."""

    host: str
    what: S


async def each(
    hosts: Sequence[Host], connect: Connect, work: Callable[[Shell], T], *, at_once: int
) -> AsyncIterator[HostOutcome[T]]:
    """Does the work on every host, and tells of each as soon as it is done; see `stream`."""

    def alone(shell: Shell, _say: Callable[[None], None]) -> T:
        return work(shell)

    events = stream(hosts, connect, alone, at_once=at_once)
    async with contextlib.aclosing(events):
        async for event in events:
            if isinstance(event, HostOutcome):
                yield event


async def stream(
    hosts: Sequence[Host],
    connect: Connect,
    work: Callable[[Shell, Callable[[S], None]], T],
    *,
    at_once: int,
) -> AsyncGenerator[Said[S] | HostOutcome[T]]:
    """Does the work on every host; yields what it reports on the way, and its outcome.

    If the caller stops iterating, what still runs is ended, also on the hosts. The threads are
    daemons, so that one that waits for a host cannot keep the process alive.

    Args:
        work: runs in a thread of its own, with a function to say things with; a KestrelError that
            it raises is its outcome.
        at_once: the most hosts at a time.
    """
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[Said[S] | HostOutcome[T] | BaseException] = asyncio.Queue()
    todo: SimpleQueue[Host] = SimpleQueue()
    shells = _Shells()
    for host in hosts:
        todo.put(host)

    def tell(event: Said[S] | HostOutcome[T] | BaseException) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the caller has gone
            loop.call_soon_threadsafe(events.put_nowait, event)

    def say(name: str, what: S) -> None:
        tell(Said(name, what))

    def labour() -> None:
        with contextlib.suppress(Empty):
            while not shells.closed:
                name = (host := todo.get_nowait()).name
                try:
                    with shells.opened(connect(host)) as shell:
                        value = work(shell, partial(say, name))
                    tell(HostOutcome(name, value=value))
                except KestrelError as error:
                    tell(HostOutcome(name, error=error))
                except BaseException as error:
                    tell(error)

    for _ in range(min(at_once, len(hosts))):
        threading.Thread(target=labour, daemon=True).start()
    left = len(hosts)
    try:
        while left:
            event = await events.get()
            if isinstance(event, BaseException):
                raise event
            left -= isinstance(event, HostOutcome)
            yield event
    finally:
        shells.close()


class _Shells:
    """The open shells, so that another thread can close them."""

    def __init__(self) -> None:
        self.closed = False
        self._open: set[Shell] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, shell: Shell) -> Iterator[Shell]:
        with self._lock:
            self._open.add(shell)
        try:
            if self.closed:
                raise Unreachable("nobody waits for this host any more")
            yield shell
        finally:
            with self._lock:
                self._open.discard(shell)
            shell.close()

    def close(self) -> None:
        """Closes all of them, but waits only for a while for hosts that do not take notice."""
        with self._lock:
            self.closed = True
            shells = list(self._open)
        closing = [threading.Thread(target=shell.close, daemon=True) for shell in shells]
        for thread in closing:
            thread.start()
        give_up_at = time.monotonic() + CLOSE_SECONDS
        for thread in closing:
            thread.join(max(0.0, give_up_at - time.monotonic()))
