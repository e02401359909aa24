"""Differences between things of one kind, as unified diffs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from kestrelctl.cli.command_output import CommandOutput
from kestrelctl.cli.screen import BOLD, CYAN, GREEN, RED, Screen
from kestrelctl.grammar.one_line import one_line

_COLORS = {"---": BOLD, "+++": BOLD, "@@": CYAN, "-": RED, "+": GREEN}


class Difference(msgspec.Struct, frozen=True):
    """What sets two versions of a thing apart; `diff` is empty if nothing does."""

    uid: str
    differs: bool
    diff: str


class Differences(CommandOutput):
    """Several differences; the names are of the things that differ."""

    many = True

    def __init__(self, found: Sequence[Difference]) -> None:
        self._found = found

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        for each in self._found:
            yield each.uid, each

    async def name(self, screen: Screen) -> None:
        for each in self._found:
            if each.differs:
                screen.write(f"{each.uid}\n")

    async def tabulate(self, screen: Screen) -> None:
        for each in self._found:
            for line in each.diff.splitlines():
                screen.write(_painted(one_line(line), screen) + "\n")


def _painted(line: str, screen: Screen) -> str:
    for start, color in _COLORS.items():
        if line.startswith(start):
            return screen.paint(color, line)
    return line
