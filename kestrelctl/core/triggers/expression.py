"""Expressions in a small part of Python: read once, evaluated often, within a bound of steps.

Only what stands in `_Evaluation` exists: there is no attribute but the fields of views, no function
but the named ones, no power, no shift, no text that grows. Python's own `eval` is never used.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec


class ExpressionError(Exception):
    """An expression is refused, or cannot be computed; the text says why, in one line."""


V = TypeVar("V")
#: The workers that are added up in the time of one step of an expression, or less.
WORKERS_IN_A_STEP = 4


class TableView(Mapping[str, V], Generic[V]):
    """A table whose rows are made when they are asked for, and then kept.

    Args:
        names: the names of all rows.
        make: makes a row.
        row_steps: the cost of making one, in steps of an expression.
    """

    def __init__(self, names: list[str], make: Callable[[str], V], row_steps: int = 0) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._row_steps = row_steps
        self._made: dict[str, V] = {}

    def __getitem__(self, name: str) -> V:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def steps_to(self, name: str) -> int:
        """The cost of getting a row, in steps of an expression."""
        return 0 if name in self._made or name not in self._names else self._row_steps

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


MOST_CHARACTERS = 4_000
MOST_NODES = 500
#: The most steps that one evaluation takes: some tens of milliseconds.
MOST_STEPS = 50_000
#: Whole numbers beyond it are refused: they would grow without end.
LARGEST = 1 << 64
#: The functions that an expression may call.
FUNCTIONS = ("abs", "all", "any", "len", "max", "min", "round", "sum")

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_EQUALITIES: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
}
_KNOWN_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd,
    ast.BinOp, *_ARITHMETIC, ast.Compare, *_ORDERS, *_EQUALITIES, ast.In, ast.NotIn, ast.Call,
    ast.Name, ast.Load, ast.Store, ast.Attribute, ast.Subscript, ast.Constant, ast.List, ast.Tuple,
    ast.GeneratorExp, ast.ListComp, ast.comprehension, ast.IfExp,
)  # fmt: skip


def without_braces(text: str) -> str:
    """The text without braces that stand around all of it: they do not make it a set."""
    text = text.strip()
    if text.startswith("{") and text.endswith("}"):
        return text[1:-1].strip()
    return text


def parsed(text: str, mode: str) -> ast.AST:
    """The syntax tree of a text that is not too long or too deep.

    Raises:
        ExpressionError: it is none.
    """
    if len(text) > MOST_CHARACTERS:
        raise ExpressionError(f"it has more than {MOST_CHARACTERS:,} characters")
    try:
        found: ast.AST = ast.parse(text, mode=mode)
        nodes = sum(1 for _ in ast.walk(found))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        place = f", at character {error.offset}" if isinstance(error, SyntaxError) else ""
        raise ExpressionError(f"it cannot be read: {what}{place}") from None
    if nodes > MOST_NODES:
        raise ExpressionError("it is too large")
    return found


class TriggerExpression:
    """An expression that can be evaluated.

    Args:
        names: those that it may refer to.

    Attributes:
        words: all names, fields and texts that stand in it.

    Raises:
        ExpressionError: it is none, or does what must not be done.
    """

    def __init__(self, text: str, names: tuple[str, ...]) -> None:
        self.text = without_braces(text)
        tree = parsed(self.text, "eval")
        assert isinstance(tree, ast.Expression)
        self._body = tree.body
        check(self._body, names)
        self.words = frozenset(words_of(self._body))

    def evaluate(self, views: Mapping[str, object]) -> object:
        """Evaluates the expression.

        Args:
            views: what its names stand for.

        Raises:
            ExpressionError: it takes too long, or cannot be computed.
        """
        return evaluate(self._body, views)


def check(tree: ast.AST, names: tuple[str, ...]) -> None:
    """Refuses a tree with anything in it that is not known.

    Raises:
        ExpressionError: it says what.
    """
    bound = {node.id for node in ast.walk(tree) if _is_bound(node)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if not isinstance(node, (*_KNOWN_NODES, ast.keyword)):
            raise ExpressionError(f"{type(node).__name__} is not allowed")
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            known = node.id in names or node.id in bound or node.id in FUNCTIONS
            if not known:
                raise ExpressionError(
                    f"there is no {node.id[:80]}; there are {', '.join(sorted(names))}"
                )
        if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
            raise ExpressionError(f"{node.attr[:80]} is not allowed")
        if isinstance(node, ast.comprehension) and node.is_async:
            raise ExpressionError("async is not allowed")
        if isinstance(node, ast.Constant) and not isinstance(
            node.value, bool | int | float | str | None
        ):
            raise ExpressionError(f"{type(node.value).__name__} is not allowed")


def _is_bound(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def words_of(tree: ast.AST) -> Iterator[str]:
    """All names, fields and texts that stand in a tree."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def evaluate(tree: ast.AST, views: Mapping[str, object]) -> object:
    """Evaluates a tree that was checked.

    Raises:
        ExpressionError: it takes too long, or cannot be computed.
    """
    try:
        return _Evaluation(views).of(tree)
    except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ExpressionError(f"it cannot be computed: {str(error)[:200]}") from None


class _Evaluation:
    def __init__(self, views: Mapping[str, object]) -> None:
        self._views = dict(views)
        self._steps = 0

    def of(self, node: ast.AST) -> object:
        self._takes(1)
        found: object = getattr(self, f"_{type(node).__name__}")(node)
        return found

    def _takes(self, steps: int) -> None:
        self._steps += steps
        if self._steps > MOST_STEPS:
            raise ExpressionError(f"it takes more than {MOST_STEPS:,} steps")

    def _Constant(self, node: ast.Constant) -> object:
        return node.value

    def _Name(self, node: ast.Name) -> object:
        if node.id not in self._views:
            raise ExpressionError(f"{node.id} is no value")
        return self._views[node.id]

    def _Attribute(self, node: ast.Attribute) -> object:
        value = self.of(node.value)
        if value is None:
            return None
        if isinstance(value, msgspec.Struct) and node.attr in value.__struct_fields__:
            found: object = getattr(value, node.attr)
            return found
        if isinstance(value, Mapping):
            return self._row(value, node.attr)
        raise ExpressionError(f"there is no {node.attr[:80]} of {_kind(value)}")

    def _Subscript(self, node: ast.Subscript) -> object:
        value, key = self.of(node.value), self.of(node.slice)
        if value is None:
            return None
        if isinstance(value, Mapping) and isinstance(key, str):
            return self._row(value, key)
        if isinstance(value, list | tuple) and type(key) is int:
            return value[key] if -len(value) <= key < len(value) else None
        raise ExpressionError(f"{_kind(value)} has no parts by {_kind(key)}")

    def _row(self, table: Mapping[str, object], name: str) -> object:
        if isinstance(table, TableView):
            self._takes(table.steps_to(name))
        return table.get(name)

    def _List(self, node: ast.List | ast.Tuple) -> object:
        return [self.of(each) for each in node.elts]

    _Tuple = _List

    def _IfExp(self, node: ast.IfExp) -> object:
        return self.of(node.body if self.of(node.test) else node.orelse)

    def _BoolOp(self, node: ast.BoolOp) -> object:
        stops = isinstance(node.op, ast.Or)
        found: object = not stops
        for part in node.values:
            found = self.of(part)
            if bool(found) is stops:
                break
        return found

    def _UnaryOp(self, node: ast.UnaryOp) -> object:
        value = self.of(node.operand)
        if isinstance(node.op, ast.Not):
            return not value
        if value is None:
            return None
        number = _number(value)
        return -number if isinstance(node.op, ast.USub) else number

    def _BinOp(self, node: ast.BinOp) -> object:
        left, right = self.of(node.left), self.of(node.right)
        if left is None or right is None:
            return None
        found = _ARITHMETIC[type(node.op)](_number(left), _number(right))
        if isinstance(found, int) and abs(found) > LARGEST:
            raise ExpressionError("a number is too large")
        return found

    def _Compare(self, node: ast.Compare) -> object:
        left = self.of(node.left)
        for sign, part in zip(node.ops, node.comparators, strict=True):
            right = self.of(part)
            if not self._compares(left, sign, right):
                return False
            left = right
        return True

    def _compares(self, left: object, sign: ast.cmpop, right: object) -> bool:
        if type(sign) in _EQUALITIES:
            for value in (left, right):
                if not isinstance(value, bool | int | float | str | None):
                    raise ExpressionError(f"{_kind(value)} cannot be compared")
            return _EQUALITIES[type(sign)](left, right)
        if isinstance(sign, ast.In | ast.NotIn):
            if not isinstance(right, list | tuple | Mapping):
                raise ExpressionError(f"nothing is in {_kind(right)}")
            if not isinstance(left, bool | int | float | str | None):
                raise ExpressionError(f"{_kind(left)} cannot be looked for")
            self._takes(len(right))
            return (left in right) is isinstance(sign, ast.In)
        if left is None or right is None:
            return False  # A missing value is neither more nor less.
        if isinstance(left, str) is not isinstance(right, str):
            raise ExpressionError(f"{_kind(left)} and {_kind(right)} have no order")
        if not isinstance(left, str):
            left, right = _number(left), _number(right)
        return _ORDERS[type(sign)](left, right)

    def _Call(self, node: ast.Call) -> object:
        if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS or node.keywords:
            raise ExpressionError(f"only {', '.join(FUNCTIONS)} can be called")
        given = [self.of(each) for each in node.args]
        name = node.func.id
        if name in ("abs", "round"):
            return _of_number(name, given)
        if name in ("min", "max") and len(given) > 1:
            values = given
        elif len(given) == 1 and isinstance(given[0], list | tuple | Mapping):
            values = list(given[0])
        else:
            raise ExpressionError(f"{name} takes one list")
        self._takes(len(values))
        if name == "len":
            return len(values)
        if name in ("any", "all"):
            return any(values) if name == "any" else all(values)
        numbers = [_number(each) for each in values if each is not None]
        if name == "sum":
            whole = all(isinstance(number, int) for number in numbers)
            return sum(numbers) if whole else math.fsum(numbers)
        if not numbers:
            return None
        return min(numbers) if name == "min" else max(numbers)

    def _GeneratorExp(self, node: ast.GeneratorExp | ast.ListComp) -> object:
        return list(self._rows(node.elt, node.generators))

    _ListComp = _GeneratorExp

    def _rows(self, element: ast.expr, loops: list[ast.comprehension]) -> Iterator[object]:
        if not loops:
            yield self.of(element)
            return
        loop, *rest = loops
        if not isinstance(loop.target, ast.Name):
            raise ExpressionError("a loop has one name")
        values = self.of(loop.iter)
        if not isinstance(values, list | tuple | Mapping):
            raise ExpressionError(f"there is no loop over {_kind(values)}")
        name = loop.target.id
        hidden, was_there = self._views.get(name), name in self._views
        for value in list(values):
            self._views[name] = value
            if all(self.of(test) for test in loop.ifs):
                yield from self._rows(element, rest)
        if was_there:
            self._views[name] = hidden
        else:
            self._views.pop(name, None)


def _of_number(name: str, given: list[object]) -> object:
    if len(given) != 1:
        raise ExpressionError(f"{name} takes one number")
    if given[0] is None:
        return None
    number = _number(given[0])
    return abs(number) if name == "abs" else round(number)


def _number(value: object) -> int | float:
    if isinstance(value, int | float):
        return value
    raise ExpressionError(f"{_kind(value)} is no number")


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list | tuple) else type(value).__name__
