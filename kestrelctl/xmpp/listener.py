"""The port between a session and who hears what it receives."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Who hears what a session receives."""

    def on_online(self) -> None:
        """The session is up."""

    def on_offline(self, why: str) -> None:
        """The session is down; it will try again."""

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """A JSON container has arrived."""

    def on_body(self, sender: str, to: str, body: str) -> None:
        """Somebody typed something."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """A message could not be delivered to `sender`."""

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Somebody is `available` or `unavailable` (or another presence type of RFC 6121)."""
