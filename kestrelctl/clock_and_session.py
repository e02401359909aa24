"""Interfaces of the shells to the world around them: a clock, and a session with the server.

In production these are `kestrelctl.clock` and `kestrelctl.xmpp.xmpp_session`; a simulated world has
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks


class Clock(Protocol):
    """Time, as seconds since the epoch."""

    def now(self) -> float:
        """Steady time, for decisions; it never goes back."""
        ...

    def wall(self) -> float:
        """The time by the machine's clock, which can be set."""
        ...


class Session(Protocol):
    """A connection to the server that reconnects by itself until it is stopped."""

    @property
    def online(self) -> bool:
        """Whether it is up."""
        ...

    @property
    def refused(self) -> str | None:
        """Set when the server refuses the credentials: trying again would not help."""
        ...

    @property
    def link(self) -> str:
        """The state of the connection, in words."""
        ...

    def start(self) -> None:
        """Begins to connect; `Listener.on_online` follows."""

    async def stop(self) -> None:
        """Sends what is still to be sent and closes the connection."""

    def send(self, payload: str, to: str, sender: str | None = None) -> None:
        """Sends a JSON payload. While offline it is dropped: the protocol repeats what matters."""

    def send_body(self, text: str, to: str, sender: str | None = None) -> None:
        """Sends a chat message for a person."""

    def when_taken(self, done: Callable[[], None]) -> None:
        """Calls `done` when the server has dealt with all that was sent so far.

        It never does so if the connection is lost before.
        """

    def send_presence(
        self,
        to: str,
        kind: str | None = None,
        sender: str | None = None,
        show: str = "",
        status: str = "",
    ) -> None:
        """Sends directed presence; show and status as in RFC 6121, 4.7.2."""

    def backlog_bytes(self) -> int:
        """The bytes that were given to the connection and are not written yet."""
        ...

    def certificate(self) -> tuple[str, float] | None:
        """The server's host and the end of its certificate, seconds since the epoch.

        None if the connection is down, has no TLS, or the certificate was not checked.
        """
        ...


class Listener(Protocol):
    """Hears what a session receives."""

    def on_online(self) -> None:
        """The session is up."""

    def on_offline(self, why: str) -> None:
        """The session is down; it will try again."""

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """A JSON container has arrived."""

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        """A person has sent a chat message."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """A message could not be delivered to `sender`."""

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Somebody is `available` or `unavailable` (or another presence type of RFC 6121)."""
