"""What the expressions of a shape and a class say of each other.

HTCondor's rules: `requirements` sees the job as `MY` and the worker as `TARGET`, `start` the other
way round; each must come to true or to a number other than 0. A `rank` that comes to no number
counts as 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Answer, Unknown
from kestrelctl.core.classad.syntax import clauses, parse
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.assets import four_digits
from kestrelctl.core.model.matching_ads import ASSET_UNITS
from kestrelctl.core.model.refusal import Reason, Refusal, refuse
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.model.significance import ANOTHER
from kestrelctl.core.scheduling.expression_answers import MOST_TEXTS, Side, comes_to, nodes_asked

#: The longest clause, and the longest list of values, that a refusal shows.
SHOWN_CHARACTERS = 200


Party: TypeAlias = Shape | WorkerClass


def side(party: Party) -> Side:
    """The ad of a shape or a class; kept with it."""
    known = party.prepared
    if not isinstance(known, Side):
        known = party.prepared = Side(party.attributes())
    return known


def expressions_refuse(shape: Shape, cls: WorkerClass) -> Refusal | None:
    """Why `requirements` or `start` refuse; None if neither does."""
    why = None
    if shape.requirements:
        why = judge(Reason.REQUIREMENTS, shape.requirements, side(shape), side(cls))
    if why is None and cls.start:
        why = judge(Reason.START, cls.start, side(cls), side(shape))
    return why


def rank_of(shape: Shape, cls: WorkerClass) -> float:
    """How much tasks of a shape would like to run on workers of a class."""
    if not shape.rank:
        return 0.0
    try:
        found = comes_to(shape.rank, side(shape), side(cls))
    except BadExpression:
        return 0.0
    if isinstance(found, Unknown | str) or found != found:  # that one is no number (NaN)
        return 0.0
    return float(found)


def is_true(answer: Answer) -> bool:
    """Whether an expression that comes to this holds."""
    return isinstance(answer, bool | int | float) and bool(answer)


def judge(by: Reason, text: str, mine: Side, target: Side) -> Refusal | None:
    """Why an expression refuses: by the first of its clauses that is not true.

    It is true if all clauses are: the library's `&&`, too, takes numbers other than 0 for true.

    Args:
        by: REQUIREMENTS or START: whose it is.
    """
    try:
        parts = clause_texts(text)
        answers = [comes_to(part, mine, target) for part in parts]
    except BadExpression as mistake:
        return refuse(Reason.ERROR, wanted=_cut(f"{by.value}: {text}"), found=str(mistake))
    place = next((n for n, answer in enumerate(answers) if not is_true(answer)), None)
    if place is None:
        return None
    part, answer = parts[place], answers[place]
    values = values_in(part, mine, target)
    if answer is Unknown.UNDEFINED:
        return refuse(Reason.UNDEFINED, wanted=_cut(f"{by.value}: {part}"), found=values)
    if answer is Unknown.ERROR or isinstance(answer, str):
        text_of_it = f"it comes to {_literal(answer)}" if isinstance(answer, str) else ""
        found = "; ".join(filter(None, (values, text_of_it)))
        return refuse(Reason.ERROR, wanted=_cut(f"{by.value}: {part}"), found=found)
    share = sum(map(is_true, answers)) / len(answers)
    return refuse(by, wanted=_cut(part), found=values, share=share)


@lru_cache(maxsize=MOST_TEXTS)
def clause_texts(text: str) -> list[str]:
    """The clauses of an expression, all of which must be true."""
    return [text[clause.start : clause.end] for clause in clauses(parse(text))]


def values_in(text: str, mine: Side, target: Side) -> str:
    """The attributes of both sides that it refers to, with their values: `Memory = 2048`.

    Memory and disk are shown with as many digits as other amounts, in the unit of the ads.
    """
    found: dict[str, str] = {}
    for node in nodes_asked(text):
        where = mine
        if node.scope == "target" or (not node.scope and node.name not in mine.attributes):
            where = target
        name = text[node.start : node.end]
        value = where.attributes.get(node.name)
        amount = node.name.removeprefix("request") in ASSET_UNITS
        if amount and isinstance(value, float):
            found.setdefault(name.lower(), f"{name} = {four_digits(value)}")
        else:
            found.setdefault(name.lower(), f"{name} {_is(value)}")
    return _cut(", ".join(found.values()))


def _is(value: object) -> str:
    if value is None:
        return "is undefined"
    if value == ANOTHER:
        return "is another"
    return f"= {_literal(value)}"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(_literal, value)) + "}"
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"
