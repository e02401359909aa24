"""Writes an experiment with a flock to disk: its page, its data, and its figures as images."""

from __future__ import annotations

import tempfile
from pathlib import Path

from kestrelctl.bench.flock_page import flock_page
from kestrelctl.bench.flock_result import FlockResult, to_json
from kestrelctl.bench.report import writing


def prepare_flock_report(directory: Path) -> None:
    """Makes the directory, so that a long experiment does not fail at its end.

    Raises:
        UsageError: it cannot be made or written to.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass


def write_flock_report(directory: Path, result: FlockResult) -> list[Path]:
    """Writes `flock.html` and `flock.json`.

    Args:
        directory: made if it is missing; files of an earlier report in it are replaced.

    Returns:
        The files written, the page first.

    Raises:
        UsageError: they cannot be written.
    """
    files = {
        "flock.html": flock_page(result).encode(),
        "flock.json": to_json(result, waits=True),
    }
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
    return [directory / name for name in files]
