"""Lines of coloured text that keep to a width, and tables of them, for views that are redrawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from kestrelctl.cli.show.grid import cut, text_width

if TYPE_CHECKING:
    from rich.text import Text

T = TypeVar("T")

Line: TypeAlias = list[tuple[str, str]]
"""Pieces of a line: (text, style); a style is a colour, `bold`, `dim` or nothing."""

GAP = 2


def line_text(line: Line) -> str:
    """The text of a line, without spaces at its end."""
    return "".join(text for text, _ in line).rstrip()


def rich_text(lines: Sequence[Line]) -> Text:
    """Lines as rich shows them."""
    from rich.text import Text

    text = Text(no_wrap=True, overflow="crop", end="")
    for number, line in enumerate(lines):
        text.append("\n" if number else "")
        for words, style in line:
            text.append(words, style or None)
    return text


def crop(line: Line, width: int) -> Line:
    """As much of a line as fits; an ellipsis says that there is more."""
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
    """Two parts at the two ends of a line; the left one gives way."""
    right = crop(right, width)
    room = width - _width(right)
    left = crop(left, max(0, room - GAP))
    return [*left, (" " * (room - _width(left)), ""), *right]


def _width(line: Line) -> int:
    return sum(text_width(text) for text, _ in line)


def bar(share: float, width: int) -> str:
    """How much of a whole is there: `██████░░░░`."""
    full = round(min(1.0, max(0.0, share)) * width)
    return "█" * full + "░" * (width - full)


@dataclass(frozen=True, slots=True)
class FittedColumn(Generic[T]):
    """A column of a table.

    Attributes:
        right: numbers line up at their right ends.
        width: it is at least so wide; one that `gives` is made narrower down to this.
        drop: where there is no room, columns go in this order; 0 stays.
    """

    title: str
    cell: Callable[[T], str]
    right: bool = False
    width: int = 0
    gives: bool = False
    drop: int = 0
    style: Callable[[T], str] = lambda _: ""


def table(columns: Sequence[FittedColumn[T]], things: Sequence[T], width: int) -> list[Line]:
    """A heading and a line for each thing, none wider than `width`."""
    cells = {column.title: [column.cell(thing) for thing in things] for column in columns}
    wanted = {
        column.title: max(column.width, *map(text_width, [column.title, *cells[column.title]]))
        for column in columns
    }
    shown = list(columns)
    if sum(wanted[c.title] + GAP for c in shown) - GAP > width:
        # An empty column takes no room from a name.
        shown = [c for c in shown if not c.drop or any(cells[c.title])]
    while (excess := sum(wanted[c.title] + GAP for c in shown) - GAP - width) > 0:
        giving = [c for c in shown if c.gives]
        dropping = [c for c in shown if c.drop]
        if excess <= sum(wanted[c.title] - _narrowest(c) for c in giving) or not dropping:
            _narrow(giving, wanted, excess)
            break
        shown.remove(min(dropping, key=lambda c: c.drop))
    heading: Line = []
    lines: list[Line] = [[] for _ in things]
    for column in shown:
        room = wanted[column.title]
        gap = " " * GAP if column is not shown[-1] else ""
        heading.append((_aligned(column.title, room, column.right) + gap, "bold"))
        for line, thing, cell in zip(lines, things, cells[column.title], strict=True):
            line.append((_aligned(cell, room, column.right), column.style(thing)))
            line.append((gap, ""))
    return [crop(line, width) for line in [heading, *lines]]


def _narrowest(column: FittedColumn[T]) -> int:
    return max(column.width, len(column.title))


def _narrow(columns: Sequence[FittedColumn[T]], wanted: dict[str, int], excess: int) -> None:
    """Takes columns' room away, the widest one's first."""
    for _ in range(excess):
        able = [c for c in columns if wanted[c.title] > _narrowest(c)]
        if not able:
            return
        wanted[max(able, key=lambda c: wanted[c.title]).title] -= 1


def _aligned(cell: str, room: int, right: bool) -> str:
    shown = cut(cell, room)
    space = " " * (room - text_width(shown))
    return space + shown if right else shown + space
