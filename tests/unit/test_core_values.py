"""Small things of the core: amounts, matches, task ids, commands, pauses."""

from __future__ import annotations

import pytest

from kestrelctl.core.assets import UNBOUNDED, amounts, give_back, take, times_fitting
from kestrelctl.core.backoff import FIRST_SECONDS, LONGEST_SECONDS, pause_seconds
from kestrelctl.core.matching import Reason, Shape, match
from kestrelctl.core.model import Counts, JobSpec
from kestrelctl.core.template import Template, fill

MEBIBYTE = 1 << 20


# -- amounts and matches ---------------------------------------------------------------------------


def test_what_is_taken_and_given_back_adds_up() -> None:
    free = amounts(1.0, 100)
    third = amounts(1 / 3, 33)
    assert times_fitting(third, free) == 3
    for _ in range(3):
        take(free, third)
    assert free == {"cpus": 1, "memory": 1}
    for _ in range(3):
        give_back(free, third)
    assert free == amounts(1.0, 100)


def test_what_is_not_there_does_not_fit() -> None:
    assert times_fitting({"gpus": 1}, {"cpus": 8000}) == 0
    assert times_fitting({}, {}) == UNBOUNDED


def test_a_refusal_names_what_is_missing() -> None:
    shape = Shape(amounts(1, 0), frozenset({"GPU", "R"}))
    refusal = match(shape, amounts(8, 0), frozenset({"R", "LINUX"}))
    assert refusal is not None
    assert (refusal.reason, refusal.wanted) == (Reason.MISSING_TAGS, "GPU")


def test_a_refusal_says_how_much_there_is() -> None:
    shape = Shape(amounts(1, 512 * MEBIBYTE), frozenset())
    refusal = match(shape, amounts(8, 256 * MEBIBYTE), frozenset())
    assert refusal is not None
    assert (refusal.reason, refusal.wanted, refusal.found) == (
        Reason.TOO_SMALL,
        "512 MiB memory",
        "256 MiB memory",
    )


def test_refusals_are_ordered_by_how_close_they_are() -> None:
    shape = Shape(amounts(4, 0), frozenset({"A", "B"}))
    ads = [(1, {"C"}), (8, {"A"}), (1, {"A", "B"}), (3, {"A", "B"})]
    found = [match(shape, amounts(cpus, 0), frozenset(tags)) for cpus, tags in ads]
    closeness = [refusal.closeness for refusal in found if refusal]
    assert closeness == sorted(closeness)
    assert len(set(closeness)) == 4
    assert match(shape, amounts(4, 0), frozenset({"A", "B"})) is None


# -- arrays ----------------------------------------------------------------------------------------


def test_task_ids_and_indexes_are_two_names_of_one_thing() -> None:
    spec = JobSpec(argv=("true",), count=3, first=10, step=5)
    assert [spec.task_id(index) for index in range(3)] == [10, 15, 20]
    assert [spec.index_of(task_id) for task_id in (10, 15, 20)] == [0, 1, 2]
    assert [spec.index_of(task_id) for task_id in (5, 12, 25)] == [None, None, None]


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        (Counts(done=3), "done"),
        (Counts(done=3, cancelled=1), "cancelled"),
        (Counts(done=3, cancelled=1, failed=1), "failed"),
        (Counts(lost=1), "failed"),
    ],
)
def test_the_worst_task_names_the_outcome(counts: Counts, outcome: str) -> None:
    assert counts.outcome() == outcome


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "item", "filled"),
    [
        ("plain", None, "plain"),
        ("{}", None, "30"),
        ("{n}/{i}", None, "30/4"),
        ("in-{}.txt", "a b", "in-a b.txt"),
        ("{n}:{}", "x", "30:x"),
        ("{size}-{name}", '{"size": 3, "name": "ü"}', "3-ü"),
        ("{}", '{"a": 1}', '{"a": 1}'),
        ("{n}", '{"n": 7}', "7"),
        ("{list}", '{"list": [1, null]}', "[1, null]"),
        ("{print $1} ${HOME} {unknown} {{}}", "x", "{print $1} ${HOME} {unknown} {x}"),
        ("{}", "{not json", "{not json"),
        ("{a}", '["a"]', "{a}"),
        ("{}{}", "{}", "{}{}"),
    ],
)
def test_placeholders(word: str, item: str | None, filled: str) -> None:
    assert fill((word, "rest"), 30, 4, item) == (filled, "rest")


def test_what_was_filled_in_is_not_filled_again() -> None:
    assert fill(("{a}",), 1, 0, '{"a": "{b}", "b": "no"}') == ("{b}",)


def test_a_template_is_the_job_without_its_array() -> None:
    spec = JobSpec(
        argv=("run", "{}"), count=9, first=3, step=2, items=("x",) * 9, env={"A": "b"}, cpus=2
    )
    template = Template.of(5, spec)
    assert (template.job_id, template.with_items, template.cpus) == (5, True, 2)
    assert template.task_id(4) == spec.task_id(4) == 11
    assert not hasattr(template, "items")


# -- pauses ----------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_limit_and_are_spread() -> None:
    longest = [pause_seconds(failures, 1.0) for failures in range(1, 8)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_SECONDS]
    assert pause_seconds(1, 0.0) == FIRST_SECONDS / 2
    assert pause_seconds(10_000, 0.0) == LONGEST_SECONDS / 2
