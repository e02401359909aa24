"""What is wrong with a rule of the flock is said when it is given, in words."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest
from store_samples import FULL_RULE

from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.settings.flock_rules import problem_with_rule


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": ""}, "cannot be the name of a rule"),
        ({"name": "a b"}, "cannot be the name of a rule: a name has up to 63 letters"),
        ({"order": -1}, "the order is a number from 0 to 1,000,000, not -1"),
        ({"pools": ("",)}, "the name of a pool is empty"),
        ({"pools": ("a b",)}, "'a b' cannot be the name of a pool"),
        ({"pools": ("ada@b.test",)}, "'ada@b.test' is an account: a pool is named by its domain"),
        ({"users": ("x" * 256,)}, "has more than 255 characters"),
        ({"users": ("a[bc",)}, "'a[bc' is no wildcard: its [ is never closed"),
        ({"users": ("a[]",)}, "its [ is never closed"),
        ({"users": ("a[!]",)}, "its [ is never closed"),
        ({"groups": ("\n",)}, "cannot be the name of a group"),
        ({"groups": ("g",) * 51}, "a rule names at most 50 groups, not 51"),
        ({"max_cpus": 0.0}, "the processors must be more than 0, not 0: to lend nothing, deny"),
        ({"max_cpus": nan}, "the processors must be more than 0"),
        ({"max_seconds": inf}, "the time of an attempt must be more than 0"),
        ({"lease_seconds": -1.0}, "the lease must be more than 0, not -1"),
        ({"isolation": "vm"}, "there is no isolation 'vm'; there are systemd, bubblewrap,"),
        ({"action": "deny", "max_cpus": 1.0}, "a rule that denies has no terms: the processors"),
        ({"action": "deny", "lease_seconds": 1.0}, "a rule that denies has no terms: the lease"),
        ({"action": "deny", "isolation": "plain"}, "a rule that denies has no terms: the isol"),
        ({"direction": "borrow", "isolation": "plain"}, "the isolation is for --lend"),
        ({"requirements": "RequestCpus >"}, "the requirements are no condition: a value is"),
        ({"requirements": "time() > 3"}, "time() is not the same each time"),
        ({"requirements": "size(Owner) > 3"}, "Owner can only be compared with texts"),
        ({"requirements": "MY.RequestCpus > 1"}, "about the job alone: write TARGET.X or X, not"),
        ({"requirements": "Memory > 1"}, "a job's ad has no Memory; it has Owner, JobName,"),
        (
            {"direction": "borrow", "requirements": "MY.Cpus > 1"},
            "about the other pool's machines alone",
        ),
        (
            {"direction": "borrow", "requirements": 'Machine == "crow"'},
            "another pool lends classes of machines: Machine of one is not known",
        ),
    ],
)
def test_each_mistake_has_its_words(wrong: dict[str, Any], said: str) -> None:
    whole = {"name": "r", "direction": "lend", "action": "allow"} | wrong
    problem = problem_with_rule(FlockRule(**whole))
    assert problem is not None
    assert said in problem


def test_an_expression_is_pointed_into() -> None:
    rule = FlockRule(name="r", direction="lend", action="allow", requirements="RequestCpus > > 2")
    problem = problem_with_rule(rule)
    assert problem is not None
    assert problem.splitlines()[1:] == ["RequestCpus > > 2", " " * 14 + "^"]


@pytest.mark.parametrize(
    "fine",
    [
        {},
        {"pools": ("*.edu", "[a-c]?.test", "[!x]*"), "users": ("ada", "*@b.test")},
        {"direction": "borrow", "requirements": "TARGET.Memory > 1024 && rack == 7"},
        {"action": "deny", "requirements": "TARGET.RequestGpus > 0 || JobSeconds > 60"},
    ],
)
def test_what_makes_sense_passes(fine: dict[str, Any]) -> None:
    assert problem_with_rule(FULL_RULE) is None
    whole = {"name": "r", "direction": "lend", "action": "allow"} | fine
    assert problem_with_rule(FlockRule(**whole)) is None
