"""Results that were left by earlier benches: read, refused, and put beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchkit import MACHINE, a_cell, a_result, a_run, a_sweep

from kestrelctl.bench.compare import Change, compare
from kestrelctl.bench.result import BenchResult, LatencyMs, to_json
from kestrelctl.bench.saved import labels, read_result
from kestrelctl.errors import UsageError


def change(name: str, before: dict[str, Any], after: dict[str, Any]) -> Change:
    """How one measure of `sleep 1` differs between two results."""
    results = [a_result(a_run("1", **each)) for each in (before, after)]
    (pairing,) = compare(results, ["a", "b"]).runs
    return pairing.changes[name]


def test_ratios_are_the_second_over_the_first() -> None:
    before, after = {"makespan_seconds": 100.0}, {"makespan_seconds": 80.0}
    assert change("makespan_seconds", before, after) == Change(100.0, 80.0, 0.8, "better")
    assert change("tasks_per_second", before, after).ratio == pytest.approx(1.25)
    assert change("utilisation", before, after).ratio == pytest.approx(1.25)


def test_what_is_better_depends_on_the_measure() -> None:
    before, after = {"makespan_seconds": 80.0}, {"makespan_seconds": 100.0}
    for name in ("makespan_seconds", "tasks_per_second", "utilisation"):
        assert change(name, before, after).verdict == "worse"
    slow = {"latency_ms": LatencyMs(2.0, 5.0), "worker_cpu_seconds": 9.0}
    assert change("latency_p50_ms", {}, slow).verdict == "worse"
    assert change("latency_p99_ms", {}, slow).verdict == "better"
    assert change("cpu_seconds_per_1000_tasks", {}, slow) == Change(12.0, 24.0, 2.0, "worse")


def test_rates_of_long_tasks_are_compared_as_they_were() -> None:
    """Less than one task a second is a rate like any other."""
    before, after = {"tasks": 5, "makespan_seconds": 29.0}, {"tasks": 5, "makespan_seconds": 36.0}
    found = change("tasks_per_second", before, after)
    assert found.ratio == pytest.approx(29 / 36, rel=0.01)
    few = {"tasks": 5, "makespan_seconds": 600.0}
    assert change("tasks_per_second", few, few).verdict == "same"


def test_noise_is_neither_better_nor_worse() -> None:
    results = [a_result(a_run(makespan_seconds=seconds)) for seconds in (100.0, 104.0)]
    for threshold, verdict in ((0.1, "same"), (0.02, "worse")):
        (pairing,) = compare(results, ["a", "b"], threshold).runs
        assert pairing.changes["makespan_seconds"].verdict == verdict


def test_makespans_of_different_numbers_of_tasks_are_not_compared() -> None:
    found = change("makespan_seconds", {}, {"tasks": 1000})
    assert (found.ratio, found.verdict) == (None, "unknown")
    assert change("utilisation", {}, {"tasks": 1000}).ratio == 1.0


def test_what_was_not_measured_has_no_ratio() -> None:
    given_pool = {f"{part}_cpu_seconds": 0.0 for part in ("server", "manager", "worker")}
    assert change("cpu_seconds_per_1000_tasks", {}, given_pool).verdict == "unknown"


def test_only_runs_that_both_have_are_compared() -> None:
    first = a_result(a_run("0"), a_run("1"), a_cell("1", 20, 0.5))
    second = a_result(a_cell("1", 20, 0.5), a_run("5"), a_run("0"), a_run("0", executor="inline"))
    pairs = [(run.sleep, run.workers) for run in compare([first, second], ["a", "b"]).runs]
    assert pairs == [("0", 10), ("1", 20)]


def test_cells_of_sweeps_match_by_length_and_workers() -> None:
    found = compare([a_sweep(), a_sweep(), a_sweep()], ["a", "b", "c"])
    assert [run.result for run in found.runs] == ["b"] * 8 + ["c"] * 8
    assert {change.verdict for run in found.runs for change in run.changes.values()} == {
        "same",
        "unknown",  # the utilisation of tasks of no length
    }


def test_a_run_that_was_repeated_hides_none_of_the_others() -> None:
    first = a_result(a_run("1"), a_run("1", makespan_seconds=200.0))
    second = a_result(a_run("1", makespan_seconds=200.0), a_run("1"))
    ratios = [
        run.changes["makespan_seconds"].ratio for run in compare([first, second], ["a", "b"]).runs
    ]
    assert ratios == [2.0, 0.5]


def test_numbers_of_workers_that_were_chosen_match_each_other() -> None:
    before, after = (a_run("1", workers=n, sessions=2, chosen=True) for n in (590, 544))
    (pairing,) = compare([a_result(before), a_result(after)], ["a", "b"]).runs
    assert pairing.workers == 590
    given = a_result(a_run("1", workers=590))
    with pytest.raises(UsageError) as caught:
        compare([given, a_result(after)], ["a", "b"])
    assert caught.value.cause == (
        "a: sleep 1 (process) on 590; b: sleep 1 (process) on as many as suit"
    )


def test_slower_means_fewer_tasks_a_second() -> None:
    results = [a_result(a_run(makespan_seconds=seconds)) for seconds in (100.0, 125.0)]
    found = compare(results, ["a", "b"])
    assert len(found.slower(0.1)) == 1
    assert found.slower(0.25) == []
    assert compare(results[::-1], ["b", "a"]).slower(0.0) == []


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        compare([a_result(a_run("0")), a_result(a_run("1"))], ["old", "new"])
    assert caught.value.message == "new has no run in common with old"
    assert caught.value.cause == "old: sleep 0 (process) on 10; new: sleep 1 (process) on 10"


def test_one_result_is_too_few() -> None:
    with pytest.raises(UsageError):
        compare([a_result(a_run())], ["a"])


def test_different_machines_are_pointed_out() -> None:
    other = msgspec.structs.replace(MACHINE, cores=8, kestrel="0.2.0", date="later")
    (warning,) = compare([a_result(a_run()), a_result(a_run(), machine=other)], ["a", "b"]).warnings
    assert warning == "a and b ran on different machines: cores 2 and 8"


def test_a_machine_that_was_busy_is_pointed_out() -> None:
    slow = a_result(a_run(), spawn_limit_per_second=1000.0)
    (warning,) = compare([a_result(a_run()), slow], ["a", "b"]).warnings
    assert "1,000 bare processes a second, that of a 2,000 (0.50 times)" in warning


def test_lost_tasks_are_pointed_out() -> None:
    found = compare([a_result(a_run()), a_result(a_run(lost=7))], ["a", "b"])
    assert found.warnings == ["b has 7 lost and 0 duplicate tasks in sleep 1"]


# -- what is read ----------------------------------------------------------------------------------


def test_a_result_is_read_from_a_file_or_from_the_directory_of_a_report(tmp_path: Path) -> None:
    result = a_sweep()
    (tmp_path / "result.json").write_bytes(to_json(result, curves=True))
    assert read_result(tmp_path) == result
    assert read_result(tmp_path / "result.json") == result


def test_what_bench_prints_is_a_result(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(to_json(a_result(a_run("0"))))
    assert read_result(tmp_path / "a.json").runs[0].timeline is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not the result of a bench"),
        ("[1]", "is not the result of a bench"),
        ('{"jobs": []}', "is not the result of a bench"),
        ('{"schema": 2}', "has schema 2; this version reads schema 1"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UsageError) as caught:
        read_result(tmp_path / "a.json")
    assert message in caught.value.message
    assert caught.value.hint


def test_a_result_without_runs_and_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(to_json(BenchResult(MACHINE, 1.0, [])))
    with pytest.raises(UsageError, match="holds no runs"):
        read_result(tmp_path / "a.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_result(tmp_path / "b.json")


def test_results_are_called_after_their_files() -> None:
    paths = [Path("x/old.json"), Path("new"), Path("run-1/result.json")]
    assert labels(paths) == ["old", "new", "run-1"]
    assert labels([Path("a/x.json"), Path("b/x.json")]) == ["a/x.json", "b/x.json"]


def test_no_two_results_have_the_same_name() -> None:
    assert labels([Path("x.json"), Path("y.json"), Path("x.json")]) == [
        "x.json", "y", "x.json (2)",
    ]  # fmt: skip
