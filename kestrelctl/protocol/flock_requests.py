"""What users ask of the pool about its flock. `docs/protocol.md` shows one of each.

A pool that is started without a flock refuses all of them, as `not-found`.
"""

from __future__ import annotations

from typing import TypeAlias

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.result import Count
from kestrelctl.protocol.flock import Domain
from kestrelctl.protocol.request import AdminRequest, UserRequest


class AskFlock(UserRequest, frozen=True, kw_only=True, tag="flock_status"):
    """How the pool stands in its flock. Answered by `flock`."""


class ListNeighbours(UserRequest, frozen=True, kw_only=True, tag="flock_pools"):
    """The pools that this one knows. Answered by `flock_pools`: a page, by domain.

    Attributes:
        after: the domain after which the page starts.
    """

    limit: Count = 200
    after: str = ""


class JoinFlock(AdminRequest, frozen=True, kw_only=True, tag="flock_join"):
    """Join the flock that a pool is in (admins only), now and after each restart.

    Answered by `changed`, once that is durable; `flock_status` tells when it has come to pass.

    Attributes:
        domain: any one pool of it.
    """

    only_admins_may = "change what it does in its flock"

    domain: Domain


class ForgetPool(AdminRequest, frozen=True, kw_only=True, tag="flock_forget"):
    """Join through a pool no more (admins only). Answered by `changed`, once that is durable.

    A pool that answers stays in the flock. One that knows no other pool then is in none.

    Attributes:
        domain: the pool, as `flock_join` named it.
    """

    only_admins_may = "change what it does in its flock"

    domain: Domain


class LeaveFlock(AdminRequest, frozen=True, kw_only=True, tag="flock_leave"):
    """Leave the flock (admins only). Answered by `changed`, once that is durable.

    What runs for others, and what others run for this pool, may end.
    """

    only_admins_may = "change what it does in its flock"


class PingPool(AdminRequest, frozen=True, kw_only=True, tag="flock_ping"):
    """Whether another pool's manager answers, and how soon (admins only). Answered by
    `flock_pong`.
    """

    only_admins_may = "change what it does in its flock"

    domain: Domain


class ListFlockRules(UserRequest, frozen=True, kw_only=True, tag="flock_rules"):
    """Answered by `flock_rules`."""


class SetFlockRule(AdminRequest, frozen=True, kw_only=True, tag="flock_rule_set"):
    """Put a rule on lending or borrowing in force, or replace the one of its name (admins only).

    Answered by `changed`, once it is durable. What runs goes on under the rules that let it pass.
    """

    only_admins_may = "change what it does in its flock"

    rule: FlockRule


class RemoveFlockRule(AdminRequest, frozen=True, kw_only=True, tag="flock_rule_remove"):
    """Take such a rule out of force (admins only). Answered by `changed`."""

    only_admins_may = "change what it does in its flock"

    name: str


FlockRequest: TypeAlias = (
    AskFlock
    | ListNeighbours
    | JoinFlock
    | ForgetPool
    | LeaveFlock
    | PingPool
    | ListFlockRules
    | SetFlockRule
    | RemoveFlockRule
)
