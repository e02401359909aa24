"""The names that expressions of a policy may use: assets, and what was asked of them.

All this is known from the text, without evaluating anything.
"""

from __future__ import annotations

from collections.abc import Collection

from kestrelctl.core.classad.syntax import Node, references
from kestrelctl.core.policies.policy_text import PolicyText, Rule

#: Assets that a request and a policy may name though no worker has them.
COMMON_ASSETS = frozenset({"cpus", "memory", "disk", "gpus"})

REQUEST = "request"
CONSUMPTION = "consumption"


def check_words(policy: PolicyText, assets: Collection[str] = ()) -> None:
    """Checks the names in a policy against those that exist.

    Args:
        assets: that are known beside the common ones and those that the policy charges.

    Raises:
        BadPolicy: it names what does not exist.
    """
    known = COMMON_ASSETS | set(policy.rules) | set(assets)
    every = [*policy.rules.values(), *([policy.weight] if policy.weight else [])]
    for rule in every:
        for node in references(rule.syntax):
            _check_name(policy, rule, node, known)


def _check_name(policy: PolicyText, rule: Rule, node: Node, known: frozenset[str]) -> None:
    name, scope = node.name, node.scope
    if scope == "parent":
        raise policy.bad("there is no PARENT here", rule, node)
    asked = name.removeprefix(REQUEST)
    if asked != name and scope != "my":
        if not rule.asset:
            raise policy.bad("a weight is of the worker alone: it knows no request", rule, node)
        if asked not in known:
            raise policy.bad(_unknown(asked, known), rule, node)
        return
    if scope == "target":
        raise policy.bad(
            f"of a task a policy knows what it asks for, Request<Asset>, not {name}", rule, node
        )
    charged = name.removeprefix(CONSUMPTION)
    if charged != name:
        if charged not in policy.rules:
            raise policy.bad(f"the policy says nothing about {charged or 'that'}", rule, node)
        if not rule.asset:
            raise policy.bad("a weight is of what a worker has, not of a charge", rule, node)
        return
    if name == "slotweight":
        if not rule.asset:
            raise policy.bad("SlotWeight refers to itself", rule, node)
        raise policy.bad("a charge cannot depend on the weight, which depends on it", rule, node)
    if name not in known:
        raise policy.bad(_unknown(name, known), rule, node)


def _unknown(name: str, known: frozenset[str]) -> str:
    return f"{name} is no asset; there are {', '.join(sorted(known))}"


def in_order(policy: PolicyText) -> list[str]:
    """The assets that a policy charges, in an order in which each rule can be evaluated.

    Raises:
        BadPolicy: a rule refers to itself, maybe by way of others.
    """
    done: list[str] = []
    under_way: list[str] = []

    def visit(asset: str) -> None:
        if asset in done:
            return
        under_way.append(asset)
        rule = policy.rules[asset]
        for node in references(rule.syntax):
            needed = node.name.removeprefix(CONSUMPTION)
            if needed not in policy.rules or needed == node.name:
                continue
            if needed in under_way:
                raise policy.bad(f"{rule.name} refers to itself", rule, node)
            visit(needed)
        under_way.pop()
        done.append(asset)

    for asset in policy.rules:
        visit(asset)
    return done
