"""Properties that are read of a host, and how often: definitions, from the text of an INI file."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kestrelctl.core.ini_sections import IniSection, ini_sections
from kestrelctl.core.properties.reading import RETURN_TYPES

#: The most properties that a worker may have.
MOST_PROPERTIES = 200
#: How long a run may take, unless the definition says otherwise, or its ticks are fewer.
USUAL_SECONDS = 10.0
LONGEST_TICKS = 86_400.0
_KEYS = ("command", "parameters", "return_type", "ticks", "timeout")
NAME_PATTERN = "[a-z][a-z0-9_]{0,63}"
_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True, kw_only=True)
class PropertyDefinition:
    """One property: the command that gives it, and how often that is asked.

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
    return [each.made(_property) for each in ini_sections(text, source, MOST_PROPERTIES)]


def _property(section: IniSection) -> PropertyDefinition:
    if not _NAME.fullmatch(section.name):
        raise section.wrong(
            "this cannot be a property's name", "small letters, digits and _, 64 at most"
        )
    section.only(_KEYS)
    command = section.words("command")
    if not command or not command[0]:
        raise section.wrong("command is missing", "the name of what is built in, or a program")
    ticks = section.seconds("ticks", 1.0, LONGEST_TICKS)
    usual = min(ticks, USUAL_SECONDS)
    return PropertyDefinition(
        name=section.name,
        words=command + section.words("parameters"),
        return_type=section.one_of("return_type", RETURN_TYPES),
        tick_seconds=ticks,
        timeout_seconds=section.seconds("timeout", 1.0, LONGEST_TICKS, usual),
    )
