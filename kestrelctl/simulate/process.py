"""A process that can be killed, stopped and continued, and that connects again and again."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kestrelctl.core.pacing.backoff import pause_seconds
from kestrelctl.simulate.clock import Clock
from kestrelctl.simulate.network import Link, Server


class Process:
    """What manager and worker have in common: a life of their own and one connection.

    Everything that happens inside goes through `arrange` or `enter`: it happens later while the
    process is stopped (SIGSTOP), and never once it was killed.
    """

    def __init__(self, name: str, clock: Clock, random: Random, server: Server) -> None:
        self.name = name
        self.clock = clock
        self.random = random
        self.server = server
        self.life = 0  #: which process of this name it is
        self.alive = False
        self.stopped = False
        self.cut_off = False
        self.link: Link | None = None
        self.disturbed_at = clock.now  #: when something last happened to it
        self._tries = 0
        self._deferred: list[tuple[Callable[..., None], tuple[Any, ...]]] = []

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> None:
        """A new process begins, if there is none."""
        if self.alive:
            return
        self.alive = True
        self.life += 1
        self._tries = 0
        self._tell("starts", self.life)
        self.on_start()
        self._connect()

    def kill(self) -> None:
        """The process ends without a word; the kernel closes its connection."""
        if not self.alive:
            return
        self._tell("is killed")
        self._end()
        self.on_killed()

    def _end(self) -> None:
        self.alive = False
        self.stopped = False
        self._deferred.clear()
        self.life += 1
        if self.link is not None:
            self.link.close(lossy=self.random.random() < 0.5)
            self.link = None

    def stop(self) -> None:
        """SIGSTOP: nothing happens inside until it is continued."""
        if self.alive and not self.stopped:
            self._tell("hangs")
            self.stopped = True

    def go_on(self) -> None:
        """SIGCONT: what should have happened happens now."""
        if not self.stopped:
            return
        self._tell("goes on")
        self.stopped = False
        deferred, self._deferred = self._deferred, []
        life = self.life
        for action, arguments in deferred:
            self.enter(life, action, *arguments)

    def arrange(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Has this process do something later."""
        self.clock.after(seconds, self.enter, self.life, action, *arguments)

    def enter(self, life: int, action: Callable[..., None], *arguments: Any) -> None:
        """Does something in this process if it is still that one."""
        if life != self.life:
            return
        if self.stopped:
            self._deferred.append((action, arguments))
        else:
            action(*arguments)

    def _tell(self, what: str, *details: object) -> None:
        self.disturbed_at = self.clock.now
        self.clock.tell(self.name, what, *details)

    # -- connection --------------------------------------------------------------------------------

    def _connect(self) -> None:
        if self.link is not None:
            return
        life = self.life
        link = None
        if not self.cut_off:
            link = self.server.connect(
                self.name,
                lambda link, message: self.enter(life, self._receive, link, message),
                lambda link: self.enter(life, self._closed, link),
            )
        if link is None:
            self._connect_later()
            return
        self._tries = 0
        self.link = link
        self.on_connected()

    def _connect_later(self) -> None:
        self._tries += 1
        self.arrange(pause_seconds(self._tries, self.random.random()), self._connect)

    def _receive(self, link: Link, message: Any) -> None:
        if link is self.link:
            self.on_message(message)

    def _closed(self, link: Link) -> None:
        if link is self.link:
            self._tell("loses its connection")
            self.link = None
            self.on_disconnected()
            self._connect_later()

    def send(self, message: Any) -> None:
        """Says something, if there is a connection."""
        if self.link is not None:
            self.link.send(message)

    def drop_connection(self) -> None:
        """Its connection breaks, with what was in flight."""
        if self.link is not None:
            link = self.link
            link.close(lossy=True)
            self.enter(self.life, self._closed, link)

    def cut(self) -> None:
        """The machine is cut off: nothing arrives or leaves, nobody is told."""
        self._tell("is cut off")
        self.cut_off = True
        if self.link is not None:
            self.link.cut()

    def heal(self) -> None:
        """The machine is reachable again."""
        if not self.cut_off:
            return
        self._tell("is reachable again")
        self.cut_off = False
        if self.link is not None:
            self.link.heal()

    # -- for the two kinds -------------------------------------------------------------------------

    def on_start(self) -> None:
        """A new process has begun."""

    def on_killed(self) -> None:
        """The process has ended without a word."""

    def on_connected(self) -> None:
        """There is a connection."""

    def on_disconnected(self) -> None:
        """There is none any more."""

    def on_message(self, message: Any) -> None:
        """A message has arrived."""
