"""Loads policies; refuses a policy at once, as far as its faults can be known then.

Its words are checked without evaluating them; then it is tried on sample requests, at every kind of
worker that it is for. A fault that shows only with other requests is a refusal when it comes up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kestrelctl.core.classad.syntax import Node
from kestrelctl.core.model.worker.assets import MILLI, Amounts, describe_all
from kestrelctl.core.policies.bad_policy import BadPolicy
from kestrelctl.core.policies.consumption import Consumption
from kestrelctl.core.policies.policy_text import PolicyText, Rule, read
from kestrelctl.core.policies.spoiled import Spoiled
from kestrelctl.core.policies.vocabulary import COMMON_ASSETS, check_words

_GIB = (1 << 30) * MILLI

#: The requests that a policy is tried on, beside one of each other asset.
SAMPLES: tuple[Amounts, ...] = (
    {"cpus": MILLI},
    {"cpus": MILLI // 2},
    {"cpus": 4 * MILLI, "memory": 8 * _GIB},
    {"cpus": MILLI, "memory": _GIB, "disk": 10 * _GIB},
)
#: The worker that a policy is tried on while there is none that it is for.
LARGE = 1_000 * MILLI
LARGE_WORKER: Amounts = {"cpus": LARGE, "memory": 1000 * _GIB, "disk": 1000 * _GIB, "gpus": LARGE}
#: The most kinds of workers that a policy is tried on.
MOST_KINDS = 100


def load(text: str, capacities: Sequence[Amounts] = ()) -> Consumption:
    """Loads a policy that passes all checks.

    Args:
        capacities: of the kinds of workers that it is for, as far as there are any.

    Raises:
        BadPolicy: it does not.
    """
    policy = read(text)
    there = {asset for capacity in capacities for asset in capacity}
    check_words(policy, there)
    if capacities:
        for rule in policy.rules.values():
            if rule.start >= 0 and rule.asset not in COMMON_ASSETS | there:
                raise policy.bad(f"no worker that it is for has {rule.asset}", rule)
    loaded = Consumption(policy)
    others = sorted((there | set(policy.rules)) - set(SAMPLES[-1]))
    samples = [*SAMPLES, *({"cpus": MILLI, asset: MILLI} for asset in others)]
    large = {**LARGE_WORKER, **dict.fromkeys(others, LARGE)}
    for capacity in list(capacities[:MOST_KINDS]) or [large]:
        _try(loaded, samples, capacity)
    return loaded


def _try(loaded: Consumption, samples: Iterable[Amounts], capacity: Amounts) -> None:
    policy = loaded.policy
    for asked in samples:
        charged = loaded.amounts(asked, capacity)
        if isinstance(charged, Spoiled) and charged.rule is not None:
            raise _bad(
                policy, charged.rule, f"{charged} for a task that asks for {describe_all(asked)}"
            )
        _check_charge(policy, asked, {} if isinstance(charged, Spoiled) else charged)
        if isinstance(charged, Spoiled):
            continue
        if all(charged[name] <= capacity.get(name, 0) for name in charged):
            cost = loaded.cost(charged, capacity)
            if isinstance(cost, Spoiled):
                raise _bad(
                    policy, cost.rule, f"{cost}, for a task that is charged {describe_all(charged)}"
                )


def _check_charge(policy: PolicyText, asked: Amounts, charged: Amounts) -> None:
    """Refuses a policy that charges a common request nothing: such a task would wait for ever.

    Also refuses one that charges it nothing of an asset that it asks for because whole numbers
    divide to whole numbers: nobody means that.
    """
    by_division = [
        (rule, division)
        for asset in asked
        if asset in policy.rules and not charged.get(asset)
        for rule in (policy.rules[asset],)
        if (division := _first_division(rule)) is not None
    ]
    whom = f"a task that asks for {describe_all(asked)}"
    if by_division:
        rule, division = by_division[0]
        what = f"{rule.name} comes to 0 for {whom}: whole numbers divide to whole numbers"
        raise policy.bad(what + _in_fractions(rule, division), rule, division)
    if not charged:
        rule = next(iter(policy.rules.values()))
        raise policy.bad(f"it charges nothing at all for {whom}, which would wait for ever", rule)


def _first_division(rule: Rule) -> Node | None:
    return next((node for node in rule.syntax.walk() if node.kind == "/"), None)


def _in_fractions(rule: Rule, division: Node) -> str:
    """Says how to write a division so that it leaves fractions: `; write Cpus / 2.0`."""
    divisor = division.parts[1]
    if not rule.text[divisor.start : divisor.end].isdigit():
        return "; multiply by 1.0 before"
    return f"; write {rule.text[division.start : division.end]}.0"


def problem_with_charges(text: str) -> BadPolicy | None:
    """Says which common request is charged nothing by a policy that was taken under other rules.

    It is tried on a large worker that has all assets that it charges.
    """
    policy = read(text)
    loaded = Consumption(policy)
    large = LARGE_WORKER | dict.fromkeys(set(policy.rules) - set(LARGE_WORKER), LARGE)
    try:
        for asked in SAMPLES:
            charged = loaded.amounts(asked, large)
            if not isinstance(charged, Spoiled):
                _check_charge(policy, asked, charged)
            elif charged.rule is None:
                _check_charge(policy, asked, {})
    except BadPolicy as problem:
        return problem
    return None


def _bad(policy: PolicyText, rule: Rule | None, what: str) -> Exception:
    """The refusal; the default weight has no rule, and never comes to anything odd."""
    assert rule is not None, what
    return policy.bad(what, rule, rule.syntax if rule.start >= 0 else None)
