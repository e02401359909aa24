"""The caller, who asks the pool something."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kestrelctl.manager.access import Access, bare
from kestrelctl.protocol.request import Reply

#: The owner of what belongs to no user. Admins own it, too.
THE_POOL = ""


def no_answer(reply: Reply) -> None:
    """Drops an answer: the `reply` of a caller who is told nothing in this way."""


@dataclass(frozen=True)
class Caller:
    """A user's session, and how to answer it: `reply` sends one message to exactly that session.

    Attributes:
        admin: what `owns` knows of the caller.
        shared: whether the pool's users see each other's jobs whole.
    """

    jid: str
    admin: bool
    reply: Callable[[Reply], None]
    shared: bool = False

    @classmethod
    def of(cls, access: Access, jid: str, reply: Callable[[Reply], None]) -> Caller:
        """The caller of that address, by the pool's rules."""
        return cls(jid, access.is_admin(jid), reply, access.share_jobs)

    @property
    def user(self) -> str:
        """The account behind the session."""
        return bare(self.jid)

    def owns(self, owner: str) -> bool:
        """Whether what that account has is the caller's to change, and to read in all details.

        Args:
            owner: an account, or `THE_POOL`.
        """
        return owner == self.user or self.admin

    @property
    def sees_all(self) -> bool:
        """Whether everybody's jobs are shown to the caller whole."""
        return self.shared or self.owns(THE_POOL)

    def sees(self, owner: str) -> bool:
        """Whether jobs of that account are shown to the caller whole, and not as a summary."""
        return self.shared or self.owns(owner)
