"""A rule of an operator on what his pool lends to other pools of its flock, and borrows from them.

`kestrelctl.flock.rules.policy` decides what rules come to; this module has what is stored and sent.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from kestrelctl.core.model.setting import Setting

#: Whether a rule is about machines of this pool that others use, or the other way round.
FlockDirection: TypeAlias = Literal["lend", "borrow"]
FlockAction: TypeAlias = Literal["allow", "deny"]

DEFAULT_ORDER = 100


class FlockRule(Setting, frozen=True, kw_only=True, omit_defaults=True):
    """A rule for one direction; the first rule that fits a task decides.

    A rule fits by the other pool, by the user whose task it is, by his group, and by
    `requirements`. The rest says on which terms it allows.

    Attributes:
        order: lower ones come first; those of one order by name.
        pools: globs on the other pool's domain, in any case; empty for any.
        users: the same on the user's account; one without an `@` is on the name before it.
        groups: the same on the group that he is in at his own pool.
        max_cpus: processors at once, of all pools that the rule fits together; None for any number.
        max_seconds: of `lend`, how long one attempt may run here; of `borrow`, only tasks go out
            that say that they take no longer. None for any time.
        isolation: the least that tasks of others get here, one of `isolation.RUNGS`; empty for the
            pool's default.
        requirements: a ClassAd expression: of `lend` over the job's attributes, of `borrow` over
            those of the other pool's machines. Empty for none.
        lease_seconds: the longest loan; None for as long as pools usually agree on.
    """

    direction: FlockDirection
    action: FlockAction
    order: int = DEFAULT_ORDER
    pools: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    max_cpus: float | None = None
    max_seconds: float | None = None
    isolation: str = ""
    requirements: str = ""
    lease_seconds: float | None = None
