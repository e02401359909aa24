"""A policy as it is written: lines `Name = expression`, as in a configuration of HTCondor.

Source: the HTCondor manual, "condor_negotiator-Side Resource Consumption Policies"
(`CONSUMPTION_<Resource>`, `SLOT_WEIGHT`), and the attributes of a slot's ad that these lines make
there (`ConsumptionMemory`, `SlotWeight`).
"""

from __future__ import annotations

import re

import msgspec

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.rules import checked
from kestrelctl.core.classad.syntax import Node
from kestrelctl.core.policies.bad_policy import BadPolicy

#: The longest policy, in characters.
MAX_CHARACTERS = 20_000

#: HTCondor's charges of the assets that every machine has, once `CONSUMPTION_POLICY = True`.
HTCONDOR_DEFAULTS = {
    "cpus": "quantize(TARGET.RequestCpus, {1})",
    "memory": "quantize(TARGET.RequestMemory, {128})",
    "disk": "quantize(TARGET.RequestDisk, {1024})",
}

#: A configuration of HTCondor may say which of a machine's slots a line is for.
_SLOT_TYPE = re.compile(r"slot_type_\d+_")
_LINE = re.compile(r"[ \t]*([A-Za-z_][A-Za-z0-9_]*)[ \t]*=(?!=)[ \t]*")
_CONSUMPTION = "consumption"
_WEIGHT = ("slotweight", "slot_weight")
_SWITCH = ("consumptionpolicy", "consumption_policy")


class Rule(msgspec.Struct, frozen=True):
    """One line of a policy.

    Attributes:
        name: as it was written.
        asset: which it charges, in lower case; empty for the weight.
        text: the expression.
        syntax: its structure.
        start: where the expression is in the policy, in characters; -1 if it is not written there.
    """

    name: str
    asset: str
    text: str
    syntax: Node
    start: int


class PolicyText(msgspec.Struct, frozen=True):
    """The content of a policy.

    Attributes:
        text: as it was written.
        rules: what is charged of each asset, by its name.
        weight: what a worker is worth; None for its processors.
    """

    text: str
    rules: dict[str, Rule]
    weight: Rule | None

    def bad(self, what: str, rule: Rule, place: Node | None = None) -> BadPolicy:
        """A mistake in a rule, at a part of its expression or at its start."""
        return BadPolicy(what, self.text, max(rule.start, 0) + (place.start if place else 0))


def read(text: str) -> PolicyText:
    """The rules of a policy, each with the structure of its expression.

    Raises:
        BadPolicy: it cannot be read, calls what is not pure, says something twice, or nothing.
    """
    if len(text) > MAX_CHARACTERS:
        raise BadPolicy(f"it has more than {MAX_CHARACTERS:,} characters", text, MAX_CHARACTERS)
    rules: dict[str, Rule] = {}
    weight: Rule | None = None
    by_default = False
    place = 0
    # A continued line keeps its length, so that places stay true.
    for line in text.replace("\\\n", "  ").split("\n"):
        start, place = place, place + len(line) + 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.match(line)
        if found is None:
            raise BadPolicy("a line is 'Name = expression', or begins with '#'", text, start)
        word, at = _SLOT_TYPE.sub("", found[1].lower(), count=1), start + found.start(1)
        said = line[found.end() :].rstrip()
        if word in _SWITCH:
            if said.lower() != "true":
                raise BadPolicy("it can only be True", text, start + found.end())
            by_default = True
            continue
        asset = word.removeprefix(_CONSUMPTION).lstrip("_")
        if word in _WEIGHT:
            asset = ""
        elif not word.startswith(_CONSUMPTION) or not asset:
            raise BadPolicy(
                f"a policy says Consumption<Asset> and SlotWeight, not {found[1]}", text, at
            )
        if asset in rules or (not asset and weight is not None):
            raise BadPolicy(f"{found[1]} is said twice", text, at)
        rule = _rule(found[1], asset, said, text, start + found.end())
        if asset:
            rules[asset] = rule
        else:
            weight = rule
    if by_default:
        for asset, said in HTCONDOR_DEFAULTS.items():
            rules.setdefault(
                asset, Rule(f"Consumption{asset.capitalize()}", asset, said, checked(said), -1)
            )
    if not rules and weight is None:
        raise BadPolicy("it says nothing", text, 0)
    return PolicyText(text, rules, weight)


def _rule(name: str, asset: str, said: str, text: str, start: int) -> Rule:
    try:
        return Rule(name, asset, said, checked(said), start)
    except BadExpression as error:
        raise BadPolicy(error.what, text, start + error.position) from None
