"""The rungs of isolation that this machine can offer."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from kestrelctl.core.model.worker.isolation import RUNGS
from kestrelctl.errors import UsageError
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.probe import choose
from kestrelctl.worker.isolation.rung import Rung
from kestrelctl.worker.launch import native_program

INIT = native_program.build(native_program.INIT, os.uname().machine)


def make_rung(
    name: str,
    data_dir: Path,
    shares: Iterable[Path] = (),
    secrets: Iterable[Path] = (),
    init: Path | None = INIT,
) -> Rung:
    """A rung whose tasks see also the interpreter that runs the tests, wherever it is."""
    data_dir.mkdir(parents=True, exist_ok=True)
    interpreter = {Path(sys.base_prefix), Path(sys.prefix)}  # of a virtual environment, too
    view = FileView(data_dir, [*shares, *interpreter], secrets, memory_bytes=256 << 20)
    return choose(name, data_dir, view, init)


@functools.cache
def why_not(name: str) -> str:
    """Why this machine does not have a rung; empty if it does."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            make_rung(name, Path(directory))
        except UsageError as error:
            return str(error.cause)
    return ""


def available() -> list[str]:
    return [name for name in reversed(RUNGS) if not why_not(name)]
