"""A policy is refused when it is loaded, as far as its faults can be known then.

Its words are checked without evaluating them; then it is tried on sample requests, at every kind of
worker that it is for. What shows only with other requests is a refusal when it comes up.
"""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.core.model.assets import MILLI, Amounts, describe_all
from kestrelctl.core.policies.consumption import Consumption
from kestrelctl.core.policies.policy_text import PolicyText, Rule, read
from kestrelctl.core.policies.spoiled import Spoiled
from kestrelctl.core.policies.vocabulary import COMMON_ASSETS, check_words

_GIB = (1 << 30) * MILLI

#: What a policy is tried on, beside a request of each other asset.
SAMPLES: tuple[Amounts, ...] = (
    {"cpus": MILLI},
    {"cpus": MILLI // 2},
    {"cpus": 4 * MILLI, "memory": 8 * _GIB},
    {"cpus": MILLI, "memory": _GIB, "disk": 10 * _GIB},
)
#: The worker that it is tried on while there is none that it is for.
LARGE = 1_000 * MILLI
LARGE_WORKER: Amounts = {"cpus": LARGE, "memory": 1000 * _GIB, "disk": 1000 * _GIB, "gpus": LARGE}
#: So many kinds of workers are tried.
MOST_KINDS = 100


def load(text: str, capacities: Sequence[Amounts] = ()) -> Consumption:
    """A policy that passed all checks.

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


def _try(loaded: Consumption, samples: list[Amounts], capacity: Amounts) -> None:
    policy, free_of_charge = loaded.policy, 0
    for asked in samples:
        charged = loaded.amounts(asked, capacity)
        if isinstance(charged, Spoiled):
            if charged.rule is None:
                free_of_charge += 1
                continue
            raise _bad(
                policy, charged.rule, f"{charged} for a task that asks for {describe_all(asked)}"
            )
        if all(charged[name] <= capacity.get(name, 0) for name in charged):
            cost = loaded.cost(charged, capacity)
            if isinstance(cost, Spoiled):
                raise _bad(
                    policy, cost.rule, f"{cost}, for a task that is charged {describe_all(charged)}"
                )
    if free_of_charge == len(samples):
        raise _bad(policy, next(iter(policy.rules.values()), None), "it charges nothing at all")


def _bad(policy: PolicyText, rule: Rule | None, what: str) -> Exception:
    """The refusal; the default weight has no rule, and never comes to anything odd."""
    assert rule is not None, what
    return policy.bad(what, rule, rule.syntax if rule.start >= 0 else None)
