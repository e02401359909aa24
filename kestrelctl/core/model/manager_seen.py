"""A manager of a pool that several share, as the one that leads sees it."""

from __future__ import annotations

import msgspec


class ManagerSeen(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One manager.

    Attributes:
        host: the name of its machine.
        leads: whether it is the one that the pool goes on with; the others stand by.
        problem: why it could not take over now; empty if it could.
        seen_seconds: how long ago it last said so; 0 of the one that leads.
    """

    host: str
    version: str
    leads: bool
    problem: str = ""
    seen_seconds: float = 0.0

    @property
    def could_lead(self) -> bool:
        """Whether it stands by and could take the pool over now."""
        return not self.leads and not self.problem
