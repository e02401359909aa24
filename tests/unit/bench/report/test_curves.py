"""From starts and finishes to curves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.bench.report.curves import MOST_BINS, bin_width, timeline

spans = st.floats(min_value=1e-3, max_value=1e5)


def test_one_task_is_seen_where_it_ran() -> None:
    curves = timeline([100.0], [250.0])
    assert curves.bin_seconds == 1.0
    assert len(curves.running) == 250
    assert sum(curves.running) == 150
    assert curves.running[99:101] == [0.0, 1.0]
    assert curves.dispatched.index(1) == 100
    assert curves.finished.index(1) == 249


def test_a_task_that_fills_half_a_bin_counts_half() -> None:
    curves = timeline([10.5, 299.0], [11.0, 300.0])
    assert curves.running[10] == 0.5


def test_a_clock_that_is_behind_spoils_no_curve() -> None:
    """Starts are by the clocks of workers, and these may be on other machines."""
    assert timeline([-60.0], [-59.0]) == timeline([0.0], [0.0])
    curves = timeline([-5.0, 10.0], [-4.0, 300.0])
    assert (curves.dispatched[0], curves.finished[0]) == (1, 1)
    assert (sum(curves.dispatched), sum(curves.finished)) == (2, 2)


def test_the_order_of_finishes_does_not_matter() -> None:
    assert timeline([0.0, 1.0], [9.0, 5.0]) == timeline([1.0, 0.0], [5.0, 9.0])


def test_rates_are_per_second_not_per_bin() -> None:
    curves = timeline([0.0, 0.001, 0.002], [30.0, 30.0, 30.0])
    assert curves.bin_seconds == 0.1
    assert curves.per_second(curves.dispatched)[0] == pytest.approx(30.0)


def test_a_mean_over_one_wave_levels_the_waves() -> None:
    starts = [10.0 * wave for wave in range(30) for _ in range(20)]
    curves = timeline(starts, [start + 10.0 for start in starts])
    assert curves.bin_seconds == 1.0
    assert max(curves.per_second(curves.dispatched)) == 20
    assert set(curves.per_second(curves.dispatched, 10.0)) == {2.0}
    assert curves.per_second(curves.finished, 10.0)[9:12] == [0.0, 2.0, 2.0]


def test_a_run_without_tasks_is_one_empty_bin() -> None:
    curves = timeline([], [])
    assert (curves.running, curves.dispatched, curves.finished) == ([0.0], [0], [0])


@pytest.mark.parametrize(
    ("span", "width"), [(20, 0.1), (60, 0.2), (300, 1.0), (301, 2.0), (555, 2.0), (0, 1.0)]
)
def test_bins_have_round_widths(span: float, width: float) -> None:
    assert bin_width(span) == pytest.approx(width)


@given(spans)
def test_bins_are_few_but_not_too_few(span: float) -> None:
    assert MOST_BINS / 2.6 <= span / bin_width(span) <= MOST_BINS * (1 + 1e-6)


@given(st.lists(st.tuples(spans, spans), min_size=1, max_size=50))
def test_no_task_and_no_task_time_is_lost(tasks: list[tuple[float, float]]) -> None:
    starts = [start for start, _ in tasks]
    finishes = [start + seconds for start, seconds in tasks]
    curves = timeline(starts, finishes)
    assert sum(curves.dispatched) == sum(curves.finished) == len(tasks)
    ran = sum(seconds for _, seconds in tasks)
    rounding = 0.05 * curves.bin_seconds * len(curves.running)
    assert sum(curves.running) * curves.bin_seconds == pytest.approx(ran, abs=rounding + 1e-6)
