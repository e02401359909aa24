"""Efficiency against task length: the knee, the half, and how many tasks a cell gets."""

from __future__ import annotations

import math

import pytest
from benchkit import a_cell, a_run, a_sweep

from kestrelctl.bench.bounds import parse_sleep
from kestrelctl.bench.collected_runs import CollectedRuns
from kestrelctl.bench.knee import Curve, curves, knee_seconds, length
from kestrelctl.bench.run import BenchPlan
from kestrelctl.bench.sweep import sweep, tasks_of_cell
from kestrelctl.errors import UsageError


def test_the_knee_is_the_time_in_which_dispatch_serves_every_worker_once() -> None:
    assert knee_seconds(917, 1834.0) == 0.5


def test_each_number_of_workers_has_a_curve_and_a_rate_of_its_own() -> None:
    few, many = curves(reversed(a_sweep().runs))
    assert (few.workers, many.workers) == (10, 100)
    assert few.points == ((0.01, 0.25), (0.1, 0.75), (1.0, 0.99))
    assert few.dispatch_per_second == 1000.0
    assert (few.knee_seconds, many.knee_seconds) == (0.01, 0.1)


def test_random_lengths_and_no_length_are_no_points_of_a_curve() -> None:
    assert curves([a_run("0"), a_run("0-10", makespan_seconds=900.0)]) == []


def test_without_a_run_of_no_length_there_is_no_knee() -> None:
    (curve,) = curves([a_cell("1", 10, 0.9)])
    assert curve.knee_seconds is None
    assert curve.knee.knee_seconds is None


def test_the_half_is_read_between_two_measured_lengths() -> None:
    curve = Curve(10, ((0.01, 0.25), (0.1, 0.75)), None)
    assert curve.half_seconds == pytest.approx(math.sqrt(0.01 * 0.1))


def test_a_half_that_was_measured_is_taken_as_it_is() -> None:
    assert Curve(10, ((0.01, 0.2), (0.1, 0.5)), None).half_seconds == pytest.approx(0.1)


def test_a_half_beyond_the_curve_is_not_made_up() -> None:
    high, low = Curve(10, ((0.1, 0.6), (1.0, 0.9)), None), Curve(10, ((0.1, 0.1),), None)
    assert (high.half_seconds, low.half_seconds) == (None, None)
    assert (high.text_of(0.5), low.text_of(0.5)) == ("< 0.1 s", "> 0.1 s")


def test_the_share_at_a_length_is_read_between_two_measured_ones() -> None:
    curve = Curve(10, ((0.01, 0.2), (0.1, 0.6), (1.0, 0.9)), None)
    assert curve.share_at(math.sqrt(0.01 * 0.1)) == pytest.approx(0.4)
    assert curve.share_at(0.1) == pytest.approx(0.6)
    assert (curve.share_at(0.001), curve.share_at(2.0)) == (None, None)


def test_the_document_names_knee_and_half() -> None:
    sweep = a_sweep().sweep
    assert sweep is not None
    few = sweep.knees[0]
    assert (few.workers, few.dispatch_per_second, few.knee_seconds) == (10, 1000.0, 0.01)
    assert few.half_seconds == pytest.approx(math.sqrt(0.01 * 0.1))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0046, "4.6 ms"), (0.1, "0.1 s"), (0.481, "0.48 s"), (10, "10 s"), (120, "120 s")],
)
def test_lengths_are_short_to_read_and_have_no_exponent(seconds: float, text: str) -> None:
    assert length(seconds) == text


@pytest.mark.parametrize(
    ("sleep", "workers", "tasks"),
    [
        ("0", 100, 40_000),  # dispatch alone: 20 s of 2,000 a second
        ("0.01", 100, 40_000),  # workers could do 10,000 a second, dispatch cannot
        ("1", 100, 2_000),  # 100 a second
        ("0-10", 100, 400),  # by the mean
        ("3", 100, 600),  # six whole waves of 3 s
        ("60", 100, 100),  # one wave, though longer than the cell
    ],
)
def test_a_cell_gets_what_its_time_allows(sleep: str, workers: int, tasks: int) -> None:
    assert tasks_of_cell(parse_sleep(sleep), workers, 20.0, 2000.0, 50_000) == tasks


@pytest.mark.parametrize("most", [1, 99, 100, 101, 5_050])
@pytest.mark.parametrize("sleep", ["0", "0.1", "100"])
def test_a_cell_never_has_more_tasks_than_allowed(sleep: str, most: int) -> None:
    tasks = tasks_of_cell(parse_sleep(sleep), 100, 20.0, 2000.0, most)
    assert 1 <= tasks <= most
    assert most < 100 or tasks % 100 == 0


@pytest.mark.parametrize("workers", [10, 917])
@pytest.mark.parametrize("sleep", ["0", "0.003", "0.2", "1", "7"])
def test_with_nothing_in_the_way_a_cell_takes_no_longer_than_its_time(
    sleep: str, workers: int
) -> None:
    rate = 1900.0
    tasks = tasks_of_cell(parse_sleep(sleep), workers, 20.0, rate, 10**6)
    seconds = max(tasks / rate, tasks * parse_sleep(sleep).mean / workers)
    assert 10 < seconds <= 20 + 1e-9


@pytest.mark.parametrize(
    ("plan", "workers", "cell_seconds"),
    [
        (BenchPlan(), (10,), 0.0),
        (BenchPlan(), (), 20.0),
        (BenchPlan(), (10, 0), 20.0),
        (BenchPlan(sleeps=("x",)), (10,), 20.0),
        (BenchPlan(sleeps=("1",), executor="inline"), (10,), 20.0),
        (BenchPlan(sleeps=("1:20",)), (10,), 20.0),
    ],
)
async def test_a_sweep_that_makes_no_sense_is_refused(
    plan: BenchPlan, workers: tuple[int, ...], cell_seconds: float
) -> None:
    with pytest.raises(UsageError):
        await sweep(plan, CollectedRuns(), workers, cell_seconds)
