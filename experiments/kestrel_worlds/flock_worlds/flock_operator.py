"""An admin of a pool of a flock."""

from __future__ import annotations

from kestrel_worlds.flock_worlds.flock_world_settings import PoolPlan
from kestrel_worlds.users import Operator
from kestrelctl.protocol import requests as rq


class FlockOperator(Operator):
    """An admin who has the pool join and leave, and says what it lends and borrows."""

    def plan_flock(self, plan: PoolPlan) -> None:
        """Plans the joins, leaves and rules of a pool for their times."""
        after = self.clock.after
        for at_seconds, via in plan.joins:
            after(at_seconds, self._want, "flock", rq.JoinFlock(domain=via))
        for at_seconds in plan.leaves:
            after(at_seconds, self._want, "flock", rq.LeaveFlock())
        for change in plan.rules:
            wish: rq.SetFlockRule | rq.RemoveFlockRule = rq.RemoveFlockRule(name=change.name)
            if change.rule is not None:
                wish = rq.SetFlockRule(rule=change.rule)
            after(change.at_seconds, self._want, f"rule {change.name}", wish)
