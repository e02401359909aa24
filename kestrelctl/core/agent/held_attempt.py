"""The part of an attempt that outlives its worker's process: the next one can hold it again."""

from __future__ import annotations

from typing import Self

import msgspec

from kestrelctl.core.agent.agent import LocalAttempt
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.seal import Seal
from kestrelctl.core.model.worker.assets import Amounts
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.model.worker.unit_claim import BoundClaim


class HeldAttempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A `LocalAttempt` that has started, as it is written down; other attributes are as there.

    Attributes:
        account: the one to which it was handed.
        amounts, units: its claim.
    """

    account: str
    number: int
    template: Template
    index: int
    item: str | None
    amounts: Amounts
    units: dict[str, tuple[str, ...]]
    seal: Seal
    count: int
    limits: dict[str, int]
    hosts: tuple[str, ...]
    waited_seconds: float

    @classmethod
    def of(cls, attempt: LocalAttempt, account: str) -> Self:
        """Takes from an attempt what is to be written down."""
        return cls(
            account=account,
            number=attempt.number,
            template=attempt.template,
            index=attempt.index,
            item=attempt.item,
            amounts=attempt.claim.amounts,
            units=dict(attempt.claim.units),
            seal=attempt.seal,
            count=attempt.count,
            limits=dict(attempt.limits),
            hosts=tuple(attempt.hosts),
            waited_seconds=attempt.waited_seconds,
        )

    def again(self, now: float) -> LocalAttempt:
        """The same attempt in another process.

        Args:
            now: when it goes on there.
        """
        bound = BoundClaim(self.amounts, self.units) if self.units else Claim(self.amounts)
        attempt = LocalAttempt(
            self.number,
            self.template,
            self.index,
            self.item,
            bound,
            self.seal,
            now - self.waited_seconds,
            self.count,
            self.limits,
            self.hosts,
        )
        attempt.waited_seconds = self.waited_seconds
        return attempt
