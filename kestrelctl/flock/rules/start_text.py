"""Writes rules as the `start` expression of the worker that a loan is to its borrower.

Such an expression knows the job's ad and nothing else, and may compare its owner with texts only.
What cannot be said there lets tasks pass: whoever gets them asks `Policy.judge_task`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.syntax import MAX_CHARACTERS, parse, references
from kestrelctl.core.model.flock_rule import FlockRule
from kestrelctl.core.model.worker.significance import problem_with_expression
from kestrelctl.core.scheduling.expression_answers import Side
from kestrelctl.flock.rules.flock_globs import accounts_named, fits_anybody
from kestrelctl.flock.rules.rule_fit import rule_fits

ALWAYS, NEVER = "true", "false"


def start_text(
    rules: Sequence[FlockRule],
    allows_rest: bool,
    owners: Mapping[str, str] | None,
    machines: Side | None,
) -> str:
    """Makes an expression that is true of the jobs that rules let pass.

    Args:
        rules: those about the other pool, in their order.
        allows_rest: whether what no rule fits is allowed.
        owners: the users whose jobs may come, with the group of each, the most important first:
            nobody else's pass, as far as rules tell users apart. None if they are not known: then
            wildcards over users, and groups, let tasks pass.
        machines: the ad that `requirements` of rules to borrow are about.
    """
    for_anybody = all(fits_anybody(rule.users) and fits_anybody(rule.groups) for rule in rules)
    if owners is None or for_anybody:
        return _taken(_text(rules, allows_rest, None, machines), ALWAYS)
    by_text: dict[str, list[str]] = {}
    for user, group in owners.items():
        if user.isprintable() and not set(user) & set('"\\'):
            text = _text(rules, allows_rest, (user, group), machines)
            by_text.setdefault(text, []).append(user)
    by_text.pop(NEVER, None)
    room = MAX_CHARACTERS // 2 // max(1, len(by_text))
    ways = [_of(users, text, room) for text, users in by_text.items()]
    return _taken(_choice(ways), NEVER)


def _of(users: list[str], text: str, room: int) -> str:
    """Limits a text to these users, or to as many of them as have room in an expression.

    Args:
        room: the room for their names, in characters.
    """
    while len(said := _member(users)) > room:
        users = users[: len(users) * room // len(said)]
    return said if text == ALWAYS else f"{said} && ({text})"


def _taken(text: str, otherwise: str) -> str:
    """Returns the text if a pool takes it: several rules together may be longer than it reads."""
    return text if problem_with_expression(text) is None else otherwise


def _text(
    rules: Sequence[FlockRule],
    allows_rest: bool,
    owner: tuple[str, str] | None,
    machines: Side | None,
) -> str:
    ways: list[str] = []
    denied: list[str] = []
    for rule in rules:
        user, group = owner or (None, None)
        fits = rule_fits(rule, user, group, machines)
        if fits is False:
            continue
        said, exact = _said(rule, owner is not None, fits)
        if said is None:
            continue
        whole = not said and exact
        if rule.action == "allow":
            ways.append(_all([*denied, *said, *_in_time(rule)]))
        if whole:
            break
        if exact and (rule.action == "deny" or rule.max_seconds is not None):
            denied.append(f"(({_all(said)}) ? true : false) =!= true")
    else:
        if allows_rest:
            ways.append(_all(denied))
    return _choice(ways)


def _said(rule: FlockRule, owner_known: bool, fits: bool | None) -> tuple[list[str] | None, bool]:
    """Returns what must be true of a job for the rule to fit it, and whether that is all; None in
    place of the former if the rule fits nothing.
    """
    if fits:
        return [], True
    said: list[str] = []
    exact = True
    if not owner_known:
        if not fits_anybody(rule.users):
            users = accounts_named(rule.users)
            if users is None:
                exact = False
            else:
                said.append(_member(users))
        exact = exact and fits_anybody(rule.groups)
    if rule.requirements:
        if rule.direction == "borrow":
            return said, False
        try:
            said.append(f"({of_target(rule.requirements)})")
        except BadExpression:
            return (None, True) if rule.action == "allow" else (said, exact)
    return said, exact


def of_target(text: str) -> str:
    """Rewrites an expression over one ad for a place where that ad is the other side's.

    Raises:
        BadExpression: the text is no expression.
    """
    for node in reversed(references(parse(text))):
        if not node.scope:
            space = " " if text[node.start] == "'" else ""  # it may stand next to a word
            text = f"{text[: node.start]}{space}TARGET.{text[node.start :]}"
    return text


def _in_time(rule: FlockRule) -> list[str]:
    """Makes the condition that a job keeps to the rule's time, as far as it names its time."""
    if rule.max_seconds is None:
        return []
    said = f"TARGET.JobSeconds <= {rule.max_seconds:g}"
    return [said if rule.direction == "borrow" else f"({said}) =!= false"]


def _member(users: list[str]) -> str:
    quoted = ", ".join(f'"{user}"' for user in users)
    return f"member(TARGET.Owner, {{{quoted}}})"


def _all(said: list[str]) -> str:
    return " && ".join(said) or ALWAYS


def _choice(ways: list[str]) -> str:
    """Joins these with "or"; each may be undefined without spoiling the others."""
    if ALWAYS in ways:
        return ALWAYS
    if len(ways) < 2:
        return ways[0] if ways else NEVER
    return " || ".join(f"((({way}) ? true : false) =?= true)" for way in ways)
