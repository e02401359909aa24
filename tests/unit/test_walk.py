"""What the walk through the first pages types, and what it leaves out."""

from __future__ import annotations

import pytest
from console_blocks import Typed, typed
from walk import CHECKOUT, PAGES, RULES, Rule, problems, why_not

PAGE = {page.path: page for page in PAGES}
README = PAGE["README.md"]


def test_nothing_of_the_readme_is_left_out_with_all_options() -> None:
    steps = typed((CHECKOUT / "README.md").read_text())
    assert [step for step in steps if why_not(README, step.command, {"bench", "test"})] == []


def test_what_takes_long_is_typed_on_demand() -> None:
    for command in ("./kestrel test", "./kestrel test --fast", "./kestrel bench --jobs 50000"):
        assert why_not(README, command, set())
    assert not why_not(README, "./kestrel test tests/unit", set())


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.command)
def test_each_rule_leaves_something_out(rule: Rule) -> None:
    left_out = {
        why_not(page, step.command, set())
        for page in PAGES
        for step in typed((CHECKOUT / page.path).read_text())
    }
    assert rule.reason in left_out


def test_a_step_has_to_end_and_to_show_what_the_page_shows() -> None:
    step = Typed(1, "up", ["pool is up"])
    assert problems(step, 0, ["pool is up"]) == []
    assert problems(step, 0, ["what?"]) == ["not shown: pool is up"]
    assert problems(step, 1, ["pool is up"]) == ["exit status 1"]
    assert problems(step, None, []) != []


def test_a_step_whose_page_shows_an_error_has_to_fail() -> None:
    step = Typed(1, "up", ["error: no"])
    assert problems(step, 3, ["error: no"]) == []
    assert problems(step, 0, ["error: no"]) == ["exit status 0"]
