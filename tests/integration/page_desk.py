"""A desk at which the commands of a page are typed, with pools of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from console_blocks import typed

DOCS = Path(__file__).parents[2] / "docs"


class Desk:
    """A user who types what a page shows."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "PYTHONUNBUFFERED": "1",  # lines in the order in which they are printed
        }
        self.env.pop("KESTREL_POOL", None)

    def pastes(self, command: str) -> tuple[int, list[str]]:
        """A command's exit status, and all that a terminal shows after it."""
        found = subprocess.run(
            ["bash", "-c", command], cwd=self.directory, env=self.env, text=True, timeout=100,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return found.returncode, found.stdout.splitlines()

    def types(self, line: str) -> list[str]:
        """What a terminal shows after this line, without what to do next."""
        _, lines = self.pastes(line)
        return [line for line in lines if not line.startswith("next: ")]


def typed_lines(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each line that a page of the documents shows typed, and what it shows after it."""
    for step in typed((DOCS / page).read_text()):
        if step.prompted:
            yield step.command, step.shown


def as_far_as_shown(seen: list[str], shown: list[str]) -> tuple[list[str], list[str]]:
    """Both, up to where the page says `...`."""
    if "..." not in shown:
        return seen, shown
    end = shown.index("...")
    return seen[:end], shown[:end]
