"""Writes an experiment with a flock to disk: its page with all figures, plots, and its data."""

from __future__ import annotations

from pathlib import Path

from kestrel_experiments.flock.page import flock_page, gain_figure, longest_waits
from kestrel_experiments.flock.result import FlockResult, summary, to_json
from kestrelctl.bench.report.files import write_files


def write_flock_report(directory: Path, result: FlockResult) -> list[Path]:
    """Writes `flock.html`, `flock.json` and plots as SVG; returns them, the page and the data
    first.

    Raises:
        UsageError: they cannot be written.
    """
    settings = summary(result.runs)
    files = {
        "flock.html": flock_page(result).encode(),
        "flock.json": to_json(result, waits=True),
        "flock-longest.svg": longest_waits(settings).picture(),
    }
    if any(setting.gain is not None for setting in settings):
        files["flock-gains.svg"] = gain_figure(result).picture()
    return write_files(directory, files)
