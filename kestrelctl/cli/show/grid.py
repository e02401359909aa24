"""Rows of cells under headings, aligned; on a terminal coloured and cut to its width."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Sequence

from kestrelctl.cli.show.screen import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Screen
from kestrelctl.grammar.one_line import one_line

_GAP = "  "
#: A column is not cut below this.
_NARROWEST = 8
#: Columns whose cells are coloured by what they say.
_COLORED = ("STATE", "REASON")
_COLORS = {
    "done": GREEN,
    "idle": GREEN,
    "running": CYAN,
    "active": CYAN,
    "busy": CYAN,
    "failed": RED,
    "lost": RED,
    "quarantined": RED,
    "unheard": YELLOW,
    "draining": YELLOW,
    "cancelling": YELLOW,
    "cancelled": DIM,
    "offline": DIM,
}


class Grid:
    """A table that is printed page by page; its widths are those of the first page.

    Where a terminal has no room, columns without any content go first. If a later page has some,
    the table begins anew there.
    """

    def __init__(self, headings: Sequence[tuple[str, bool]]) -> None:
        """Args:
        headings: (title, right-aligned) of each column.
        """
        self._headings = headings
        self._widths: list[int] = []
        self._left_out: set[int] = set()

    def print(self, rows: Sequence[Sequence[str]], screen: Screen) -> None:
        """Prints a page of rows; headings come above the first."""
        rows = [[one_line(cell) for cell in row] for row in rows]
        if any(row[column] for column in self._left_out for row in rows):
            self._widths, self._left_out = [], set()
        if not self._widths:
            titles = [title for title, _ in self._headings]
            self._widths = [
                max(map(text_width, cells)) for cells in zip(titles, *rows, strict=True)
            ]
            if screen.is_terminal:
                empty = {i for i in range(len(titles)) if not any(row[i] for row in rows)}
                self._fit(shutil.get_terminal_size().columns, empty)
            screen.write(screen.paint(BOLD, self._line(titles, screen)) + "\n")
        for row in rows:
            screen.write(self._line(row, screen, colored=True) + "\n")

    def _fit(self, width: int, empty: set[int]) -> None:
        """Narrows the widest columns of text until all fit, if they can."""
        if self._room() > width:
            self._left_out = empty
        text = [i for i, (_, right) in enumerate(self._headings) if not right]
        text = [i for i in text if i not in self._left_out]
        while self._room() > width:
            widest = max(text, key=lambda i: self._widths[i], default=None)
            if widest is None or self._widths[widest] <= _NARROWEST:
                return
            self._widths[widest] -= 1

    def _room(self) -> int:
        """What a line takes."""
        shown = [width for i, width in enumerate(self._widths) if i not in self._left_out]
        return sum(shown) + len(_GAP) * (len(shown) - 1)

    def _line(self, cells: Sequence[str], screen: Screen, *, colored: bool = False) -> str:
        parts = []
        columns = zip(cells, self._widths, self._headings, strict=True)
        for column, (cell, width, (title, right)) in enumerate(columns):
            if column in self._left_out:
                continue
            shown = cut(cell, width) if screen.is_terminal else cell
            space = " " * (width - text_width(shown))
            if colored and title in _COLORED and cell in _COLORS:
                shown = screen.paint(_COLORS[cell], shown)
            parts.append(space + shown if right else shown + space)
        return _GAP.join(parts).rstrip()


def text_width(text: str) -> int:
    """Columns that a text takes on a terminal: East Asian characters two, accents none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def cut(text: str, width: int) -> str:
    """The text, or as much of its beginning as fits before an ellipsis."""
    if text_width(text) <= width:
        return text
    while text_width(text) > width - 1:
        text = text[:-1]
    return f"{text}…"
