"""Small things of the core: amounts, matches, task ids, commands, pauses."""

from __future__ import annotations

from itertools import pairwise

import pytest

from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.job.placeholders import Placeholders, fill
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.shape import Shape
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.refusal import CLOSENESS, Reason, Refusal
from kestrelctl.core.model.worker.assets import amounts, describe, natural
from kestrelctl.core.model.worker.claim import UNBOUNDED, Claim
from kestrelctl.core.pacing.backoff import FIRST_SECONDS, LONGEST_SECONDS, pause_seconds
from kestrelctl.core.pacing.pace import Pace
from kestrelctl.core.scheduling.match import Terms, match

MEBIBYTE = 1 << 20


# -- amounts and matches ---------------------------------------------------------------------------


def class_of(assets: dict[str, float], *tags: str) -> WorkerClass:
    return WorkerClass(frozenset(tags), amounts(assets))


def test_what_is_charged_and_released_adds_up() -> None:
    free = amounts({"cpus": 1.0, "memory": 100, "fpga": 2})
    third = Claim(amounts({"cpus": 1 / 3, "memory": 33, "fpga": 0.5}))
    assert third.times_fitting(free) == 3
    third.charge(free, times=2)
    third.charge(free)
    assert free == {"cpus": 1, "memory": 1000, "fpga": 500}
    for _ in range(3):
        third.release(free)
    assert natural(free) == {"cpus": 1.0, "memory": 100.0, "fpga": 2.0}


def test_what_is_not_there_does_not_fit() -> None:
    assert Claim({"gpus": 1}).times_fitting({"cpus": 8000}) == 0
    assert Claim({}).times_fitting({}) == UNBOUNDED


@pytest.mark.parametrize(
    ("asset", "amount", "words"),
    [
        ("cpus", 1000, "1 cpu"),
        ("cpus", 500, "0.5 cpus"),
        ("memory", 512 * MEBIBYTE * 1000, "512 MiB memory"),
        ("memory", 2_112_155_648_000, "2014 MiB memory"),
        ("memory", 1_572_864_000, "1.5 MiB memory"),
        ("memory", 15_718_535_168_000, "14990 MiB memory"),
        ("disk", 10_485_755 * MEBIBYTE * 1000, "10485755 MiB disk"),
        ("fpga", 2000, "2 fpga"),
        ("fpga", 1_234_567_001, "1,234,567.001 fpga"),
        ("db", 1_000_000_001_000, "1,000,000,001 db"),
    ],
)
def test_amounts_in_words(asset: str, amount: int, words: str) -> None:
    assert describe(asset, amount) == words


def test_terms_say_what_is_charged_and_how_many_run_side_by_side() -> None:
    shape = Shape(amounts({"cpus": 2, "fpga": 1}), frozenset({"R"}))
    terms = match(shape, class_of({"cpus": 8, "fpga": 3}, "R", "LINUX"))
    assert isinstance(terms, Terms)
    assert (terms.claim.amounts, terms.side_by_side) == ({"cpus": 2000, "fpga": 1000}, 3)


def test_a_refusal_names_what_is_missing() -> None:
    shape = Shape(amounts({"cpus": 1}), frozenset({"GPU", "R"}))
    refusal = match(shape, class_of({"cpus": 8}, "R", "LINUX"))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.wanted) == (Reason.MISSING_TAGS, "GPU")


def test_a_refusal_says_how_much_there_is() -> None:
    shape = Shape(amounts({"cpus": 1, "memory": 512 * MEBIBYTE}), frozenset())
    refusal = match(shape, class_of({"cpus": 8, "memory": 256 * MEBIBYTE}))
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.wanted, refusal.found) == (
        Reason.TOO_SMALL,
        "512 MiB memory",
        "256 MiB memory",
    )


def test_a_worker_of_which_nothing_is_known_lacks_nothing() -> None:
    shape = Shape(amounts({"cpus": 64}), frozenset({"GPU"}))
    refusal = match(shape, WorkerClass(frozenset(), {}, ad_known=False))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNHEARD


def test_refusals_are_ordered_by_how_close_they_are() -> None:
    shape = Shape(amounts({"cpus": 4}), frozenset({"A", "B"}))
    ads = [(1.0, "C"), (8.0, "A"), (1.0, "AB"), (3.0, "AB")]
    found = [match(shape, class_of({"cpus": cpus}, *tags)) for cpus, tags in ads]
    closeness = [refusal.closeness for refusal in found if isinstance(refusal, Refusal)]
    assert closeness == sorted(closeness)
    assert len(set(closeness)) == 4
    bounds = [CLOSENESS[reason] for reason in CLOSENESS]
    assert bounds == sorted(bounds), "the reasons stand in the order of the ladder"
    assert all(low <= high <= later for (low, high), (later, _) in pairwise(bounds))


# -- arrays ----------------------------------------------------------------------------------------


def test_task_ids_and_indexes_are_two_names_of_one_thing() -> None:
    spec = JobSpec(program=Program(argv=("true",)), count=3, first=10, step=5)
    assert [spec.task_id(index) for index in range(3)] == [10, 15, 20]
    assert spec.indexes_of((10, 15, 20)) == [0, 1, 2]
    assert spec.indexes_of((5, 12, 25)) == [None, None, None]


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


def test_what_was_filled_in_is_not_filled_again() -> None:
    assert fill(("{a}",), 1, 0, '{"a": "{b}", "b": "no"}', Placeholders.ARRAY) == ("{b}",)


def test_an_item_that_is_nested_too_deeply_to_be_read_is_a_word() -> None:
    item = '{"a": ' * 100_000
    assert fill(("{a}", "{}"), 1, 0, item, Placeholders.ARRAY) == ("{a}", item)
    item = '{"a": ' + "[" * 50_000 + "]" * 50_000 + "}"
    assert fill(("{a}", "{}"), 1, 0, item, Placeholders.ARRAY) == ("{a}", item)


def test_a_template_is_the_job_without_its_array() -> None:
    spec = JobSpec(
        program=Program(argv=("run", "{}"), env={"A": "b"}),
        count=9,
        first=3,
        step=2,
        items=("x",) * 9,
    )
    template = Template.of(5, spec)
    assert (template.job_id, template.with_items, template.program.env) == (5, True, {"A": "b"})
    assert template.task_id(4) == spec.task_id(4) == 11
    assert not hasattr(template, "items")


# -- pauses ----------------------------------------------------------------------------------------


def test_pauses_double_up_to_a_limit_and_are_spread() -> None:
    longest = [pause_seconds(failures, 1.0) for failures in range(1, 8)]
    assert longest == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, LONGEST_SECONDS]
    assert pause_seconds(1, 0.0) == FIRST_SECONDS / 2
    assert pause_seconds(10_000, 0.0) == LONGEST_SECONDS / 2


def test_who_may_not_wait_takes_what_there_is() -> None:
    pace = Pace(per_second=10.0, burst=2.0)
    assert [pace.takes(-50.0) for _ in range(3)] == [True, True, False]
    assert [pace.takes(-49.9) for _ in range(2)] == [True, False]
    assert [pace.takes(1000.0) for _ in range(3)] == [True, True, False]


def test_a_burst_passes_at_once_and_a_lasting_stream_at_its_rate() -> None:
    pace = Pace(per_second=10.0, burst=3.0)
    for hours in (1, 2):
        pauses = [pace.pause_seconds(3600.0 * hours) for _ in range(5)]
        assert pauses == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2])
