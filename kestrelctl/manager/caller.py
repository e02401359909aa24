"""Who asks the pool something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kestrelctl.manager.access import bare
from kestrelctl.protocol.answers import Reply


@dataclass(frozen=True)
class Caller:
    """A user's session, and how to answer it: `reply` sends one message to exactly that session.

    Attributes:
        shared: whether the pool's users see each other's jobs whole.
    """

    jid: str
    admin: bool
    reply: Callable[[Reply], None]
    shared: bool = False

    @property
    def user(self) -> str:
        """The account behind the session."""
        return bare(self.jid)

    def owns(self, owner: str) -> bool:
        """Whether jobs of that account are the caller's to change and to read in all details."""
        return owner == self.user or self.admin

    @property
    def sees_all(self) -> bool:
        """Whether everybody's jobs are shown to the caller whole."""
        return self.shared or self.admin

    def sees(self, owner: str) -> bool:
        """Whether jobs of that account are shown to the caller whole, and not as a summary."""
        return self.shared or self.owns(owner)
