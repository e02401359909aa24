"""No test outside tests/bench asserts how long something really took, or how fast it was.

Such a test fails on a busy machine without a defect. Say instead what the time stands for: a count
of steps or calls, simulated time, or what has to happen before what. A limit in a `while` loop only
guards against waiting for ever and is fine, as is a timeout.

The rule looks at comparisons of what was measured with a number above it. Measured is a reading of
a clock, what the same function computes from one, and, where processes are real, a field that is
named after seconds or a rate.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CLOCKS = {
    "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "thread_time",
    "time", "time_ns", "getrusage",
}  # fmt: skip
MEASURED_FIELDS = ("_seconds", "_ms", "per_second")
#: What a function has in it that measures; to look at the others closely would take long.
CLUE = re.compile(rf"\b({'|'.join(CLOCKS)})\(|({'|'.join(MEASURED_FIELDS)})\b")
#: Clocks are doubles there, so that fields hold what the test has put in.
WITHOUT_REAL_PROCESSES = {"unit", "simulation", "property"}

#: file::function -> why it may compare.
ALLOWED = {
    "integration/test_execution.py::test_an_idle_executor_does_not_wake_up": "counts switches",
}


class Scope:
    """What one function has measured."""

    def __init__(self, function: ast.AST, *, fields: bool) -> None:
        self._fields = fields
        self._measured: set[str] = set()
        known = -1
        while known < len(self._measured):
            known = len(self._measured)
            for node in ast.walk(function):
                self._learn(node)

    def _learn(self, node: ast.AST) -> None:
        """Notes the names that hold what was measured."""
        match node:
            case ast.Assign(targets=targets, value=value) if self.is_measured(value):
                names = [n for target in targets for n in ast.walk(target)]
                self._measured |= {n.id for n in names if isinstance(n, ast.Name)}
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
                | ast.For(target=ast.Name(id=name), iter=value)
                | ast.comprehension(target=ast.Name(id=name), iter=value)
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value])
            ) if self.is_measured(value):
                self._measured.add(name)

    def is_measured(self, value: ast.AST) -> bool:
        """Whether an expression holds something measured."""
        return any(self._is_measure(node) for node in ast.walk(value))

    def _is_measure(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in CLOCKS:
                return True
            case ast.Name(id=name):
                return name in self._measured
            case ast.Attribute(attr=str(name)) | ast.Subscript(slice=ast.Constant(value=str(name))):
                return self._fields and name.endswith(MEASURED_FIELDS)
        return False


def bounded(node: ast.Compare) -> Iterator[ast.expr]:
    """What a comparison holds below a number, or about at it."""
    operands = [node.left, *node.comparators]
    for operator, (left, right) in zip(node.ops, pairwise(operands), strict=True):
        if isinstance(operator, ast.Lt | ast.LtE) and is_number(right):
            yield left
        elif isinstance(operator, ast.Gt | ast.GtE) and is_number(left):
            yield right
        elif isinstance(operator, ast.Eq) and is_approximate_number(right):
            yield left


def is_number(node: ast.expr) -> bool:
    """Whether it is written as a number, perhaps computed, or a constant of the module."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name.isupper()
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
    return False


def is_approximate_number(node: ast.expr) -> bool:
    """Whether it is pytest.approx of a number."""
    match node:
        case ast.Call(func=ast.Attribute(attr="approx"), args=[value, *_]):
            return is_number(value)
    return False


def outside_of_loops(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without those of `while` loops."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.While):
            yield child
            yield from outside_of_loops(child)


def offenders(text: str, *, fields: bool) -> list[str]:
    """The functions of a module that compare how long something took."""
    found = []
    lines = text.splitlines()
    for function in ast.walk(ast.parse(text)) if CLUE.search(text) else ():
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not CLUE.search("\n".join(lines[function.lineno - 1 : function.end_lineno])):
            continue
        nodes = outside_of_loops(function)
        below = [each for n in nodes if isinstance(n, ast.Compare) for each in bounded(n)]
        if below and any(map(Scope(function, fields=fields).is_measured, below)):
            found.append(function.name)
    return found


def test_no_test_asserts_how_long_something_really_took() -> None:
    found = set()
    for module in TESTS.rglob("*.py"):
        room, *_ = place = module.relative_to(TESTS).parts
        if room != "bench":
            fields = room not in WITHOUT_REAL_PROCESSES
            names = offenders(module.read_text(encoding="utf-8"), fields=fields)
            found |= {f"{'/'.join(place)}::{name}" for name in names}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "body",
    [
        "started = time.monotonic(); work(); assert time.monotonic() - started < 5",
        "started = perf_counter(); took = perf_counter() - started; assert 0.1 > took",
        "took.append(time.time() - before); assert max(took) <= LONGEST_SECONDS",
        "took = [loop.time() - at for at in x]; assert sum(t for t in took) / 2 < 1.5 * 60",
        "took = time.monotonic() - before; assert took == pytest.approx(1.0)",
        "assert 0.3 <= ended.wall_seconds < 2",
        "assert run['tasks_per_second'] < 200_000",
    ],
)
def test_a_comparison_with_a_number_is_found(body: str) -> None:
    assert offenders(f"def test(): {body}", fields=True) == ["test"]


@pytest.mark.parametrize(
    "body",
    [
        "\n  while not x():\n    assert time.monotonic() < deadline, 'it hangs'",
        "\n  while time.monotonic() < started + 5:\n    work()",
        "before = time.time(); assert before <= ended.started_at <= time.time()",
        "assert ended.wall_seconds >= 0.3",
        "assert 0 < ended.cpu_seconds < ended.wall_seconds",
        "assert len(found) < 5",
    ],
)
def test_what_is_no_bound_is_not_found(body: str) -> None:
    assert offenders(f"def test(): {body}", fields=True) == []
