"""Reads the inputs of a map: what was typed, lines of files, standard input as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path

from kestrelctl.cli.map.replacement import MappedInput
from kestrelctl.cli.map.sources import STANDARD_INPUT, InputSource, columns, combined
from kestrelctl.core.model.objection import MOST_ITEM_BYTES
from kestrelctl.errors import UsageError, why

_PIECE_BYTES = 1 << 16
#: The most inputs that are read before they are wanted.
_MOST_AHEAD = 20_000


def inputs_of(
    sources: Sequence[InputSource], *, separator: re.Pattern[str] | None, end: bytes
) -> Iterator[MappedInput]:
    """Opens the sources, and returns an iterator that reads them.

    Args:
        separator: between columns, each of which is an argument; None for no columns.
        end: that of a line.

    Raises:
        UsageError: a source cannot be read, now or later, or is not UTF-8.
    """
    rows = combined([_arguments(each, end) for each in sources], [each.linked for each in sources])
    if separator is not None:
        rows = (
            tuple(column for each in row for column in columns(each, separator)) for row in rows
        )
    return itertools.starmap(MappedInput, enumerate(rows, 1))


def _arguments(source: InputSource, end: bytes) -> Iterable[str]:
    if source.arguments is None:
        return _lines(_open(source.file), source.file, end)
    for number, argument in enumerate(source.arguments, 1):
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(f"argument {number} of a source is not UTF-8") from None
    return source.arguments


def _open(file: str) -> BufferedReader:
    try:
        if file == STANDARD_INPUT:  # an own reader: a thread may hold it when the program ends
            return open(0, "rb", closefd=False)
        return Path(file).open("rb")
    except OSError as error:
        raise UsageError(f"{file} cannot be read", cause=why(error)) from None


def _lines(stream: BufferedReader, file: str, end: bytes) -> Iterator[str]:
    name = "standard input" if file == STANDARD_INPUT else file
    with stream:
        for number, line in enumerate(_records(stream, name, end), 1):
            try:
                text = line.decode()
            except UnicodeDecodeError:
                raise UsageError(
                    f"line {number} of {name} is not UTF-8",
                    hint="iconv -f LATIN1 -t UTF-8 makes it so",
                ) from None
            if "\0" in text:
                raise UsageError(
                    f"line {number} of {name} has a null byte",
                    cause="no command can be given one",
                    hint="--null, if null bytes end lines",
                )
            yield text


def _records(stream: BufferedReader, name: str, end: bytes) -> Iterator[bytes]:
    left = b""
    try:
        while piece := stream.read1(_PIECE_BYTES):
            *records, left = (left + piece).split(end)
            yield from records
            if len(left) > 2 * MOST_ITEM_BYTES:
                raise UsageError(
                    f"a line of {name} is too large: a program gets {MOST_ITEM_BYTES:,} bytes",
                    hint="put it into a file that the tasks can read, and its name into the line",
                )
    except OSError as error:
        raise UsageError(f"{name} cannot be read", cause=why(error)) from None
    if left:
        yield left


class InputFeed:
    """Reads inputs ahead, in a thread: a read from a pipe returns when something has come.

    Args:
        inputs: as they are read.
    """

    def __init__(self, inputs: Iterator[MappedInput]) -> None:
        self._inputs = inputs
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._room = threading.Condition()
        self._read: deque[MappedInput] = deque()
        self._wanted = 1
        self._is_over = False
        self._error: Exception | None = None
        threading.Thread(target=self._run, name="kestrel inputs", daemon=True).start()

    def _run(self) -> None:
        try:
            for each in self._inputs:
                with self._room:
                    while len(self._read) >= _MOST_AHEAD:
                        self._room.wait()
                    self._read.append(each)
                    enough = len(self._read) == self._wanted
                if enough:
                    self._tell()
        except Exception as error:
            self._error = error
        self._is_over = True
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._changed.set)

    async def take(self, most: int, gather_seconds: float) -> list[MappedInput]:
        """Returns the next inputs; none at their end.

        Args:
            most: how many at most.
            gather_seconds: how long to wait for so many, once there is one.

        Raises:
            UsageError: a source cannot be read.
        """
        await self._until(1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(gather_seconds):
                await self._until(most)
        if self._error is not None:
            raise self._error
        with self._room:
            taken = [self._read.popleft() for _ in range(min(most, len(self._read)))]
            self._room.notify()
        return taken

    async def _until(self, wanted: int) -> None:
        """Waits until there are so many inputs, or no more come."""
        with self._room:
            self._wanted = wanted
        while len(self._read) < wanted and not self._is_over:
            self._changed.clear()
            if len(self._read) < wanted and not self._is_over:
                await self._changed.wait()
