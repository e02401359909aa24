"""What a sweep found, as data, as JSON and as a table."""

from __future__ import annotations

import json

import msgspec
import pytest
from benchkit import a_result, a_run, a_sweep

from kestrelctl.bench.machine import this_machine
from kestrelctl.bench.reference import REFERENCE_2009
from kestrelctl.bench.report.table import columns, is_beside_2009, rows
from kestrelctl.bench.report.wording import closing
from kestrelctl.bench.result import BenchResult, BenchRun, to_json
from kestrelctl.errors import KestrelError


def cells(run: BenchRun) -> dict[str, str]:
    result = a_result(run)
    titles = columns(with_2009=is_beside_2009(result))
    return dict(zip(titles, rows(result)[0], strict=True))


def as_in_2009(sleep: str, makespan_seconds: float) -> BenchRun:
    """50,000 tasks on as many workers as in 2009."""
    workers = REFERENCE_2009[sleep].workers
    return a_run(sleep, tasks=50_000, workers=workers, makespan_seconds=makespan_seconds)


def test_a_run_is_put_beside_its_bound_and_2009() -> None:
    run = a_run("1")
    assert (run.bound_seconds, run.utilisation, run.tasks_per_second) == (50.0, 0.5, 5.0)
    assert run.reference_2009_seconds == 108
    assert run.dispatch_latency_ms.p50 == 1.0
    assert run.dispatch_latency_ms.p99 == 9.0


def test_a_sleep_time_that_2009_did_not_have_has_no_reference() -> None:
    run = a_run("0.5")
    assert run.reference_2009_seconds is None
    assert run.times_faster is None


def test_an_impossible_makespan_makes_no_result() -> None:
    with pytest.raises(KestrelError):
        a_run("1", makespan_seconds=49.9)


def test_lost_tasks_are_reported_though_they_shorten_the_run() -> None:
    run = a_run("1", makespan_seconds=40.0, lost=100)
    assert run.lost == 100
    assert run.tasks_per_second == 10.0


def test_sleep_0_is_limited_by_process_starts() -> None:
    limit = a_result().limit(a_run("0"))
    assert limit == ("spawn", 0.25)


def test_longer_tasks_are_limited_by_the_workers() -> None:
    assert a_result().limit(a_run("1")) == ("workers", 50.0)


def test_a_bare_rate_that_a_run_refutes_does_not_hide_how_busy_its_workers_were() -> None:
    slow = a_result(spawn_limit_per_second=4.0)
    assert slow.limit(a_run("1")) == ("workers", 50.0), "500 tasks in 100 s are five a second"
    assert slow.limit(a_run("1", makespan_seconds=150.0)) == ("spawn", 125.0)


def test_tasks_that_are_no_processes_have_no_spawn_limit() -> None:
    assert a_result().limit(a_run("0", executor="inline")) is None


def test_times_faster_compares_rates_so_that_smaller_runs_are_fair() -> None:
    run = a_run("0", makespan_seconds=0.5)
    assert run.times_faster == pytest.approx(1000 / (50_000 / 103))


def test_the_json_has_exactly_the_documented_fields() -> None:
    document = json.loads(to_json(a_result(a_run("0"))))
    assert list(document) == ["machine", "spawn_limit_per_second", "runs"]
    assert list(document["runs"][0]) == [
        "sleep",
        "executor",
        "jobs",
        "workers",
        "makespan_seconds",
        "tasks_per_second",
        "bound_seconds",
        "utilisation",
        "lost",
        "duplicates",
        "dispatch_latency_ms",
        "manager_rss_mb",
        "server_cpu_seconds",
        "manager_cpu_seconds",
        "worker_cpu_seconds",
        "reference_2009_seconds",
    ]
    assert document["runs"][0]["reference_2009_seconds"] == 103
    assert list(document["runs"][0]["dispatch_latency_ms"]) == ["p50", "p99"]


def test_the_json_of_a_report_holds_everything() -> None:
    result = a_result(a_run("0"), a_run("1"))
    assert msgspec.json.decode(to_json(result, curves=True), type=BenchResult) == result


def test_the_row_of_sleep_0_shows_the_share_of_the_spawn_limit() -> None:
    assert cells(a_run("0"))["of the limit"] == "50% starts"


@pytest.mark.parametrize("tasks", [500, 50_000])
def test_of_2009_a_table_shows_the_rate_whatever_the_number_of_tasks(tasks: int) -> None:
    run = a_run("0", tasks=tasks, workers=917, makespan_seconds=tasks / 1000)
    assert (cells(run)["2009"], cells(run)["faster"]) == ("485/s", "2.06x")


def test_runs_with_other_workers_are_not_put_beside_2009() -> None:
    assert "2009" not in cells(a_run("0", workers=10))
    assert "2009" not in cells(a_run("0", workers=917, sessions=2))
    assert "2009" in cells(a_run("0", workers=917))


def test_a_run_that_arithmetic_lets_be_no_faster_says_so() -> None:
    assert cells(as_in_2009("10", 552.2))["faster"] == "at the bound"
    assert cells(as_in_2009("10", 700.0))["faster"] == "0.78x", "it could have been faster"
    six_waves = a_run("10", tasks=5000, workers=914, makespan_seconds=62.1)
    assert cells(six_waves)["faster"] == "at the bound"
    assert cells(as_in_2009("0", 206.0))["faster"] == "0.50x", "arithmetic has no part in it"
    assert cells(as_in_2009("1", 58.3))["faster"] == "1.85x"


def test_workers_of_several_tasks_each_are_shown_with_both_numbers() -> None:
    assert cells(a_run("0", workers=16, sessions=2))["workers"] == "2x8"
    assert cells(a_run("0", workers=20, sessions=3))["workers"] == "3 (20)", "they differ"
    assert cells(a_run("0", workers=1200, sessions=1200))["workers"] == "1,200"


def test_a_run_beyond_a_measured_limit_only_says_that_it_is() -> None:
    assert cells(a_run("0", makespan_seconds=0.2))["of the limit"] == ">100% starts"


def test_few_tasks_a_second_are_not_rounded_to_none() -> None:
    run = a_run("5", makespan_seconds=1000.0)
    assert (run.tasks_per_second, cells(run)["tasks/s"]) == (0.5, "0.5")


def test_the_row_of_a_longer_sleep_shows_the_utilisation() -> None:
    assert cells(a_run("1"))["of the limit"] == "50% busy"


def test_the_row_of_a_sleep_without_reference_has_dashes() -> None:
    result = a_result(a_run("0.5"), as_in_2009("1", 58.3))
    row = dict(zip(columns(with_2009=True), rows(result)[0], strict=True))
    assert (row["2009"], row["faster"]) == ("-", "-")


def test_the_cells_of_a_sweep_are_not_put_beside_the_workers_of_2009() -> None:
    assert not is_beside_2009(msgspec.structs.replace(a_sweep(), runs=[a_run("0", workers=917)]))
    assert len(rows(a_sweep())[0]) == len(columns(with_2009=False))


def test_the_json_of_a_sweep_holds_its_knees() -> None:
    document = json.loads(to_json(a_sweep()))
    assert document["sweep"]["cell_seconds"] == 20.0
    assert [knee["knee_seconds"] for knee in document["sweep"]["knees"]] == [0.01, 0.1]


# -- the end in words ------------------------------------------------------------------------------


def test_a_bench_ends_with_what_limits_the_machine_and_how_far_from_it_it_was() -> None:
    assert closing(a_result(a_run("0"), a_run("1"))) == [
        "Starting processes limits this machine: it starts 2,000 a second when nothing else runs, "
        "so that 500 take 250 ms at least.",
        "The pool came to 50 % (sleep 0) of that rate, and the workers were busy for 50 % "
        "(sleep 1) of the time.",
    ]


def test_a_rate_that_was_measured_several_times_says_that_it_is_the_best() -> None:
    result = a_result(a_run("0"), spawn_rates_per_second=[1900.0, 2000.0, 900.0])
    assert (
        "2,000 a second when nothing else runs (the best of 3 measurements)" in closing(result)[0]
    )


def test_without_a_bare_rate_the_workers_are_the_limit() -> None:
    elsewhere = a_result(a_run("0"), a_run("1"), a_run("2"), spawn_limit_per_second=None)
    assert closing(elsewhere) == [
        "The number of workers is the limit: the tasks take at least 50 s with sleep 1 and 1m 40s "
        "with sleep 2.",
        "The workers were busy for 50 % (sleep 1) and 50 % (sleep 2) of the time.",
    ]


def test_a_share_above_the_limit_gets_no_number_in_words_either() -> None:
    assert (
        "came to more than 100 % (sleep 0)"
        in closing(a_result(a_run("0", makespan_seconds=0.1)))[1]
    )


def test_what_is_no_whole_bench_ends_without_conclusions() -> None:
    assert closing(a_sweep()) == []
    assert closing(a_result(a_run("0"), ended_early="SIGTERM after 1 of 2 runs")) == []
    assert closing(a_result(a_run("0"), spawn_limit_per_second=None)) == []


def test_this_machine_is_described() -> None:
    machine = this_machine("0.12.3")
    assert machine.cores >= 1
    assert machine.memory_mb > 100
    assert machine.prosody == "0.12.3"
