"""Writes benches to disk: a page that needs nothing else, the curves as images, and the data."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path

from kestrelctl.bench.report import figures, plot
from kestrelctl.bench.report.files import prepare_directory, write_files, writing
from kestrelctl.bench.report.page import Named, drawn_curves, page
from kestrelctl.bench.result import BenchResult, to_json
from kestrelctl.bench.saved import labels, read_result
from kestrelctl.errors import UsageError
from kestrelctl.local.pool_state import pools_directory

#: The name of a result that is shown beside no other result but that of 2009.
_ALONE = "now"
_DATA = "result.json"


def prepare_own_directory() -> Path:
    """Makes the place of reports that were not asked for, in Kestrel's state.

    Raises:
        UsageError: it cannot be made or written to.
    """
    place = pools_directory().parent / "bench"
    prepare_directory(place)
    return place


def new_directory(place: Path, date: datetime) -> Path:
    """Makes a new directory in `place`, named after the date: nothing is overwritten."""
    for number in count(1):
        again = "" if number == 1 else f"-{number}"
        directory = place / f"{date:%Y-%m-%d-%H%M%S}{again}"
        with writing(directory), contextlib.suppress(FileExistsError):
            directory.mkdir(exist_ok=False)
            return directory
    raise AssertionError


def prepare_report(directory: Path) -> None:
    """Makes the directory of a report, so that a long bench does not fail at its end.

    Raises:
        UsageError: it cannot be made or written to.
        MissingTool: matplotlib is not installed.
    """
    plot.require()
    prepare_directory(directory)


def write_report(directory: Path, result: BenchResult, *, images: bool = True) -> list[Path]:
    """Writes `report.html`, `result.json` and, for slides, images of the curves.

    Args:
        directory: made if it is missing; files of an earlier report in it are replaced.
        result: runs without a timeline get no curves; of a sweep only its efficiency is drawn.
        images: whether slides are wanted; they take some seconds.

    Returns:
        The files written, the page first.

    Raises:
        UsageError: they cannot be written.
        MissingTool: matplotlib is not installed.
    """
    files = {
        "report.html": page([Named(_ALONE, result)]).encode(),
        _DATA: to_json(result, curves=True),
        **(_images(result) if images else {}),
    }
    return write_files(directory, files)


def write_data(directory: Path, result: BenchResult) -> Path:
    """Writes `result.json`, of which `write_page` makes the page, and returns it.

    Raises:
        UsageError: it cannot be written.
    """
    return write_files(directory, {_DATA: to_json(result, curves=True)})[0]


def write_page(file: Path, sources: Sequence[Path]) -> None:
    """Writes one page of the results in files or report directories, drawn over each other.

    Raises:
        UsageError: a result cannot be read, the page cannot be written, or there are too many
            results to tell apart.
        MissingTool: matplotlib is not installed.
    """
    if len(sources) > figures.MOST_SERIES:
        raise UsageError(
            f"{len(sources)} results are too many for one figure",
            hint=f"no more than {figures.MOST_SERIES} can be told apart",
        )
    results = map(read_result, sources)
    names = labels(sources) if len(sources) > 1 else [_ALONE]
    named = [Named(name, result) for name, result in zip(names, results, strict=True)]
    with writing(file):
        file.write_text(page(named), encoding="utf-8")


def _images(result: BenchResult) -> dict[str, bytes]:
    """Draws PNGs, SVGs and PDFs of the figures of the page; returns them by file name."""
    machine = result.machine
    drawn: dict[str, Mapping[str, bytes]] = {}
    for number, curves in enumerate(figures.in_figures(drawn_curves(result)), 1):
        name = "efficiency" if number == 1 else f"efficiency-{number}"
        shown = figures.efficiency(curves)
        drawn[name] = shown.images("Efficiency against task length", machine)
    if result.sweep is None:
        for number, run in enumerate(result.runs, start=1):
            if run.timeline is None:
                continue
            series = [figures.PlottedRun(_ALONE, 0, run, result.limit(run))]
            title = f"sleep {run.sleep}, {run.jobs:,} tasks on {run.size} workers"
            for draw in figures.OVER_TIME:
                name = f"{number}-sleep-{run.sleep}-{draw.__name__}"
                drawn[name] = draw(series).images(title, machine)
    return {
        f"{name}.{ending}": data for name, each in drawn.items() for ending, data in each.items()
    }
