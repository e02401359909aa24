"""What a page has its reader type, and whether a terminal then shows what the page shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: What stands for any output at all.
ANYTHING = "..."
#: A number with its unit: figures and times are not the same twice.
_NUMBER = re.compile(r"\d[\w.,:+]*( (ms|s|min|h|B|KiB|MiB|GiB)\b)?")
_HERE_DOCUMENT = re.compile(r"<<-?\s*'?(\w+)'?")


class Typed(NamedTuple):
    """One command of a page.

    Attributes:
        line: where it stands in the page, from 1.
        command: what is typed, with the lines of its here-document if it has one.
        shown: the lines that the page shows after it.
        prompted: whether the page shows a prompt and what comes of it.
    """

    line: int
    command: str
    shown: list[str]
    prompted: bool = True


def typed(text: str) -> Iterator[Typed]:
    """Each command in the `console` and `sh` blocks of a page, in order.

    In a block with prompts (`$ `), what follows a command is its output. In one without, each line
    is a command; empty lines and comments are left out.
    """
    for block in re.finditer(r"^```(?:console|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, block.start(1)) + 1
        lines = block[1].splitlines()
        if any(line.startswith("$ ") for line in lines):
            yield from _prompted(lines, first)
        else:
            yield from _bare(lines, first)


def _prompted(lines: Sequence[str], first: int) -> Iterator[Typed]:
    at = 0
    while at < len(lines):
        end = _end_of_command(lines, at)
        output = end
        while output < len(lines) and not lines[output].startswith("$ "):
            output += 1
        command = "\n".join(lines[at:end]).removeprefix("$ ")
        yield Typed(first + at, command, list(lines[end:output]))
        at = output


def _bare(lines: Sequence[str], first: int) -> Iterator[Typed]:
    at = 0
    while at < len(lines):
        end = _end_of_command(lines, at)
        command = "\n".join(lines[at:end])
        if command.strip() and not command.startswith("#"):
            yield Typed(first + at, command, [], prompted=False)
        at = end


def _end_of_command(lines: Sequence[str], at: int) -> int:
    """The line after a command: it goes on behind a backslash, or up to its here-document's end."""
    end = at + 1
    while lines[end - 1].endswith("\\") and end < len(lines):
        end += 1
    if here := _HERE_DOCUMENT.search(lines[at]):
        while lines[end - 1] != here[1]:
            end += 1
    return end


def expects_failure(shown: Sequence[str]) -> bool:
    """Whether a page shows that the command ends with another status than 0."""
    return any(line.startswith("error: ") for line in shown)


def lines_missing(shown: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Which lines that a page shows a terminal does not show.

    Numbers, with their units, may be others, and so may the width of columns. A terminal may show
    more lines than the page, and in another order: some are of things that happen at once.
    """
    rest = [_without_numbers(line) for line in seen]
    missing = []
    for line in shown:
        wanted = _without_numbers(line)
        if wanted in rest:
            rest.remove(wanted)
        elif line != ANYTHING:
            missing.append(line)
    return missing


def _without_numbers(line: str) -> str:
    return " ".join(_NUMBER.sub("#", line).split())
