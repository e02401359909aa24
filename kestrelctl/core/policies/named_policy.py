"""A policy with a name, and the workers that it is for. Only managers can evaluate it."""

from __future__ import annotations

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Expression, is_true
from kestrelctl.core.classad.rules import checked
from kestrelctl.core.classad.syntax import references
from kestrelctl.core.model.records import PolicyRecord
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.matching_ads import worker_ad
from kestrelctl.core.policies.bad_policy import BadPolicy
from kestrelctl.core.policies.consumption import Consumption
from kestrelctl.core.policies.policy_text import read
from kestrelctl.core.policies.spoiled import Spoiled


class NamedPolicy:
    """A policy, and the expression that says which workers it is for.

    Args:
        record: as it is stored.

    Raises:
        BadPolicy: the expression is none, or the policy cannot be evaluated.
    """

    __slots__ = ("_consumption", "_workers", "record")

    def __init__(self, record: PolicyRecord) -> None:
        self.record = record
        try:
            tree = checked(record.workers)
            for node in references(tree):
                if node.scope not in ("", "my"):
                    raise BadExpression("it is about workers alone: there is no TARGET", node.start)
            self._workers = Expression(record.workers)
        except BadExpression as error:
            raise BadPolicy(error.what, record.workers, error.position) from None
        self._consumption = Consumption(read(record.text))

    @property
    def name(self) -> str:
        return self.record.name

    def is_for(self, ad: WorkerAd, jid: str) -> bool:
        """Whether it is for a worker: the expression is true of its ad."""
        return is_true(self._workers.evaluate(Ad(worker_ad(ad, jid))))

    def amounts(self, asked: Amounts, capacity: Amounts) -> Amounts | Spoiled:
        """Computes what a task is charged: see `Consumption.amounts`."""
        return self._consumption.amounts(asked, capacity)

    def cost(self, charged: Amounts, capacity: Amounts) -> float | Spoiled:
        """Computes what a match costs: see `Consumption.cost`."""
        return self._consumption.cost(charged, capacity)
