"""A result of a policy that is no amount."""

from __future__ import annotations

import msgspec

from kestrelctl.core.policies.policy_text import Rule


class Spoiled(msgspec.Struct, frozen=True):
    """A rule that came to no amount.

    Attributes:
        rule: which; None if all of them together are at fault.
        value: what it came to, in words.
    """

    rule: Rule | None
    value: str

    def __str__(self) -> str:
        return self.value if self.rule is None else f"{self.rule.name} comes to {self.value}"
