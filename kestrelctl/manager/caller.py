"""Who asks the pool something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kestrelctl.manager.access import bare
from kestrelctl.protocol.answers import Reply


@dataclass(frozen=True)
class Caller:
    """A user's session, and how to answer it: `reply` sends one message to exactly that session."""

    jid: str
    admin: bool
    reply: Callable[[Reply], None]

    @property
    def user(self) -> str:
        """The account behind the session."""
        return bare(self.jid)
