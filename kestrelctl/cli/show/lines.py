"""Lines of coloured text that keep to a width. How wide a character is, rich knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

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
