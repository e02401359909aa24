"""The report of a bench, as files; what its page says has unit tests."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from simulated_bench import SPAWN_LIMIT, simulated_bench, simulated_grid, simulated_run

from kestrelctl.bench.bench_result import BenchResult
from kestrelctl.bench.machine import this_machine
from kestrelctl.bench.report import write_report
from kestrelctl.errors import MissingTool


def test_a_report_has_a_page_the_data_and_both_curves_of_every_run(tmp_path: Path) -> None:
    result = simulated_bench(400, 20)

    written = write_report(tmp_path / "new" / "report", result)

    assert [path.name for path in written] == [
        "report.html",
        "result.json",
        "1-sleep-0-rate.png",
        "1-sleep-0-running.png",
        "2-sleep-1-rate.png",
        "2-sleep-1-running.png",
        "3-sleep-0-10-rate.png",
        "3-sleep-0-10-running.png",
        "4-sleep-10-rate.png",
        "4-sleep-10-running.png",
    ]
    assert msgspec.json.decode(written[1].read_bytes(), type=BenchResult) == result
    for path in written[2:]:
        assert path.read_bytes().startswith(b"\x89PNG")
    assert "kestrelctl bench --jobs 400 --workers 20" in written[0].read_text()


def test_the_report_of_a_sweep_has_its_efficiency_for_a_slide(tmp_path: Path) -> None:
    names = [path.name for path in write_report(tmp_path, simulated_grid())]
    assert names == ["report.html", "result.json", "efficiency.png"]
    assert (tmp_path / "efficiency.png").read_bytes().startswith(b"\x89PNG")


def test_a_result_without_curves_still_makes_a_page(tmp_path: Path) -> None:
    run = msgspec.structs.replace(simulated_run("0.5", 20, 5), timeline=None)
    result = BenchResult(this_machine("0.12.3"), SPAWN_LIMIT, [run])
    assert [path.name for path in write_report(tmp_path, result)] == ["report.html", "result.json"]


def test_without_matplotlib_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingTool) as caught:
        write_report(tmp_path / "report", simulated_bench(20, 5))
    assert caught.value.hint
    assert not (tmp_path / "report").exists()
