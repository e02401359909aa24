"""One pool of a flock in a simulated world, with all that it consists of."""

from __future__ import annotations

from dataclasses import dataclass

from kestrel_worlds.course import PoolOfWorld
from kestrel_worlds.flock_worlds.flock_operator import FlockOperator
from kestrel_worlds.flock_worlds.flock_world_settings import PoolPlan
from kestrel_worlds.flock_worlds.flocked_manager import FlockedManager
from kestrel_worlds.flock_worlds.guest_audit import PoolAudit
from kestrel_worlds.flock_worlds.streams import FlockServer


@dataclass(frozen=True, kw_only=True)
class FlockedPool(PoolOfWorld):
    """A pool of a flock."""

    plan: PoolPlan
    server: FlockServer
    manager: FlockedManager
    operator: FlockOperator
    audit: PoolAudit

    @property
    def domain(self) -> str:
        """The domain of the pool."""
        return self.plan.domain

    @property
    def loans_left(self) -> list[str]:
        """The loans, spools and wishes that are left, in words."""
        flock = self.manager.flock
        if flock is None:
            return ["has no flock"]
        now = self.nodes.clock.now
        found = [f"a loan of {loan} to {borrower}" for borrower, loan in flock.keeper.loans]
        found += [f"a spool for {to}" for to, _ in self.manager.spools.kept()]
        wishes = flock.desk.borrower.wishes.items()
        found += [f"a wish to {lender}" for (lender, _), wish in wishes if wish.until > now]
        return found
