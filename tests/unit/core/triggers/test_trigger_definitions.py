"""Triggers are defined in INI; what they want done is a list of calls."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triggerkit import POOL, SOURCES_EXAMPLE

from kestrelctl.core.triggers.actions import Action, TriggerActions
from kestrelctl.core.triggers.definition import TriggerDefinition, read_triggers
from kestrelctl.core.triggers.state import TriggerState
from kestrelctl.errors import UsageError


def one(lines: str) -> TriggerDefinition:
    [found] = read_triggers(f"[t]\nexpr = True\ncmd = query()\nticks = 30\n{lines}", "t.ini")
    return found


def test_the_example_of_the_source_is_read_as_it_is_meant() -> None:
    [found] = read_triggers(SOURCES_EXAMPLE, "triggers.ini")
    assert (found.name, found.tick_seconds, found.on_update) == ("client_query", 30.0, False)
    assert found.expression.evaluate(POOL.views()) is True
    assert found.actions.of(POOL.views()) == [Action("query")]


def test_actions_have_arguments_that_are_computed() -> None:
    text = (
        "drain([w for w in workers if w.properties.load > 3]); "
        "query('load', 'users', group='gpu'); "
        "run_command('clean', days=1 + 2, force=True); notify('admin', 'w2 is busy')"
    )
    assert TriggerActions(text).of(POOL.views()) == [
        Action("drain", (("w2",),)),
        Action("query", (("load",), ("users",)), {"group": ("gpu",)}),
        Action("run_command", (("clean",),), {"days": ("3",), "force": ("true",)}),
        Action("notify", (("admin",), ("w2 is busy",))),
    ]
    assert str(TriggerActions("drain(['a', 'b'])").of({})[0]) == "drain([a, b])"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("expr = \ncmd = query()\nticks = 30", "expr is missing"),
        ("expr = True\nticks = 30", "cmd is missing"),
        ("expr = True\ncmd = query()", "ticks is missing"),
        ("expr = nosuch\ncmd = query()\nticks = 30", "expr: there is no nosuch"),
        ("expr = True\ncmd = reboot()\nticks = 30", "cmd: there is no reboot()"),
        ("expr = True\ncmd = drain()\nticks = 30", "drain() takes 1 arguments"),
        ("expr = True\ncmd = drain('a', b='c')\nticks = 30", "drain() takes no b"),
        ("expr = True\ncmd = drain(*workers)\nticks = 30", "Starred is not allowed"),
        ("expr = True\ncmd = x = 1\nticks = 30", "cmd is a call"),
        ("expr = True\ncmd = import os\nticks = 30", "cmd is a call"),
        ("expr = True\ncmd = query().x()\nticks = 30", "there is no query().x()"),
        ("expr = True\ncmd = query()\nticks = 0", "ticks is '0'"),
        ("expr = True\ncmd = query()\nticks = 5\nfor = -1", "for is '-1'"),
        ("expr = True\ncmd = query()\nticks = 5\non_update_check = perhaps", "on_update_check"),
        ("expr = True\ncmd = query()\nticks = 5\nevery = 1", "there is no 'every'"),
    ],
)
def test_a_mistake_is_told_with_its_place(lines: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_triggers(f"[t]\n{lines}\n", "t.ini")
    assert raised.value.message == "t.ini: [t] is wrong"
    assert said in str(raised.value.cause)


@given(st.text(max_size=200))
def test_whatever_stands_there_is_read_or_refused(text: str) -> None:
    for whole in (text, f"[t]\nexpr = {text}\ncmd = query()\nticks = 3\n"):
        try:
            read_triggers(whole, "t.ini")
        except UsageError:
            continue


def test_it_fires_at_each_look_unless_it_says_otherwise() -> None:
    course = TriggerState(one(""))
    assert [course.fires(True, t) for t in (0.0, 1.0)] == [True, True]
    assert not course.fires(False, 2.0)
    assert course.times == 2


def test_it_must_have_been_true_for_as_long_as_it_says() -> None:
    course = TriggerState(one("for = 60"))
    assert [course.fires(True, t) for t in (0.0, 30.0, 60.0)] == [False, False, True]
    assert not course.fires(False, 90.0)
    assert [course.fires(True, t) for t in (120.0, 179.0, 180.0)] == [False, False, True]


def test_after_it_has_fired_it_rests_for_as_long_as_it_says() -> None:
    course = TriggerState(one("cooldown = 60"))
    found = [course.fires(True, t) for t in (0.0, 30.0, 59.0, 60.0, 61.0)]
    assert found == [True, False, False, True, False]
