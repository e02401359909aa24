"""How long the tasks of a sweep are, and what no scheduler can beat."""

from __future__ import annotations

import pytest

from kestrelctl.bench import bounds
from kestrelctl.bench.reference import REFERENCE_2009
from kestrelctl.errors import KestrelError, UsageError


@pytest.mark.parametrize("spec", ["0", "1", "10", "0.5", "0-10", "0.5-1.5", "0.00002", "100"])
def test_a_sleep_time_reads_and_prints_alike(spec: str) -> None:
    assert str(bounds.parse_sleep(spec)) == spec


def test_spellings_of_the_same_time_are_the_same() -> None:
    assert bounds.parse_sleep("10.0") == bounds.parse_sleep(" 10 ") == bounds.parse_sleep("10-10")


@pytest.mark.parametrize(
    "spec", ["5-1", "x", "", "-1", "1-", "1-2-3", "1s", "nan", "1e3", "9" * 400, f"0-{'9' * 400}"]
)
def test_what_is_no_sleep_time_is_refused_with_a_hint(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        bounds.parse_sleep(spec)
    assert caught.value.hint


def test_a_single_time_holds_for_every_task() -> None:
    assert bounds.durations(bounds.parse_sleep("0.5"), 3) == [0.5, 0.5, 0.5]


def test_a_range_is_drawn_uniformly() -> None:
    drawn = bounds.durations(bounds.parse_sleep("0-10"), 20_000)
    assert all(0 <= seconds <= 10 for seconds in drawn)
    for tenth in range(10):
        assert sum(tenth <= seconds < tenth + 1 for seconds in drawn) == pytest.approx(
            2000, rel=0.1
        )


def test_a_task_of_a_range_always_sleeps_as_long() -> None:
    sleep = bounds.parse_sleep("0-10")
    first_three = [1.552, 2.619, 3.536]
    assert bounds.durations(sleep, 3) == first_three
    assert sleep.seconds(2) == first_three[2]


def test_the_bounds_of_2009() -> None:
    run = REFERENCE_2009["1"]
    drawn = bounds.durations(bounds.parse_sleep(run.sleep), run.tasks)
    bound = bounds.worker_time_bound(drawn, run.workers)
    assert bound == pytest.approx(54.945, abs=0.001)
    assert bounds.utilisation(bound, run.makespan_seconds) == pytest.approx(0.509, abs=0.001)


def test_the_spawn_bound_is_tasks_over_rate() -> None:
    assert bounds.spawn_bound(50_000, 2_500) == 20


def test_a_makespan_at_the_bound_is_plausible() -> None:
    bounds.check_plausible(55.0, 55.0)


@pytest.mark.parametrize("makespan", [54.999, 0.0, -1.0])
def test_a_makespan_below_the_bound_is_refused_with_its_cause(makespan: float) -> None:
    with pytest.raises(KestrelError) as caught:
        bounds.check_plausible(makespan, 55.0)
    assert "clock or the number of workers" in (caught.value.cause or "")


def test_a_makespan_of_nothing_is_refused_even_without_a_bound() -> None:
    with pytest.raises(KestrelError):
        bounds.check_plausible(0.0, 0.0)


def test_the_published_run_of_ten_seconds_lies_below_its_bound() -> None:
    run = REFERENCE_2009["10"]
    with pytest.raises(KestrelError):
        bounds.check_plausible(run.makespan_seconds, run.tasks * 10 / run.workers)
    assert run.note
