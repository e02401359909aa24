"""Writes a sweep to disk: the curves as images, a page that needs nothing else, and the data."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from kestrelctl.bench import plots
from kestrelctl.bench.page import Picture, page
from kestrelctl.bench.result import Result, Run, to_json


def write_report(directory: Path, result: Result) -> list[Path]:
    """Draws the curves of every run and writes `report.html`, `result.json` and the PNGs.

    Args:
        directory: made if it is missing; files of an earlier report in it are replaced.
        result: runs without a timeline get no curves.

    Returns:
        The files written, the page first.

    Raises:
        MissingTool: matplotlib is not installed.
    """
    images: dict[str, bytes] = {}
    pictures: list[list[Picture]] = []
    for number, run in enumerate(result.runs, start=1):
        drawn = _draw(result, run)
        pictures.append([picture for _, _, picture in drawn])
        for name, png, _ in drawn:
            images[f"{number}-sleep-{run.sleep}-{name}.png"] = png
    files = {
        "report.html": page(result, pictures).encode(),
        "result.json": to_json(result, curves=True),
        **images,
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return [directory / name for name in files]


def _draw(result: Result, run: Run) -> list[tuple[str, bytes, Picture]]:
    """File name, light image, and picture for the page, of each curve of one run."""
    curves = run.timeline
    if curves is None:
        return []
    limit = result.limit(run)
    ended = f"The run ended after {run.makespan_seconds:,.1f} s"
    if limit:
        ended += f"; the bound is {limit.seconds:,.1f} s"
    rate_alt = (
        f"Tasks dispatched and finished per second over time, sleep {run.sleep}: "
        f"{run.tasks_per_second:,.0f} a second on average, "
        f"{max(curves.per_second(curves.finished)):,.0f} at the most. {ended}."
    )
    mean = sum(curves.running) * curves.bin_seconds / run.makespan_seconds
    running_alt = (
        f"Tasks running over time, sleep {run.sleep}: {mean:,.0f} on average, "
        f"{max(curves.running):,.0f} at the most, on {run.workers:,} workers. {ended}."
    )
    drawn = []
    for name, draw, alt in (
        ("rate", plots.rate_png, rate_alt),
        ("running", plots.running_png, running_alt),
    ):
        light, dark = (draw(run, curves, limit, theme) for theme in (plots.LIGHT, plots.DARK))
        drawn.append((name, light, Picture(alt, _data_uri(light), _data_uri(dark))))
    return drawn


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + b64encode(png).decode()
