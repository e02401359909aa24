"""Expressions of triggers: what they can say, and that they can do nothing else."""

from __future__ import annotations

import ast
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from triggerkit import POOL

from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.core.triggers.actions import TriggerActions
from kestrelctl.core.triggers.expression import (
    MOST_STEPS,
    ExpressionError,
    TableView,
    TriggerExpression,
)
from kestrelctl.core.triggers.pool_views import (
    NAMES,
    WatchedEnvironments,
    WatchedGroup,
    WatchedQueue,
    WatchedUnmet,
    WatchedWorker,
)


def comes_to(text: str) -> object:
    return TriggerExpression(text, NAMES).evaluate(POOL.views())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{ len(manager.clients) != 0 }", True),
        ("len(workers)", 3),
        ("queue.waiting > 10 * queue.running", True),
        (
            "groups['gpu'].properties['load'].mean >= 2 and groups.gpu.properties.load.missing",
            1,
        ),
        ("groups.nosuch.properties.load.mean > 2", False),
        ("[w.name for w in workers if w.properties.users == 0]", ["w1"]),
        ("any(w.properties.load > 3 for w in workers)", True),
        ("all(w.properties.load < 3 for w in workers)", False),
        ("sum(w.properties.load for w in workers)", 4.0),
        ("max(w.properties.nosuch for w in workers)", None),
        ("min(1, 2.5)", 1),
        ("unmet.shapes['1 cpu'] if unmet.tasks else -1", 7),
        ("environments.venv.ready < environments.venv.waiting", True),
        ("'linux' in workers[0].tags and 'x' not in workers[0].tags", True),
        ("workers[7].name", None),
        ("None < 5 or None > 5", False),
        ("-None is None", True),
        ("None + 1 == None", True),
        ("1 < 2 < 3", True),
        ("round(2.6) // 2 % 2", 1),
        (
            "[[w.name, v.name] for w in workers for v in workers if w.name < v.name][0]",
            ["w1", "w2"],
        ),
        ("not (queue.jobs or False)", False),
        ("[j.id for j in queue.jobs if j.owner == 'ada' and not j.held]", [7]),
    ],
)
def test_what_it_comes_to(text: str, value: object) -> None:
    assert comes_to(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__",
        "workers.__class__",
        "workers[0].__struct_fields__",
        "workers[0].properties.__class__.__mro__",
        "queue._x",
        "(lambda: 1)()",
        "lambda: 1",
        "open('/etc/passwd')",
        "eval('1')",
        "len.__self__",
        "f'{queue}'",
        "'{0.__class__}'.format(queue)",
        "'a' * 10",
        "2 ** 99",
        "1 << 99",
        "[x := 1]",
        "b'x'",
        "1j",
        "{1: 2}",
        "{{1, 2}}",
        "yield 1",
        "await x",
        "workers[0:1]",
        "nosuch",
        "queue = 1",
        "1; 2",
        "*workers",
        "print(1)",
        "len(*workers)",
        "len(obj=workers)",
        "workers.append(1)",
        "queue.jobs()",
        "",
        "(" * 300 + ")" * 300,
        "-" * 3000 + "1",
        "x" * 5000,
        "1\x00",
        "...",
    ],
)
def test_what_is_no_part_of_it_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        comes_to(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "division"),
        ("'a' + 'b'", "is no number"),
        ("'a' < 1", "no order"),
        ("workers == workers", "cannot be compared"),
        ("workers[0] in workers", "cannot be looked for"),
        ("len(5)", "takes one list"),
        ("queue.nosuch", "there is no nosuch"),
        ("queue['jobs']", "has no parts"),
        ("[w for w in 5]", "no loop"),
        ("[a for a, b in workers]", "one name"),
        ("18446744073709551616 * 2", "too large"),
        ("round(9e307 * 9e307)", "cannot be computed"),
        ("sum(1 for a in workers" + " for a in workers" * 12 + ")", "steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_computed_says_why(text: str, said: str) -> None:
    with pytest.raises(ExpressionError, match=said):
        comes_to(text)


def test_a_loop_leaves_no_name_behind_and_hides_none_for_long() -> None:
    assert comes_to("[len([queue for queue in workers]), queue.running]") == [3, 3]
    with pytest.raises(ExpressionError, match="w is no value"):
        comes_to("[[w.name for w in workers], w]")


def test_the_words_of_it_tell_which_values_it_reads() -> None:
    words = TriggerExpression("groups['gpu'].properties.load.mean > 1", NAMES).words
    assert {"groups", "gpu", "load"} <= words


_VALUES = ["w", "x", "1", "0", "-1", "2.5", "1e308", "18446744073709551615", "None", "True"]
_TEXTS = ["'gpu'", "'load'", "''"]
_PATHS = ["manager.clients", "queue.waiting", "workers[0]", "w.properties.load", "groups.gpu"]
_WAYS_OUT = ["__class__", "().__class__.__bases__", "__builtins__", "__import__('os')", "open"]
_ATOMS = st.sampled_from([*NAMES, *_VALUES, *_TEXTS, *_PATHS, *_WAYS_OUT, "len"])
_SIGNS = st.sampled_from(
    [
        "+",
        "-",
        "*",
        "/",
        "//",
        "%",
        "**",
        "<<",
        "and",
        "or",
        "<",
        "<=",
        "==",
        "!=",
        "in",
        "is",
        "@",
        "|",
    ]
)
_CALLED = st.sampled_from(
    ["len", "sum", "any", "all", "min", "max", "abs", "round", "print", "eval", "getattr"]
)
_FIELDS = st.sampled_from(["name", "properties", "load", "__class__", "__dict__", "mean"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, _SIGNS, inner),
        st.builds("{}({})".format, _CALLED, inner),
        st.builds("[{} for w in {}]".format, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("{}.{}".format, inner, _FIELDS),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("-{}".format, inner),
    )


_TREES = st.recursive(_ATOMS, _larger, max_leaves=12)


def is_plain(value: object) -> bool:
    """Whether it is something that an expression may come to."""
    if isinstance(value, list | tuple):
        return all(map(is_plain, value))
    known = (bool, int, float, str, TableView, dict, WatchedWorker, WatchedGroup, WatchedQueue)
    more = (WatchedUnmet, WatchedEnvironments, PropertySummary)
    return value is None or isinstance(value, (*known, *more)) or "Watched" in type(value).__name__


@given(st.one_of(_TREES, st.text(max_size=80), _TREES.map(lambda t: t.replace("(", "", 1))))
def test_whatever_is_written_comes_to_a_plain_value_or_is_refused(text: str) -> None:
    try:
        value = comes_to(text)
    except ExpressionError:
        return
    assert is_plain(value)


@given(st.text(max_size=60), st.one_of(_TREES, st.text(max_size=40)))
@settings(max_examples=50)
def test_whatever_is_written_as_a_command_is_an_action_or_refused(name: str, argument: str) -> None:
    for text in (name, f"drain({argument})", f"query({argument}, workers={argument})"):
        try:
            actions = TriggerActions(text).of(POOL.views())
        except ExpressionError:
            continue
        for action in actions:
            assert all(isinstance(text, str) for texts in action.given for text in texts)


def test_the_bound_of_steps_bounds_the_whole_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from kestrelctl.core.triggers import expression

    counted = 0
    before = expression._Evaluation.of

    def of(self: Any, node: ast.AST) -> object:
        nonlocal counted
        counted += 1
        return before(self, node)

    monkeypatch.setattr(expression._Evaluation, "of", of)
    with pytest.raises(ExpressionError, match="steps"):
        comes_to("sum(1 for a in workers" + " for a in workers" * 12 + ")")
    assert counted <= MOST_STEPS + 1
    assert sys.getrecursionlimit() <= 1_000
