"""Whatever rubbish rules are made of, and whatever plugins print: it comes to a value or a reason.

Many more, with how long they take: `.venv/bin/python tests/bench/rules.py`.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from ruleskit import (
    Escaped,
    Rubbish,
    nothing_escapes,
    try_command,
    try_expression,
    try_printed,
    world,
)

from kestrelctl.core.triggers.actions import TriggerActions
from kestrelctl.core.triggers.expression import (
    MOST_NODES,
    MOST_STEPS,
    ExpressionError,
    TableView,
    TriggerExpression,
)
from kestrelctl.core.triggers.pool_views import NAMES

SEEDS = range(4)
EACH = 250


@pytest.mark.parametrize("seed", SEEDS)
def test_expressions_come_to_a_value_or_a_reason_and_nothing_gets_out(seed: int) -> None:
    rubbish, views = Rubbish(seed), world()
    found = [try_expression(rubbish.expression(), views) for _ in range(EACH)]
    assert any(not isinstance(value, ExpressionError) for value in found)


@pytest.mark.parametrize("seed", SEEDS)
def test_commands_come_to_actions_or_a_reason_and_nothing_gets_out(seed: int) -> None:
    rubbish, views = Rubbish(seed), world()
    found = [try_command(rubbish.command(), views) for _ in range(EACH)]
    assert any(not isinstance(value, ExpressionError) for value in found)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_printed_comes_to_a_value_or_a_reason(seed: int) -> None:
    rubbish = Rubbish(seed)
    for _ in range(EACH):
        try_printed(*rubbish.printed())


def test_a_way_out_would_be_seen() -> None:
    with pytest.raises(Escaped, match="open"), nothing_escapes():
        os.open("/dev/null", os.O_RDONLY)


def test_what_is_added_up_while_it_is_read_counts_as_steps() -> None:
    made = []

    def row(name: str) -> int:
        made.append(name)
        return 1

    table: TableView[Any] = TableView([f"p{n}" for n in range(1_000)], row, 1_000)
    expression = TriggerExpression("sum(properties[p] for p in properties)", NAMES)
    with pytest.raises(ExpressionError, match="steps"):
        expression.evaluate({"properties": table})
    assert len(made) <= MOST_STEPS // 1_000
    once = TriggerExpression("properties.p1 + properties['p1'] + properties.p1", NAMES)
    assert once.evaluate({"properties": table}) == 3


def test_a_name_with_many_dots_is_refused_wherever_it_is_read() -> None:
    def deep(frames: int) -> None:
        if frames:
            deep(frames - 1)
            return
        with pytest.raises(ExpressionError, match="there is no query"):
            TriggerActions(".".join(["query"] * (MOST_NODES // 2 - 10)) + "()")

    deep(300)
