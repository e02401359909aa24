"""Queue times, their spread over seeds, what flocking is worth, and how soon idle machines work."""

from __future__ import annotations

import pytest
from flockbenchkit import a_flock_result, a_pool, a_run, a_task, on, waits

from kestrel_experiments.flock.ideal import ideal_waits
from kestrel_experiments.flock.record import lender_of
from kestrel_experiments.flock.result import summary
from kestrel_experiments.flock.source import OVERALL, POOLS, traces
from kestrel_experiments.flock.statistics import (
    lent,
    spread,
    starts_elsewhere,
    together,
    waits_of,
)
from kestrel_experiments.flock.table import ideal_spreads
from kestrel_experiments.flock_simulation.trace import Arrival

LOAN = "flock@a.kestrel.localhost/0123456789ab"


def test_the_spread_of_seeds_is_interpolated() -> None:
    found = spread([3.0, 1.0, 2.0, 5.0, 4.0])
    assert found is not None
    assert (found.median, found.low, found.high) == (3.0, pytest.approx(1.2), pytest.approx(4.8))
    assert spread([]) is None


def test_queue_times_are_from_submission_to_start_in_units_of_the_trace() -> None:
    tasks = (a_task("D-1", started_at=100.1), a_task("D-2", started_at=100.5, worker=LOAN))
    found = waits_of(a_pool("D", *tasks), unit_seconds=0.05, began_at=99.0)
    assert found.waits == [2.0, 10.0]
    assert (found.mean, found.least, found.most, found.elsewhere) == (6.0, 2.0, 10.0, 1)
    assert found.makespan == pytest.approx(40.0)


def test_all_pools_together_count_each_task_alike() -> None:
    found = together([waits("A", 1.0), waits("D", 4.0, 4.0, 7.0, elsewhere=2)])
    assert (found.pool, found.tasks, found.mean, found.most) == (OVERALL, 4, 4.0, 7.0)
    assert found.elsewhere == 2


def test_a_loan_names_its_lender_and_a_machine_names_nobody() -> None:
    assert lender_of(LOAN) == "a.kestrel.localhost"
    assert lender_of("w1@workers.a.kestrel.localhost/host") is None
    assert lender_of("flock") is None


def test_who_ran_whose_tasks_is_told_by_letters() -> None:
    pools = {"A": a_pool("A", a_task("A-1")), "D": a_pool("D", a_task("D-1", worker=LOAN))}
    assert lent(pools) == {"D": {"A": 1}}


def test_an_idle_machine_is_timed_from_the_end_of_what_it_ran_before() -> None:
    home = a_pool("D", a_task("D-1", submitted_at=100.0), a_task("D-2", submitted_at=100.0))
    lender = a_pool(
        "A",
        ran_here=[
            on("w1", 101.0, 102.0, "A-1"),
            on("w1", 102.03, 103.0, "D-1", "D"),
            on("w1", 103.02, 104.0, "D-2", "D"),
        ],
    )
    found = starts_elsewhere({"D": home, "A": lender})
    assert found.after_idle == pytest.approx([30.0, 20.0])
    assert found.after_submission == []


def test_a_task_that_came_when_the_machine_was_idle_is_timed_from_its_submission() -> None:
    home = a_pool("D", a_task("D-1", submitted_at=105.0))
    lender = a_pool(
        "A", ran_here=[on("w1", 101.0, 102.0, "A-1"), on("w1", 105.01, 106.0, "D-1", "D")]
    )
    found = starts_elsewhere({"D": home, "A": lender})
    assert (found.after_idle, found.after_submission) == ([], pytest.approx([10.0]))


def test_machines_are_told_apart_and_own_tasks_are_not_timed() -> None:
    home = a_pool("D", a_task("D-1", submitted_at=100.0))
    lender = a_pool(
        "A",
        ran_here=[
            on("w1", 101.0, 102.0, "A-1"),
            on("w2", 101.5, 101.9, "A-2"),
            on("w1", 102.001, 104.0, "D-1", "D"),
            on("w2", 103.5, 104.0, "A-3"),
        ],
    )
    assert starts_elsewhere({"D": home, "A": lender}).after_idle == pytest.approx([1.0])


def test_a_machine_that_ran_nothing_before_is_left_out() -> None:
    home = a_pool("D", a_task("D-1"))
    lender = a_pool("A", ran_here=[on("w1", 105.0, 106.0, "D-1", "D")])
    found = starts_elsewhere({"D": home, "A": lender})
    assert (found.after_idle, found.after_submission) == ([], [])


def test_gains_are_ratios_of_the_same_seed() -> None:
    """D waits a tenth in both; the ratio of medians over seeds would say something else."""
    _, flocked = summary(a_flock_result().runs)
    assert flocked.gain is not None
    assert flocked.gain.loaded_most is not None
    assert flocked.gain.loaded_most.median == pytest.approx(10.0)
    assert flocked.gain.unloaded_growth is not None
    assert flocked.gain.unloaded_growth.median == pytest.approx(1.5)
    assert flocked.gain.overall_mean is not None
    assert flocked.gain.overall_mean.high < 10.0


def test_growth_is_that_of_the_unloaded_pool_that_pays_most() -> None:
    alone = a_run("without", 1, waits("A", 1.0), waits("B", 1.0), waits("C", 1.0))
    flocked = a_run("with", 1, waits("A", 2.0), waits("B", 4.0), waits("C", 9.0))
    _, setting = summary([alone, flocked])
    assert setting.gain is not None
    assert setting.gain.unloaded_growth is not None
    assert setting.gain.unloaded_growth.median == 3.0


def test_settings_are_told_apart_by_mode_and_delay() -> None:
    runs = [a_run("static"), a_run("with", delay_ms=60.0), a_run("without"), a_run("with")]
    found = [(setting.mode, setting.delay_ms) for setting in summary(runs)]
    assert found == [("without", 0.0), ("with", 0.0), ("with", 60.0), ("static", 0.0)]


def test_a_setting_without_its_twin_has_no_gain() -> None:
    (setting,) = summary([a_run("with")])
    assert setting.gain is None
    assert setting.after_idle_ms == (40.0, 90.0)


def test_the_first_that_comes_is_served_by_the_first_machine_that_is_free() -> None:
    tasks = [Arrival(1.0, 5.0), Arrival(2.0, 2.0), Arrival(3.0, 1.0), Arrival(10.0, 1.0)]
    assert ideal_waits(tasks, 1) == [0.0, 4.0, 5.0, 0.0]
    assert ideal_waits(tasks, 2) == [0.0, 0.0, 1.0, 0.0]


def test_pools_alone_at_best_wait_as_is_known_of_the_sources_traces() -> None:
    """Means and ranges of a thousand draws, computed apart from this: A 0.78, D 297, all 128.5."""
    found = ideal_spreads(range(1, 61))
    assert 0.4 < found["A"][0].median < 1.2
    assert 280 < found["D"][0].median < 315
    assert 540 < found["D"][1].median < 620
    assert 120 < found[OVERALL][0].median < 138
    assert found["C"][0].low < 10 < found["C"][0].high


def test_each_seed_has_1200_tasks_of_its_own() -> None:
    first = traces(1)
    assert {name: len(tasks) for name, tasks in first.items()} == {
        "A": 200, "B": 200, "C": 300, "D": 500,
    }  # fmt: skip
    assert first == traces(1)
    assert first != traces(2)
    assert [pool.name for pool in POOLS if pool.is_unloaded] == ["A", "B"]
    assert [pool.name for pool in POOLS if pool.is_loaded] == ["D"]
