"""Lines that keep to a width, and rows of cells under headings; on a terminal coloured.

All tables of a terminal are laid out here, page by page as they come. rich is asked for the widths
of characters alone, which takes 2 ms to load, if there is one that is not ASCII. Its tables take
20 ms at each start, want all rows at once, and 3 s for 10,000 of them, which here take 0.07 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from kestrelctl.cli.show.screen import BOLD, CYAN, DIM, GREEN, RED, YELLOW, Screen
from kestrelctl.core.model.wording import one_line

if TYPE_CHECKING:
    from rich.text import Text


Line: TypeAlias = list[tuple[str, str]]
"""Pieces of a line: (text, style); a style is a colour, `bold`, `dim` or nothing."""

GAP = 2


def text_width(text: str) -> int:
    """Counts the columns of a text on a terminal: East Asian characters two, accents none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # here: most output is ASCII, and starts sooner

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Returns the text, or as much of its beginning as fits before an ellipsis.

    Args:
        width: the columns that there are, one at least.
    """
    if text_width(text) <= width:
        return text
    if width <= 1:
        return "…"
    if text.isascii():
        return f"{text[: width - 1]}…"
    from rich.cells import chop_cells

    return f"{chop_cells(text, width - 1)[0]}…"


def aligned(text: str, width: int, *, right: bool = False) -> str:
    """Returns the text with spaces after it, or before it, up to a width."""
    space = " " * (width - text_width(text))
    return space + text if right else text + space


def line_text(line: Line) -> str:
    """The text of a line, without spaces at its end."""
    return "".join(text for text, _ in line).rstrip()


def rich_text(lines: Sequence[Line]) -> Text:
    """Turns lines into a text for rich."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for words, style in line:
            text.append(words, style or None)
    return text


def crop(line: Line, width: int) -> Line:
    """Returns as much of a line as fits; an ellipsis says that there is more."""
    fitting: Line = []
    for text, style in line:
        wide = text_width(text)
        if wide > width:
            return [*fitting, (cut(text, width), style)] if width > 0 else _ellipsis(fitting)
        fitting.append((text, style))
        width -= wide
    return fitting


def _ellipsis(line: Line) -> Line:
    if not line:
        return line
    text, style = line[-1]
    return [*line[:-1], (cut(f"{text} ", text_width(text)), style)]


def spread(left: Line, right: Line, width: int) -> Line:
    """Puts two parts at the two ends of a line; the left one gives way."""
    right = crop(right, width)
    room = width - _width(right)
    left = crop(left, max(0, room - GAP))
    return [*left, (" " * (room - _width(left)), ""), *right]


def _width(line: Line) -> int:
    return sum(text_width(text) for text, _ in line)


def bar(share: float, width: int) -> str:
    """Draws a share of a whole: `██████░░░░`."""
    full = round(min(1.0, max(0.0, share)) * width)
    return "█" * full + "░" * (width - full)


T = TypeVar("T")

#: The width below which no column is cut that says no other.
_NARROWEST = 8
#: Columns whose cells are coloured by their words.
_COLORED = ("STATE", "REASON")
STATE_STYLES = {
    "done": "green",
    "idle": "green",
    "running": "cyan",
    "active": "cyan",
    "busy": "cyan",
    "failed": "red",
    "lost": "red",
    "quarantined": "red",
    "unheard": "yellow",
    "draining": "yellow",
    "cancelling": "yellow",
    "held": "yellow",
    "cancelled": "dim",
    "offline": "dim",
}

_ANSI = {"bold": BOLD, "dim": DIM, "red": RED, "green": GREEN, "yellow": YELLOW, "cyan": CYAN}


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table.

    Attributes:
        right: whether its cells line up at their right ends, as numbers do; these are never cut.
        wide: whether it is shown only with `-o wide`.
        sparse: whether it is shown only if the first page has something for it.
        width: the least width; 0 for none.
        gives: whether its texts may be cut if there is no room.
        drop: the order in which columns are left out if there is no room; 0 stays, unless it is
            empty.
        style: returns the style of a cell; by default that of the state which it names.
    """

    title: str
    cell: Callable[[T], str]
    right: bool = False
    wide: bool = False
    sparse: bool = False
    width: int = 0
    gives: bool = True
    drop: int = 0
    style: Callable[[T], str] | None = None

    @property
    def narrowest(self) -> int:
        return self.width or _NARROWEST


def cell_columns(headings: Sequence[tuple[str, bool]]) -> list[Column[Sequence[str]]]:
    """Makes the columns of rows of cells.

    Args:
        headings: (title, right-aligned) of each.
    """
    return [
        Column(title, itemgetter(place), right) for place, (title, right) in enumerate(headings)
    ]


class Grid(Generic[T]):
    """A table that is printed page by page; its widths are those of the first page.

    If there is no room, columns without content are left out first. If a later page has content for
    one of them, the table begins anew there.
    """

    def __init__(self, columns: Sequence[Column[T]]) -> None:
        self._columns = columns
        self._styled = [place for place, c in enumerate(columns) if c.style or c.title in _COLORED]
        self._widths: list[int] = []
        self._shown: list[int] = []
        self._empty: set[int] = set()
        self._is_bounded = False

    def print(self, things: Sequence[T], screen: Screen) -> None:
        """Prints a page of rows; headings come above the first."""
        if screen.is_terminal:
            import shutil  # it costs a command a millisecond, and what others print has no width

            lines = self.lines(things, shutil.get_terminal_size().columns)
            text = "\n".join(painted(line, screen) for line in lines)
        else:
            text = "\n".join(map(line_text, self.lines(things)))
        screen.write(f"{text}\n" if text else "")

    def lines(self, things: Sequence[T], room: int | None = None) -> Iterator[Line]:
        """Lays out a page of rows; headings come above the first.

        Args:
            room: the columns that there are; None if as many as it takes. Lines keep to it as far
                as columns may give way.
        """
        rows = [[one_line(column.cell(thing)) for column in self._columns] for thing in things]
        if not self._widths or any(row[place] for place in self._empty for row in rows):
            self._fit(rows, room)
            titles = [column.title for column in self._columns]
            yield self._line(titles, ["bold"] * len(titles))
        for thing, row in zip(things, rows, strict=True):
            yield self._line(row, self._styles(thing, row))

    def _fit(self, rows: Sequence[Sequence[str]], room: int | None) -> None:
        """Finds the widths, and which columns are shown."""
        self._widths = [
            max(column.width, text_width(column.title), *(text_width(row[place]) for row in rows))
            for place, column in enumerate(self._columns)
        ]
        self._shown, self._empty = list(range(len(self._columns))), set()
        self._is_bounded = room is not None
        if room is None or self._excess(room) <= 0:
            return
        self._empty = {place for place in self._shown if not any(row[place] for row in rows)}
        self._shown = [place for place in self._shown if place not in self._empty]
        while (excess := self._excess(room)) > 0:
            able = sum(self._spare(place) for place in self._shown)
            dropping = [place for place in self._shown if self._columns[place].drop]
            if excess <= able or not dropping:
                self._narrow(min(excess, able))
                return
            self._shown.remove(min(dropping, key=lambda place: self._columns[place].drop))

    def _excess(self, room: int) -> int:
        """The columns that a line takes beyond those that there are."""
        return sum(self._widths[place] + GAP for place in self._shown) - GAP - room

    def _spare(self, place: int) -> int:
        column = self._columns[place]
        if column.right or not column.gives:
            return 0
        return max(0, self._widths[place] - column.narrowest)

    def _narrow(self, by: int) -> None:
        """Takes room away from columns, from the widest first."""
        for _ in range(by):
            able = filter(self._spare, self._shown)
            self._widths[max(able, key=self._widths.__getitem__)] -= 1

    def _styles(self, thing: T, row: Sequence[str]) -> list[str]:
        styles = [""] * len(row)
        for place in self._styled:
            style = self._columns[place].style
            styles[place] = style(thing) if style else STATE_STYLES.get(row[place], "")
        return styles

    def _line(self, cells: Sequence[str], styles: Sequence[str]) -> Line:
        line: Line = []
        space = 0
        for place in self._shown:
            cell, width, right = cells[place], self._widths[place], self._columns[place].right
            if self._is_bounded and not right:
                cell = cut(cell, width)
            padding = max(0, width - text_width(cell))
            space += padding if right else 0
            if cell:
                line += [(" " * space, ""), (cell, styles[place])]
                space = 0
            space += GAP + (0 if right else padding)
        return line


def painted(line: Line, screen: Screen) -> str:
    """Returns a line with its colours, if somebody looks at it and wants them."""
    return "".join(screen.paint(_codes(style), text) if style else text for text, style in line)


def _codes(style: str) -> str:
    return "".join(_ANSI[word] for word in style.split())
