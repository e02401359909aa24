"""The result of a policy: the amounts that a task is charged, and what that costs.

Source: `cp_compute_consumption`, `cp_sufficient_assets` and `cp_deduct_assets` of
HTCondor's consumption_policy.cpp. Only managers can evaluate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kestrelctl.core.classad.evaluation import Ad, Answer, Expression, Failure, Unknown
from kestrelctl.core.model.worker.assets import MILLI, Amounts, known, natural
from kestrelctl.core.model.worker.matching_ads import ASSET_UNITS, Attributes, amounts_ad
from kestrelctl.core.policies.policy_text import PolicyText
from kestrelctl.core.policies.spoiled import Spoiled
from kestrelctl.core.policies.vocabulary import in_order

#: The largest amount that can be charged, in thousandths; and the most that a match costs: what
#: many of them cost together, for years, is still a number.
MOST = (1 << 63) - 1
#: An error of computing with fractions, in thousandths, that is not rounded up.
_SLIP = 1e-6


class Consumption:
    """A policy that can be evaluated.

    Args:
        policy: as it was read.

    Raises:
        BadPolicy: a rule refers to itself.
    """

    __slots__ = ("_order", "_rules", "_weight", "policy")

    def __init__(self, policy: PolicyText) -> None:
        self.policy = policy
        self._order = in_order(policy)
        self._rules = {asset: Expression(rule.text) for asset, rule in policy.rules.items()}
        self._weight = Expression(policy.weight.text if policy.weight else "Cpus")

    def amounts(self, asked: Amounts, capacity: Amounts) -> Amounts | Spoiled:
        """Computes what a task is charged.

        An asset that the policy does not speak of is charged as it was asked for; HTCondor's
        defaults speak of what the worker has. An asset that was not asked for counts as a request
        of 0. The amount of an asset of unknown capacity is undefined.

        Args:
            asked: what the task asks for.
            capacity: all that such a worker has.

        Returns:
            Amounts above zero; or the rule that came to something else.
        """
        every = {*asked, *capacity, *self._rules}
        requests = _ad(asked, every, "Request")
        there = known(capacity)
        seen = _ad(there, every - (capacity.keys() - there.keys())) | requests
        target = Ad(requests)
        charged = {asset: n for asset, n in asked.items() if asset not in self._rules and n}
        for asset in self._order:
            rule = self.policy.rules[asset]
            if rule.start < 0 and asset not in capacity:
                # HTCondor's defaults are of the assets that a machine has.
                if asked.get(asset):
                    charged[asset] = asked[asset]
                continue
            value = _number(self._rules[asset].evaluate(Ad(seen), target))
            if isinstance(value, str):
                return Spoiled(rule, value)
            if value < 0:
                return Spoiled(rule, f"{value:g}, which is negative")
            amount = value * ASSET_UNITS.get(asset, 1) * MILLI  # infinite, if beyond all numbers
            if amount > MOST:
                return Spoiled(rule, f"{value:g}, which is too much to count")
            counted = math.ceil(amount - _SLIP)
            if counted:
                charged[asset] = counted
            seen[f"Consumption{asset}"] = value
        if not charged:
            return Spoiled(None, "nothing at all is charged")
        return charged

    def cost(self, charged: Amounts, capacity: Amounts) -> float | Spoiled:
        """Computes what a match costs: how much less an idle worker is worth after it.

        Args:
            charged: what one task is charged; it fits.
            capacity: all that such a worker has.
        """
        there = known(capacity)
        every = {*there, *self._rules} - (capacity.keys() - there.keys())
        before = self._worth(there, every)
        if isinstance(before, Spoiled):
            return before
        if before < 0:
            return Spoiled(self.policy.weight, f"{before:g}, which is negative")
        left = {name: n - charged.get(name, 0) for name, n in there.items()}
        after = self._worth(left, every)
        if isinstance(after, Spoiled):
            return after
        if after > before:
            return Spoiled(self.policy.weight, f"{before:g} before a match and {after:g} after it")
        if before - after > MOST:
            told = f"{before:g} before a match and {after:g} after it, which is too much to count"
            return Spoiled(self.policy.weight, told)
        return before - after

    def _worth(self, amounts: Amounts, every: Iterable[str]) -> float | Spoiled:
        value = _number(self._weight.evaluate(Ad(_ad(amounts, every))))
        return Spoiled(self.policy.weight, value) if isinstance(value, str) else value


def _ad(amounts: Amounts, every: Iterable[str], prefix: str = "") -> Attributes:
    """Amounts as attributes; 0 for those of `every` that are not among them."""
    none: Attributes = {prefix + asset.capitalize(): 0 for asset in every}
    return none | amounts_ad(natural(amounts), prefix)


def _number(value: Answer) -> float | int | str:
    """A finite number; or in words what it is instead. True counts as 1, as HTCondor has it."""
    if isinstance(value, Unknown):
        return value.value
    if isinstance(value, Failure):
        return value.words
    if isinstance(value, str):
        return f'"{value[:40]}", which is no number'
    if not math.isfinite(value):
        return "no finite number"
    return value
