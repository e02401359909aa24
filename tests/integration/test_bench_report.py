"""The report of a bench, as files; what its page says has unit tests."""

from __future__ import annotations

import re
import struct
import sys
from html import unescape
from pathlib import Path

import msgspec
import pytest
from simulated_bench import SPAWN_LIMIT, simulated_bench, simulated_grid, simulated_run

from kestrelctl.bench import knee as efficiency
from kestrelctl.bench.machine import this_machine
from kestrelctl.bench.report import figures, plot
from kestrelctl.bench.report.directory import write_data, write_page, write_report
from kestrelctl.bench.report.page import Named, page
from kestrelctl.bench.report.plot import Plot
from kestrelctl.bench.result import BenchResult, BenchRun
from kestrelctl.errors import MissingTool

BEGINNINGS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


def test_a_report_has_a_page_the_data_and_the_curves_of_every_run(tmp_path: Path) -> None:
    result = simulated_bench(400, 20)
    result = msgspec.structs.replace(result, runs=[result.runs[0], result.runs[2]])

    written = write_report(tmp_path / "new" / "report", result)

    assert [path.name for path in written[:8]] == [
        "report.html",
        "result.json",
        "1-sleep-0-completed.png",
        "1-sleep-0-completed.svg",
        "1-sleep-0-completed.pdf",
        "1-sleep-0-running.png",
        "1-sleep-0-running.svg",
        "1-sleep-0-running.pdf",
    ]
    assert len(written) == 2 + 2 * 4 * 3
    assert written[-1].name == "2-sleep-0-10-finished.pdf"
    assert msgspec.json.decode(written[1].read_bytes(), type=BenchResult) == result
    for path in written[2:]:
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix]), path.name
    assert "kestrelctl bench --jobs 400 --workers 20" in written[0].read_text()


def test_the_report_of_a_sweep_has_its_efficiency_for_a_slide(tmp_path: Path) -> None:
    names = [path.name for path in write_report(tmp_path, simulated_grid())]
    images = [f"efficiency{ending}" for ending in BEGINNINGS]
    assert names == ["report.html", "result.json", *images]
    for image in images:
        found = (tmp_path / image).read_bytes()
        assert found.startswith(BEGINNINGS[Path(image).suffix])


def test_a_sweep_on_many_numbers_of_workers_has_an_image_for_every_six(tmp_path: Path) -> None:
    grid = simulated_grid()
    runs = [
        msgspec.structs.replace(run, workers=run.workers + more)
        for more in (0, 1)
        for run in grid.runs
    ]
    written = write_report(tmp_path, msgspec.structs.replace(grid, runs=runs))
    names = [path.name for path in written if path.suffix == ".svg"]
    assert names == ["efficiency.svg", "efficiency-2.svg"]
    words = [text_of((tmp_path / name).read_bytes()) for name in names]
    drawn = [[re.fullmatch(r"[\d,]+ workers", each) for each in found] for found in words]
    assert [sum(map(bool, found)) for found in drawn] == [6, 2]


def text_of(svg: bytes) -> list[str]:
    """What is written in a drawing: matplotlib leaves each text as a comment above its shapes."""
    return [unescape(each) for each in re.findall(r"<!-- (.*?) -->", svg.decode())]


def slide(shown: Plot, result: BenchResult) -> list[str]:
    """What is written on the slide of a plot."""
    return text_of(shown.images("A title", result.machine)["svg"])


def of_run(run: BenchRun) -> tuple[BenchResult, list[figures.PlottedRun]]:
    result = BenchResult(this_machine("0.12.3"), SPAWN_LIMIT, [run])
    return result, [figures.PlottedRun("now", 0, run, result.limit(run))]


def test_images_are_for_slides_and_say_where_and_when_they_were_measured() -> None:
    machine = msgspec.structs.replace(this_machine("0.12.3"), cpu_model="A & B", cores=2)
    _, series = of_run(simulated_run("0.5", 40, 5))
    images = figures.running(series).images("A title", machine)
    width, height = struct.unpack(">II", images["png"][16:24])
    assert width * 9 == height * 16
    words = text_of(images["svg"])
    assert f"Kestrel {machine.kestrel}, {machine.date[:10]}, 2 cores (A & B)" in words
    assert "A title" in words
    assert "seconds since submission" in words
    assert "0.0" not in words
    again = figures.running(series).images("A title", machine)
    assert again == images, "the same data, the same files"


def test_every_line_of_an_image_is_in_its_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "_FORMATS", {"svg": {"Date": None}})
    run = simulated_run("10", 40, 5)
    assert run.timeline is not None
    result, series = of_run(run)
    bin_seconds, window = run.timeline.bin_seconds, run.window_seconds
    assert {
        f"finished, each {bin_seconds:.3g} s", f"finished, mean of {window:.3g} s",
        "2009, mean: 92/s",
    } <= {*slide(figures.finished(series), result)}  # fmt: skip
    assert f"dispatched, mean of {window:.3g} s" in slide(figures.dispatched(series), result)
    assert {"started", "completed", "2009, mean: 92/s"} <= {
        *slide(figures.completed(series), result)
    }
    curves = efficiency.curves(simulated_grid().runs)
    words = slide(figures.efficiency(curves), result)
    assert "50% of the time" in words
    for curve in curves:
        assert curve.knee_seconds
        knee = efficiency.length(curve.knee_seconds)
        assert {f"{curve.workers:,} workers", f"{curve.workers:,} workers: knee {knee}"} <= {*words}


def test_an_image_and_the_page_have_the_same_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plot, "_FORMATS", {"svg": {"Date": None}})
    result, series = of_run(simulated_run("10", 40, 5))
    shown = page([Named("now", result)]).split("<svg")
    assert figures.OVER_TIME
    for draw, drawn in zip(figures.OVER_TIME, shown[1:5], strict=True):
        image = draw(series).images("A title", result.machine)["svg"].decode()
        in_page = drawn.partition("</svg>")[0]
        for number, colour in enumerate(plot.SERIES_COLOURS):
            assert (colour in image) == (f"var(--s{number})" in in_page), draw.__name__
        assert (plot.THEN in image, "var(--then)" in in_page) == (True, True), draw.__name__


def test_what_the_page_draws_of_efficiency_is_an_image_too(tmp_path: Path) -> None:
    runs = [simulated_run(spec, 40, 5) for spec in ("0.1", "1", "10")]
    result = BenchResult(this_machine("0.12.3"), SPAWN_LIMIT, runs)
    names = [path.name for path in write_report(tmp_path, result)]
    assert "Efficiency against task length" in (tmp_path / "report.html").read_text()
    assert "efficiency.svg" in names


def test_lengths_at_an_image_are_all_in_seconds_without_exponents() -> None:
    short = efficiency.Curve(10, ((0.02, 0.5), (0.05, 0.8)), None)
    result, _ = of_run(simulated_run("1", 10, 5))
    words = slide(figures.efficiency([short]), result)
    place = words.index("length of a task, seconds")
    assert words[:place] == ["0.01", "0.1"]


def test_seconds_of_a_long_run_have_no_exponents() -> None:
    result, series = of_run(simulated_run("10000", 10, 5))
    words = slide(figures.completed(series), result)
    place = words.index("seconds since submission")
    assert words[:place] == ["0", "5,000", "10,000", "15,000", "20,000"]
    assert plot.written_out(2_500_000.0) == "2,500,000"
    assert plot.written_out(0.00002) == "0.00002"
    assert plot.written_out(0.0) == "0"


def test_a_result_without_curves_still_makes_a_page(tmp_path: Path) -> None:
    run = msgspec.structs.replace(simulated_run("0.5", 20, 5), timeline=None)
    result = BenchResult(this_machine("0.12.3"), SPAWN_LIMIT, [run])
    assert [path.name for path in write_report(tmp_path, result)] == ["report.html", "result.json"]


def test_without_matplotlib_nothing_is_drawn_and_its_data_are_drawn_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = simulated_bench(20, 5)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingTool) as caught:
            write_report(tmp_path / "report", result)
        assert caught.value.hint
        assert not (tmp_path / "report").exists()
        write_data(tmp_path / "report", result)
    write_page(tmp_path / "page.html", [tmp_path / "report"])
    assert (tmp_path / "page.html").read_text() == page([Named("now", result)])
