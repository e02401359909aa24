"""What the expressions of a shape and a class say of each other.

HTCondor's rules: `requirements` sees the job as `MY` and the worker as `TARGET`, `start` the other
way round; each must come to true or to a number other than 0. A `rank` that comes to no number
counts as 0.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import TypeAlias

from kestrelctl.core.classad.bad_expression import BadExpression
from kestrelctl.core.classad.evaluation import Ad, Answer, Expression, Unknown
from kestrelctl.core.classad.syntax import Node, clauses, parse, references
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.matching_ads import Attributes, resolved
from kestrelctl.core.model.refusal import Reason, Refusal, refuse
from kestrelctl.core.model.shape import Shape
from kestrelctl.core.model.significance import ANOTHER

#: The longest clause, and the longest list of values, that a refusal shows.
SHOWN_CHARACTERS = 200
#: So many answers of one expression are kept: of as many kinds of workers.
MOST_KNOWN = 10_000


class OwnExpression:
    """An expression of one side, and what it came to beside others.

    What it comes to depends on nothing but the attributes of the other side that it refers to.
    """

    __slots__ = ("_expression", "_known", "_names")

    def __init__(self, text: str, mine: Collection[str]) -> None:
        self._expression = Expression(resolved(text, mine))
        self._names = tuple(
            {
                node.name: None
                for node in references(self._expression.syntax)
                if node.scope == "target"
            }
        )
        self._known: dict[object, Answer] = {}

    def answer(self, mine: Ad, target: Side) -> Answer:
        """What it comes to beside another ad."""
        values = [target.attributes.get(name) for name in self._names]
        key = tuple([(type(v), tuple(v)) if isinstance(v, list) else (type(v), v) for v in values])
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            found = self._known[key] = self._expression.evaluate(mine, target.ad)
        return found


class Side:
    """One of the two ads, ready for expressions of its own.

    Attributes:
        attributes: by name in lower case.
    """

    __slots__ = ("_ad", "_questions", "attributes")

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = {name.lower(): value for name, value in attributes.items()}
        self._ad: Ad | None = None
        self._questions: dict[str, OwnExpression] = {}

    @property
    def ad(self) -> Ad:
        """For the library; made when it is asked for."""
        if self._ad is None:
            self._ad = Ad(self.attributes)
        return self._ad

    def evaluate(self, text: str, target: Side) -> Answer:
        """What an expression of this side comes to.

        Raises:
            BadExpression: it is none; it was taken under other rules.
        """
        found = self._questions.get(text)
        if found is None:
            found = self._questions[text] = OwnExpression(text, self.attributes)
        return found.answer(self.ad, target)


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
        found = side(shape).evaluate(shape.rank, side(cls))
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

    Args:
        by: REQUIREMENTS or START: whose it is.
    """
    try:
        if is_true(mine.evaluate(text, target)):
            return None
    except BadExpression as mistake:
        return refuse(Reason.ERROR, wanted=_cut(f"{by.value}: {text}"), found=str(mistake))
    parts = clause_texts(text)
    answers = [mine.evaluate(part, target) for part in parts]
    place = next((n for n, answer in enumerate(answers) if not is_true(answer)), 0)
    part, answer = parts[place], answers[place]
    values = values_in(part, mine, target)
    if answer is Unknown.UNDEFINED:
        return refuse(Reason.UNDEFINED, wanted=_cut(f"{by.value}: {part}"), found=values)
    if answer is Unknown.ERROR or isinstance(answer, str):
        text_of_it = f"; it comes to {_literal(answer)}" if isinstance(answer, str) else ""
        return refuse(Reason.ERROR, wanted=_cut(f"{by.value}: {part}"), found=values + text_of_it)
    share = sum(map(is_true, answers)) / len(answers)
    return refuse(by, wanted=_cut(part), found=values, share=share)


@lru_cache(maxsize=512)
def clause_texts(text: str) -> list[str]:
    """The clauses of an expression, all of which must be true."""
    return [text[clause.start : clause.end] for clause in clauses(parse(text))]


def values_in(text: str, mine: Side, target: Side) -> str:
    """The attributes of both sides that it refers to, with their values: `Memory = 2048`."""
    found: dict[str, str] = {}
    for node in _references(text):
        where = mine
        if node.scope == "target" or (not node.scope and node.name not in mine.attributes):
            where = target
        name = text[node.start : node.end]
        found.setdefault(name.lower(), f"{name} {_is(where.attributes.get(node.name))}")
    return _cut(", ".join(found.values()))


@lru_cache(maxsize=512)
def _references(text: str) -> list[Node]:
    return references(parse(text))


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
