"""Reads the items of a job's tasks: lines of a file, elements of a JSON array."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import msgspec

from kestrelctl.errors import UsageError

#: A null byte, as JSON alone can write it: after an even number of backslashes.
_NULL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def read_lines(file: Path) -> tuple[str, ...]:
    """Reads the lines of a file without their ends; empty lines count, so that line n+1 is task n.

    Args:
        file: `-` for standard input.

    Raises:
        UsageError: it cannot be read, is empty or not UTF-8.
    """
    text = _text_of(file)
    if not text:
        raise UsageError(f"{file} is empty", hint="one line of it is one task")
    lines = text.removesuffix("\n").split("\n")
    return tuple(line.removesuffix("\r") for line in lines)


def read_elements(file: Path) -> tuple[str, ...]:
    """Reads the elements of a JSON array: strings as they are, anything else as compact JSON.

    Raises:
        UsageError: the file cannot be read, or is no JSON array with elements.
    """
    text = _text_of(file)
    try:
        elements = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{file} is not JSON", cause=str(error)) from None
    except RecursionError:
        raise UsageError(f"{file} cannot be read", cause="it nests too deeply") from None
    if (null := _NULL.search(text)) is not None:
        raise _has_null(file, text, null.start())
    if not isinstance(elements, list) or not elements:
        kind = "an empty array" if elements == [] else f"one {_kind(elements)}"
        raise UsageError(
            f"{file} holds {kind}, not an array of tasks", hint='write [{"x": 1}, {"x": 2}]'
        )
    return tuple(
        element if isinstance(element, str) else msgspec.json.encode(element).decode()
        for element in elements
    )


def _kind(value: object) -> str:
    return {dict: "object", str: "string", bool: "boolean", type(None): "null"}.get(
        type(value), "number"
    )


def _text_of(file: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read", cause=error.strerror) from None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"line {line} of {file} is not UTF-8",
            hint=f"iconv -f LATIN1 -t UTF-8 {shlex.quote(str(file))}",
        ) from None
    if "\0" in text:
        raise _has_null(file, text, text.index("\0"))
    return text.removeprefix("\ufeff")


def _has_null(file: Path, text: str, place: int) -> UsageError:
    line = text.count("\n", 0, place) + 1
    return UsageError(f"line {line} of {file} has a null byte", cause="no command can be given one")
