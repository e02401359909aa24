"""Rules of the flock: what is lent to other pools, and borrowed from them."""

from __future__ import annotations

import math
from collections.abc import Collection

from kestrelctl.core.classad.rules import shown
from kestrelctl.core.classad.syntax import parse, references
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.core.model.worker.matching_ads import JOB_ATTRIBUTES
from kestrelctl.core.model.worker.significance import problem_with_expression
from kestrelctl.core.settings.kind import SettingKind
from kestrelctl.errors import UsageError

#: Orders are numbers from 0 to this.
MOST_ORDER = 1_000_000
#: The longest glob, in characters, and the most of one sort in a rule.
MAX_GLOB_CHARACTERS = 255
MAX_GLOBS = 50
#: Attributes that a machine has, and a class of machines has not.
_OF_ONE_MACHINE = ("name", "machine")


def problem_with_rule(rule: FlockRule) -> str | None:
    """Returns the first thing wrong with a rule; None if all is well. The text may have several
    lines, of which the last points into an expression.
    """
    if not is_name(rule.name):
        return f"{rule.name[:80]!r} cannot be the name of a rule: {NAME_RULE}"
    if not 0 <= rule.order <= MOST_ORDER:
        return f"the order is a number from 0 to {MOST_ORDER:,}, not {rule.order}"
    for globs, what in ((rule.pools, "pool"), (rule.users, "user"), (rule.groups, "group")):
        if (why := _problem_with_globs(globs, what)) is not None:
            return why
    return _problem_with_terms(rule) or _problem_with_requirements(rule)


def _problem_with_terms(rule: FlockRule) -> str | None:
    amounts = {
        "processors": rule.max_cpus,
        "time of an attempt": rule.max_seconds,
        "lease": rule.lease_seconds,
    }
    for what, amount in amounts.items():
        if amount is None:
            continue
        if rule.action == "deny":
            return f"a rule that denies has no terms: the {what} says nothing there"
        if not math.isfinite(amount) or amount <= 0:
            return f"the {what} must be more than 0, not {amount:g}: to lend nothing, deny"
    if not rule.isolation:
        return None
    if rule.action == "deny":
        return "a rule that denies has no terms: the isolation says nothing there"
    if rule.direction == "borrow":
        return "what isolates tasks at another pool is its affair: the isolation is for --lend"
    if rule.isolation not in RUNGS:
        return f"there is no isolation {rule.isolation[:80]!r}; there are {', '.join(RUNGS)}"
    return None


def _problem_with_requirements(rule: FlockRule) -> str | None:
    text = rule.requirements
    if not text:
        return None
    mistake = problem_with_expression(text)
    if mistake is not None:
        return f"the requirements are no condition: {shown(text, mistake)}"
    for node in references(parse(text)):
        written = text[node.start : node.end]
        if node.scope == "my":
            side = "the job" if rule.direction == "lend" else "the other pool's machines"
            return f"the requirements are about {side} alone: write TARGET.X or X, not {written}"
        if rule.direction == "borrow" and node.name in _OF_ONE_MACHINE:
            return f"another pool lends classes of machines: {written} of one is not known"
        if rule.direction == "lend" and not _of_job(node.name):
            known = ", ".join(JOB_ATTRIBUTES)
            return f"a job's ad has no {written}; it has {known}, RequestCpus and its like"
    return None


def _of_job(name: str) -> bool:
    return name in {each.lower() for each in JOB_ATTRIBUTES} or name.startswith("request")


def _problem_with_globs(globs: Collection[str], what: str) -> str | None:
    """Returns the first thing wrong with globs on the names of pools, users or groups."""
    if len(globs) > MAX_GLOBS:
        return f"a rule names at most {MAX_GLOBS} {what}s, not {len(globs)}"
    for glob in globs:
        shown = repr(glob[:80])
        if not glob:
            return f"the name of a {what} is empty: leave it out for any {what}"
        if len(glob) > MAX_GLOB_CHARACTERS:
            return f"{shown} has more than {MAX_GLOB_CHARACTERS} characters"
        if not glob.isprintable() or " " in glob:
            return f"{shown} cannot be the name of a {what}: it has a space in it"
        if what == "pool" and "@" in glob:
            return f"{shown} is an account: a pool is named by its domain"
        if (why := _problem_with_brackets(glob)) is not None:
            return f"{shown} is no wildcard: {why}"
    return None


def _problem_with_brackets(glob: str) -> str | None:
    """Finds a `[` without its `]`, or with nothing in between: it would stand for itself."""
    rest = glob
    while "[" in rest:
        inside = rest.partition("[")[2].removeprefix("!")
        end = inside.find("]", 1)
        if end < 0:
            return "its [ is never closed"
        rest = inside[end + 1 :]
    return None


def _must_make_sense(wanted: FlockRule) -> None:
    problem = problem_with_rule(wanted)
    if problem is not None:
        raise UsageError(
            f"rule {wanted.name[:80]} is refused", cause=problem, hint="docs/flock.md shows rules"
        )


def _closed(name: str, direction: str) -> FlockRule:
    """Denies all in the direction of a rule: it may have been the one that kept somebody away."""
    return FlockRule(
        name=name,
        direction="borrow" if direction == "borrow" else "lend",
        action="deny",
        order=0,
    )


FLOCK_RULES = SettingKind(
    word="flock rule",
    struct=FlockRule,
    wanted=FlockRule,
    most=100,
    one="rule {} of the flock",
    many="rules of its flock",
    missing="there is no rule {!r}",
    listed_by="kestrelctl flock policy list",
    must_make_sense=_must_make_sense,
    about=lambda rule: rule.direction,
    instead=_closed,
)
