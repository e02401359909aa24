"""Writes the files of reports."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from kestrelctl.errors import UsageError


@contextlib.contextmanager
def writing(place: Path) -> Iterator[None]:
    """Turns an OSError in the `with` into a UsageError that this place cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"{place} cannot be written", cause=error.strerror) from None


def prepare_directory(directory: Path) -> None:
    """Makes the directory of a report, so that a long run does not fail at its end.

    Raises:
        UsageError: it cannot be made or written to.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass


def write_files(directory: Path, files: Mapping[str, bytes]) -> list[Path]:
    """Writes files to a directory, which is made if it is missing; returns them in that order.

    Raises:
        UsageError: they cannot be written.
    """
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
    return [directory / name for name in files]
