"""What is read of a host, and how often: definitions, from the text of an INI file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from kestrelctl.core.ini_sections import ini_sections
from kestrelctl.core.properties.reading import RETURN_TYPES
from kestrelctl.errors import UsageError

#: A worker may have so many properties.
MOST_PROPERTIES = 200
#: A run may take so long, unless the definition says otherwise, or its ticks are fewer.
USUAL_SECONDS = 10.0
LONGEST_TICKS = 86_400.0
_KEYS = ("command", "parameters", "return_type", "ticks", "timeout")
NAME_PATTERN = "[a-z][a-z0-9_]{0,63}"
_NAME = re.compile(NAME_PATTERN)
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, kw_only=True)
class PropertyDefinition:
    """One property: what gives it and how often that is asked.

    Attributes:
        name: of its section.
        words: the command and its parameters, as a shell would part them.
        return_type: one of `RETURN_TYPES`.
        tick_seconds: from one reading to the next.
        timeout_seconds: how long one reading may take.
    """

    name: str
    words: tuple[str, ...]
    return_type: str
    tick_seconds: float
    timeout_seconds: float


def read_definitions(text: str, source: str) -> list[PropertyDefinition]:
    """The properties that a file defines, a section each.

    Args:
        source: what the text is called in messages: the file.

    Raises:
        UsageError: it cannot be read; the message names the file and the section.
    """
    sections = ini_sections(text, source, MOST_PROPERTIES)
    return [_Section(source, name, fields).read() for name, fields in sections.items()]


class _Section:
    def __init__(self, source: str, name: str, fields: Mapping[str, str]) -> None:
        self._source = source
        self._name = name
        self._fields = fields

    def read(self) -> PropertyDefinition:
        if not _NAME.fullmatch(self._name):
            raise self._wrong(
                "this cannot be a property's name", "small letters, digits and _, 64 at most"
            )
        for key in self._fields:
            if key not in _KEYS:
                raise self._wrong(f"{key} is not known", f"one of {', '.join(_KEYS)}")
        command = self._words("command")
        if not command or not command[0]:
            raise self._wrong("command is missing", "the name of what is built in, or a program")
        return_type = self._fields.get("return_type", "").strip()
        if return_type not in RETURN_TYPES:
            raise self._wrong(
                f"return_type is {return_type!r}" if return_type else "return_type is missing",
                f"one of {', '.join(RETURN_TYPES)}",
            )
        ticks = self._seconds("ticks")
        return PropertyDefinition(
            name=self._name,
            words=command + self._words("parameters"),
            return_type=return_type,
            tick_seconds=ticks,
            timeout_seconds=(
                self._seconds("timeout") if "timeout" in self._fields else min(ticks, USUAL_SECONDS)
            ),
        )

    def _words(self, key: str) -> tuple[str, ...]:
        try:
            words = shlex.split(self._fields.get(key, ""))
        except ValueError as error:
            raise self._wrong(f"{key}: {error}", "close each quote") from None
        for word in words:
            if not word.isprintable():
                raise self._wrong(f"{key} has a character that cannot be printed", "remove it")
        return tuple(words)

    def _seconds(self, key: str) -> float:
        text = self._fields.get(key, "").strip()
        seconds = float(text) if _SECONDS.fullmatch(text) else 0.0
        if not 1 <= seconds <= LONGEST_TICKS:
            raise self._wrong(
                f"{key} is {text!r}" if text else f"{key} is missing",
                f"seconds, from 1 to {LONGEST_TICKS:.0f}",
            )
        return seconds

    def _wrong(self, cause: str, hint: str) -> UsageError:
        return UsageError(f"{self._source}: [{self._name}] is wrong", cause=cause, hint=hint)
