"""The values that commands produce, and how each is printed in each mode (`-o`).

A command returns a `CommandOutput`, which knows its names (quiet), its data (json, jsonl) and its
table, so no command can forget a mode.
"""

from __future__ import annotations

import abc
import enum
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from kestrelctl.cli.show.grid import Column, Grid, aligned, cell_columns, text_width
from kestrelctl.cli.show.screen import Mode, Screen
from kestrelctl.core.model.wording import one_line

T = TypeVar("T")


class CommandOutput(abc.ABC):
    """The result of a command."""

    #: Whether there are several entries: a JSON array instead of an object.
    many = False

    @abc.abstractmethod
    def entries(self) -> AsyncIterator[tuple[str, object]]:
        """Yields the name (quiet) and the data (json) of each thing found."""

    @abc.abstractmethod
    async def tabulate(self, screen: Screen) -> None:
        """Prints the result for people."""

    async def name(self, screen: Screen) -> None:
        """Prints the bare names, one on each line."""
        async for name, _ in self.entries():
            screen.write(f"{name}\n")


async def show(output: CommandOutput, screen: Screen) -> None:
    """Prints what a command found, in the mode that was asked for."""
    if screen.mode is Mode.QUIET:
        await output.name(screen)
    elif screen.mode is Mode.JSONL:
        async for _, data in output.entries():
            screen.write(_compact(data) + "\n")
    elif screen.mode is Mode.JSON and output.many:
        before = "[\n"
        async for _, data in output.entries():
            screen.write(before + _compact(data))
            before = ",\n"
        screen.write("[]\n" if before == "[\n" else "\n]\n")
    elif screen.mode is Mode.JSON:
        async for _, data in output.entries():
            screen.write(json.dumps(plain(data), indent=2, ensure_ascii=False) + "\n")
    else:
        await output.tabulate(screen)


class Listing(CommandOutput, Generic[T]):
    """Several things of a kind, one on each line; they may come in pages."""

    many = True

    def __init__(
        self,
        pages: AsyncIterator[Sequence[T]] | Sequence[T],
        columns: Sequence[Column[T]],
        name: Callable[[T], str],
        *,
        nothing: str,
        remarks: Sequence[str] = (),
    ) -> None:
        """Args:
        pages: the things, or an iterator over pages of them.
        name: returns what identifies one (quiet).
        nothing: the remark if there are none.
        remarks: the remarks after all of them.
        """
        self._pages = _one_page(pages) if isinstance(pages, Sequence) else pages
        self._columns = columns
        self._name = name
        self._nothing = nothing
        self._remarks = remarks

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        async for page in self._pages:
            for thing in page:
                yield self._name(thing), thing

    async def tabulate(self, screen: Screen) -> None:
        columns = [c for c in self._columns if not c.wide or screen.mode is Mode.WIDE]
        grid: Grid[T] | None = None
        async for page in self._pages:
            if page:
                if grid is None:
                    columns = [c for c in columns if not c.sparse or any(map(c.cell, page))]
                    grid = Grid(columns)
                grid.print(page, screen)
        if grid is None:
            screen.say(self._nothing)
        for remark in self._remarks:
            screen.say(remark)


class Record(CommandOutput):
    """One thing: lines of `label  value`, and perhaps tables or sentences below."""

    def __init__(
        self, name: str, data: object, blocks: Sequence[tuple[str, str] | Table | str]
    ) -> None:
        """Args:
        name: the name that identifies it (quiet).
        data: the data that json shows.
        blocks: the parts as they follow: pairs of label and value (left out if empty), tables,
            sentences.
        """
        self._name = name
        self._data = data
        self._blocks = blocks

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        yield self._name, self._data

    async def tabulate(self, screen: Screen) -> None:
        width = max((text_width(b[0]) for b in self._blocks if isinstance(b, tuple)), default=0)
        for block in self._blocks:
            if isinstance(block, Table):
                Grid(cell_columns(block.headings)).print(block.rows, screen)
            elif isinstance(block, str):
                screen.write(f"{one_line(screen.for_people(block))}\n")
            elif block[1]:
                screen.write(f"{aligned(block[0], width)}  {one_line(block[1])}\n")


class Records(CommandOutput):
    """Several records, with an empty line between two."""

    many = True

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        for record in self._records:
            async for entry in record.entries():
                yield entry

    async def tabulate(self, screen: Screen) -> None:
        for number, record in enumerate(self._records):
            screen.write("\n" if number else "")
            await record.tabulate(screen)


def one_or_several(records: Sequence[Record]) -> CommandOutput:
    """Returns the record if there is one; an array in JSON if there are several."""
    return records[0] if len(records) == 1 else Records(records)


@dataclass(frozen=True, slots=True)
class Table:
    """A finished table inside a record.

    Attributes:
        headings: (title, right-aligned) of each column.
    """

    headings: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[str]]


def plain(value: Any) -> Any:
    """Returns a value as JSON has it: every field of a struct by its name, defaults included."""
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.value
    return value


def _compact(data: object) -> str:
    return json.dumps(plain(data), separators=(",", ":"), ensure_ascii=False)


async def _one_page(things: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    yield things
