"""How many workers suit a run, and how long a bench is said to take."""

from __future__ import annotations

import pytest

from kestrelctl.bench.bounds import parse_sleep
from kestrelctl.bench.estimate import Speed, expect, makespan_seconds, pool_seconds
from kestrelctl.bench.pool_size import MOST_TASKS, PoolSize, suited, written
from kestrelctl.core.model.config import Config


def speed(tasks_per_second: float, latency_seconds: float = 0.0) -> Speed:
    return Speed(tasks_per_second, latency_seconds, pool_seconds=4.0, bare_seconds=1.5, cores=2)


# -- how many workers ------------------------------------------------------------------------------


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
def test_tasks_of_no_length_get_a_worker_for_each_core_and_some_tasks_for_each(cores: int) -> None:
    size = suited(parse_sleep("0"), 1e6, cores)
    assert (size.workers, size.slots) == (cores, 8 * cores)


@pytest.mark.parametrize("rate", [300.0, 982.0, 1650.0])
def test_tasks_that_sleep_keep_a_machine_starting_six_tenths_of_what_it_can(rate: float) -> None:
    size = suited(parse_sleep("1"), rate, 2)
    assert size.workers == 2
    assert 0.6 * rate <= size.slots <= 0.6 * rate + 2


def test_a_faster_machine_and_longer_tasks_get_more_at_a_time() -> None:
    slow, fast = suited(parse_sleep("1"), 500.0, 2), suited(parse_sleep("1"), 1600.0, 2)
    assert slow.slots < fast.slots
    assert suited(parse_sleep("0-1"), 1600.0, 2).slots == fast.slots / 2, "their mean counts"


@pytest.mark.parametrize("cores", [4, 7, 16])
def test_however_long_tasks_sleep_there_is_a_most_at_a_time(cores: int) -> None:
    size = suited(parse_sleep("3600"), 2000.0, cores)
    assert MOST_TASKS - cores < size.slots <= MOST_TASKS


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_no_worker_is_planned_to_run_more_than_a_pool_counts_of_it(cores: int) -> None:
    assert suited(parse_sleep("3600"), 2000.0, cores).tasks_each == Config().max_account_cpus


def test_very_many_cores_get_their_tasks_all_the_same() -> None:
    assert suited(parse_sleep("10"), 2000.0, 512).tasks_each == 8


@pytest.mark.parametrize(
    ("workers", "slots", "words"),
    [(917, 917, "917"), (2, 16, "2x8"), (1, 4, "1x4"), (3, 20, "3 (20)"), (1200, 1200, "1,200")],
)
def test_a_size_is_written_as_workers_and_tasks_of_each(
    workers: int, slots: int, words: str
) -> None:
    assert written(workers, slots) == words


# -- how long --------------------------------------------------------------------------------------

QUIET = speed(1900.0, 0.03)
"""The machine of docs/performance.md, alone."""
BUSY = speed(906.0, 0.11)
"""The same one, while six times as many processes as it has cores were at work."""


@pytest.mark.parametrize(
    ("sleep", "size", "machine", "measured_seconds"),
    [
        ("0", PoolSize(917), QUIET, 30.4),
        ("1", PoolSize(917), QUIET, 58.3),
        ("10", PoolSize(917), QUIET, 552.2),
        ("0-10", PoolSize(917), QUIET, 280.2),
        ("0", PoolSize(2, 8), BUSY, 54.9),
        ("1", PoolSize(2, 272), BUSY, 106.2),
    ],
)
def test_a_makespan_is_known_to_a_quarter(
    sleep: str, size: PoolSize, machine: Speed, measured_seconds: float
) -> None:
    estimate = makespan_seconds(parse_sleep(sleep), size, 50_000, machine)
    assert estimate == pytest.approx(measured_seconds, rel=0.25)


def test_equal_tasks_come_in_whole_waves() -> None:
    one, two = (makespan_seconds(parse_sleep("100"), PoolSize(10), n, speed(1e6)) for n in (10, 11))
    assert (round(one), round(two)) == (100, 200)


def test_a_random_length_has_a_tail() -> None:
    assert makespan_seconds(parse_sleep("0-9"), PoolSize(10), 1000, speed(1e6)) == pytest.approx(
        1000 * 4.5 / 10 + 6
    )


def test_what_lies_between_two_tasks_counts_for_each_of_them() -> None:
    size, sleep = PoolSize(10), parse_sleep("10")
    at_once = makespan_seconds(sleep, size, 100, speed(1e6))
    assert makespan_seconds(sleep, size, 100, speed(1e6, 0.5)) == pytest.approx(at_once + 10.0)


def test_many_sessions_cost_time_for_each_task_and_to_start() -> None:
    few, many = (
        makespan_seconds(parse_sleep("0"), PoolSize(n), 50_000, speed(1000)) for n in (2, 917)
    )
    assert few == pytest.approx(50.0)
    assert many > 1.2 * few
    assert pool_seconds(PoolSize(2), speed(1000)) == 4.0
    assert pool_seconds(PoolSize(917), speed(1000)) > 7.0


def test_what_is_expected_of_a_bench_counts_pools_and_measurements_in() -> None:
    zero, one = parse_sleep("0"), parse_sleep("1")
    shared = expect([(zero, PoolSize(9)), (one, PoolSize(9))], 1000, speed(1000))
    apart = expect([(zero, PoolSize(9)), (one, PoolSize(8))], 1000, speed(1000))
    runs = sum(run.seconds for run in shared.runs)
    assert shared.seconds > runs + 2 * 1.5 + 4.0
    assert apart.seconds - sum(run.seconds for run in apart.runs) > shared.seconds - runs + 3.9
