"""Prints tables of documents that a seed decides, as they are to stand on their pages.

    .venv/bin/python tests/bench/documented.py            the names of the tables
    .venv/bin/python tests/bench/documented.py NAME...    these tables

Each takes as long as the commands above it on its page.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))

from documentedkit import (
    ENVIRONMENT_TABLES,
    FLOCK_TABLES,
    ad_bytes,
    ideal_table,
    markdown,
    sign_of_life_bytes,
)

TABLES = {each.name: each for each in (*FLOCK_TABLES, *ENVIRONMENT_TABLES)}
NAMES = (*TABLES, "ideal", "ad")


def run(words: Sequence[str]) -> bytes:
    """What `kestrelctl` prints as JSON."""
    program = Path(sys.executable).with_name("kestrelctl")
    command = [str(program), *words, "-o", "json"]
    return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout


def told(name: str) -> str:
    """What is to stand on the page."""
    if name == "ad":
        with tempfile.TemporaryDirectory() as directory:
            ad = ad_bytes(Path(directory))
        return f"an ad: {ad} bytes; a sign of life: {sign_of_life_bytes()} bytes"
    return markdown(ideal_table() if name == "ideal" else TABLES[name].whole(run))


if __name__ == "__main__":
    names = sys.argv[1:]
    if not set(names) <= set(NAMES) or not names:
        print("\n".join(NAMES))
        sys.exit(2 if names else 0)
    for name in names:
        print(f"{name}\n\n{told(name)}\n", flush=True)
