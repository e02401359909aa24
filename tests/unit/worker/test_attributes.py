"""What an operator has a worker say of itself, and what it takes."""

from __future__ import annotations

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.core.model.worker.ad_rules import problem_with_ad
from kestrelctl.errors import UsageError
from kestrelctl.grammar.attributes import parse_attribute, plain_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=7", 7),
        ("k=-7", -7),
        ("k=2.5", 2.5),
        ("k=1e3", 1000.0),
        ("k=TRUE", True),
        ("k=false", False),
        ("k=north", "north"),
        ('k="7"', "7"),
        ("k=", ""),
        ("k=a=b", "a=b"),
        ("k=nan", "nan"),
        ("k=" + "9" * 30, 1e30),
    ],
)
def test_a_value_is_a_number_true_false_or_a_text(text: str, value: object) -> None:
    name, found = parse_attribute(text)
    assert (name, found, type(found)) == ("k", value, type(value))
    assert parse_attribute(f"k={plain_value(found)}") == (name, found)


def test_what_is_no_attribute_says_how_to_write_one() -> None:
    with pytest.raises(UsageError) as refused:
        parse_attribute("rack")
    assert refused.value.hint == "write rack=VALUE"


def test_a_mistake_in_a_start_is_pointed_at_before_anything_runs() -> None:
    found = run(FakePool(), "worker", "run", "--start", "Cpus > > 2")
    assert found.exit_code == 2
    assert found.stderr == (
        "error: the pool would not take --start\n"
        "cause: a value is expected, not '>', at character 8\n"
        "  Cpus > > 2\n"
        "         ^\n"
    )


@pytest.mark.parametrize("words", [["a=1", "a=2"], ["Machine=x"], ["true=1"], ["RequestCpus=3"]])
def test_attributes_that_nothing_could_use_are_refused(words: list[str]) -> None:
    options = [part for word in words for part in ("--attribute", word)]
    found = run(FakePool(), "worker", "run", *options)
    assert found.exit_code == 2
    assert "these attributes cannot be given" in found.stderr


def test_the_pool_refuses_an_ad_with_a_mistake() -> None:
    assert problem_with_ad(WorkerAd(attributes={"rack": 7}, start="RequestCpus < MY.Rack")) is None
    assert "time() is not the same" in (problem_with_ad(WorkerAd(start="time() > 3")) or "")
    assert problem_with_ad(WorkerAd(attributes={"a b": 7})) == "'a b' is no name of an attribute"
