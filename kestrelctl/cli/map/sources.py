"""The input sources of a line in the manner of GNU parallel, and how they are combined."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kestrelctl.errors import UsageError

#: The words that begin sources: whether files follow, and whether these are linked to the source
#: before them.
_MARKS = {
    ":::": (False, False),
    ":::+": (False, True),
    "::::": (True, False),
    "::::+": (True, True),
}
#: The name of standard input as a file.
STANDARD_INPUT = "-"


class InputSource(NamedTuple):
    """An input source.

    Attributes:
        arguments: as they were typed; None for those of a file.
        file: its name, `-` for standard input; empty if there is none.
        linked: whether its arguments go along with those of the source before it, one with one.
    """

    arguments: tuple[str, ...] | None = None
    file: str = ""
    linked: bool = False


def split_line(words: Sequence[str]) -> tuple[tuple[str, ...], list[InputSource]]:
    """Returns the command of a line, and its sources: standard input if it names none.

    Raises:
        UsageError: a mark is followed by no file.
    """
    places = [place for place, word in enumerate(words) if word in _MARKS]
    if not places:
        return tuple(words), [InputSource(file=STANDARD_INPUT)]
    sources: list[InputSource] = []
    for start, end in itertools.pairwise([*places, len(words)]):
        are_files, linked = _MARKS[words[start]]
        values = tuple(words[start + 1 : end])
        if not are_files:
            sources.append(InputSource(values, linked=linked))
            continue
        if not values or "" in values:
            raise UsageError(
                f"{words[start]} is followed by no file", hint=f"{words[start]} names.txt"
            )
        sources += [InputSource(file=file, linked=linked) for file in values]
    return tuple(words[: places[0]]), sources


def combined(
    arguments: Sequence[Iterable[str]], linked: Sequence[bool]
) -> Iterator[tuple[str, ...]]:
    """Yields all combinations of the arguments of sources, the last of them changing fastest.

    Linked sources advance together, as far as the shortest goes. A source without arguments has an
    empty one, unless all are without. The first source is read as its arguments are needed.

    Args:
        linked: for each source, whether it is linked to the one before; that of the first means
            nothing.
    """
    if len(arguments) == 1:
        yield from ((argument,) for argument in arguments[0])
        return
    first = iter(arguments[0])
    others = [list(each) for each in arguments[1:]]
    beginning = list(itertools.islice(first, 1))
    if not beginning and not any(others):
        return
    read: list[Iterable[str]] = [itertools.chain(beginning or [""], first)]
    read += [each or [""] for each in others]
    groups: list[list[Iterable[str]]] = []
    for source, goes_along in zip(read, linked, strict=True):
        if goes_along and groups:
            groups[-1].append(source)
        else:
            groups.append([source])
    others_rows = [list(zip(*group, strict=False)) for group in groups[1:]]
    for head in zip(*groups[0], strict=False):
        for tail in itertools.product(*others_rows):
            yield head + tuple(itertools.chain.from_iterable(tail))


def column_separator(text: str) -> re.Pattern[str]:
    """Returns the regular expression between columns.

    Raises:
        UsageError: it is none.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise UsageError(
            f"--colsep is a regular expression, and {text!r} is none", cause=str(error)
        ) from None


def columns(argument: str, separator: re.Pattern[str]) -> list[str]:
    """Splits an argument into columns, without the blanks around each."""
    ends = [(match.start(), match.end()) for match in separator.finditer(argument)]
    starts = [0, *(end for _, end in ends)]
    stops = [*(start for start, _ in ends), len(argument)]
    return [argument[start:stop].strip() for start, stop in zip(starts, stops, strict=True)]
