"""Evaluates the expressions of a shape and of a class with each other's ad.

HTCondor's rules: `requirements` sees the job as `MY` and the worker as `TARGET`, `start` the other
way round; each must come to true or to a number other than 0. A `rank` that comes to no number
counts as 0. A job one of whose expressions cannot be evaluated is put on hold.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Expression, Failure, Unknown, is_true
from kestrelctl.core.classad.rules import shown
from kestrelctl.core.classad.syntax import clauses, parse
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.refusal import Reason, Refusal, refuse
from kestrelctl.core.model.worker.assets import four_digits
from kestrelctl.core.model.worker.matching_ads import ASSET_UNITS, is_of_property
from kestrelctl.core.model.worker.significance import ANOTHER
from kestrelctl.core.scheduling.expression_answers import MOST_TEXTS, Side, comes_to, nodes_asked

#: The longest clause, and the longest list of values, that a refusal shows.
SHOWN_CHARACTERS = 200


Party: TypeAlias = Shape | WorkerClass
#: The types of values that may stand for others like them; True and False never do.
_NUMBERS = (int, float)


def side(party: Party) -> Side:
    """The ad of a shape or a class; kept with it."""
    known = party.prepared
    if not isinstance(known, Side):
        known = party.prepared = Side(party.attributes())
    return known


def expressions_refuse(shape: Shape, cls: WorkerClass) -> Refusal | None:
    """Tells why `requirements` or `start` refuse; None if neither does."""
    why = None
    if shape.requirements:
        why = judge(Reason.REQUIREMENTS, shape.requirements, side(shape), side(cls))
    if why is None and cls.start:
        why = judge(Reason.START, cls.start, side(cls), side(shape))
    return why


def rank_of(shape: Shape, cls: WorkerClass) -> float | Refusal:
    """Evaluates how much tasks of a shape prefer workers of a class; a refusal if that fails."""
    if not shape.rank:
        return 0.0
    found = comes_to(shape.rank, side(shape), side(cls))
    if isinstance(found, Failure):
        return _fails("rank", shape.rank, found, puts_on_hold=True)
    if isinstance(found, Unknown | str) or found != found:  # that one is no number (NaN)
        return 0.0
    return float(found)


def problem_with_evaluation(spec: JobSpec) -> str | None:
    """Names the expression of a job that HTCondor's library does not read, or cannot evaluate
    whatever the worker; None if all is well.
    """
    for name, text in (("requirements", spec.requirements), ("rank", spec.rank)):
        if not text:
            continue
        try:
            found = Expression(text).evaluate()
        except BadExpression as mistake:
            return f"{name}: {shown(text, mistake)}"
        if isinstance(found, Failure):
            return f"{name}: {_cut(text)}: {found.words}"
    return None


def _fails(name: str, text: str, failure: Failure, *, puts_on_hold: bool) -> Refusal:
    return refuse(
        Reason.ERROR,
        wanted=_cut(f"{name}: {text}"),
        found=_cut(failure.words),
        puts_on_hold=puts_on_hold,
    )


def judge(by: Reason, text: str, mine: Side, target: Side) -> Refusal | None:
    """Tells why an expression refuses, by its first clause that is not true; None if it does not.

    It is true if all clauses are: the library's `&&`, too, takes numbers other than 0 for true.

    Args:
        by: REQUIREMENTS or START: whose it is.
    """
    holds = by is Reason.REQUIREMENTS
    try:
        parts = clause_texts(text)
    except BadExpression as mistake:
        return _fails(by.value, text, Failure(str(mistake)), puts_on_hold=holds)
    answers = [comes_to(part, mine, target) for part in parts]
    truths = [is_true(answer) for answer in answers]
    if all(truths):
        return None
    place = truths.index(False)
    part, answer = parts[place], answers[place]
    if isinstance(answer, Failure):
        return _fails(by.value, part, answer, puts_on_hold=holds)
    values = values_in(part, mine, target, exact=False)
    if answer is Unknown.UNDEFINED:
        return refuse(Reason.UNDEFINED, wanted=_cut(f"{by.value}: {part}"), found=values)
    if answer is Unknown.ERROR or isinstance(answer, str):
        text_of_it = f"it comes to {_literal(answer)}" if isinstance(answer, str) else ""
        found = "; ".join(filter(None, (values, text_of_it)))
        return refuse(Reason.ERROR, wanted=_cut(f"{by.value}: {part}"), found=found)
    return refuse(by, wanted=_cut(part), found=values, share=sum(truths) / len(truths))


@lru_cache(maxsize=MOST_TEXTS)
def clause_texts(text: str) -> list[str]:
    """The clauses of an expression, all of which must be true."""
    return [text[clause.start : clause.end] for clause in clauses(parse(text))]


def values_in(text: str, mine: Side, target: Side, *, exact: bool = True) -> str:
    """The attributes of both sides that a text refers to, with their values: `Memory = 2048`.

    Memory and disk are shown with as many digits as other amounts, in the unit of the ads.

    Args:
        exact: whether the sides are single ads; a number of a property of a whole class of workers
            only stands for others on the same side of what it is compared with.
    """
    found: list[str] = []
    for written, name, scope, amount in _shown(text):
        where = mine
        if scope == "target" or (not scope and name not in mine.attributes):
            where = target
        value = where.attributes.get(name)
        if amount and isinstance(value, float):
            found.append(f"{written} = {four_digits(value)}")
        elif not exact and is_of_property(name) and type(value) in _NUMBERS:
            found.append(f"another {written}")
        else:
            found.append(f"{written} {_is(value)}")
    return _cut(", ".join(found))


@lru_cache(maxsize=MOST_TEXTS)
def _shown(text: str) -> list[tuple[str, str, str, bool]]:
    """Lists the attributes of an expression that are shown with their values, each once.

    Returns:
        Each as it is written there, its name, its scope, and whether it is an amount of memory or
        disk.
    """
    found: dict[str, tuple[str, str, str, bool]] = {}
    for node in nodes_asked(text):
        written = text[node.start : node.end]
        amount = node.name.removeprefix("request") in ASSET_UNITS
        found.setdefault(written.lower(), (written, node.name, node.scope, amount))
    return list(found.values())


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
