"""The policies of a pool: which workers each is for."""

from __future__ import annotations

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.policies.named_policy import NamedPolicy


class PoliciesInForce:
    """All policies of a pool. If several are for a worker, the first by name counts."""

    def __init__(self) -> None:
        self._by_name: dict[str, NamedPolicy] = {}

    def put(self, policy: NamedPolicy) -> None:
        """Adds a policy, or replaces the one of its name."""
        self._by_name[policy.name] = policy

    def remove(self, name: str) -> None:
        """Takes a policy out."""
        del self._by_name[name]

    def of(self, ad: WorkerAd, jid: str) -> NamedPolicy | None:
        """The policy of a worker; None if it has none: tasks are charged what they ask for."""
        if not self._by_name:
            return None
        return next(
            (p for _, p in sorted(self._by_name.items()) if p.is_for(ad, jid)),
            None,
        )
