"""Commands that may be run on a worker's machine: definitions, from the text of an INI file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from kestrelctl.core.ini_sections import IniSection, ini_sections
from kestrelctl.core.properties.reading import RETURN_TYPES, PropertyValue, read_printed
from kestrelctl.errors import UsageError

#: The most commands that a worker may offer, and the most parameters of each.
MOST_COMMANDS = 100
MOST_PARAMETERS = 20
USUAL_SECONDS = 30.0
LONGEST_SECONDS = 600.0
NAME_PATTERN = "[a-z][a-z0-9_-]{0,63}"
_KEYS = ("command", "parameters", "return_type", "timeout")
_NAME = re.compile(NAME_PATTERN)
_PARAMETER = re.compile(r"([a-z][a-z0-9_]{0,31}):([a-z]+)")
_FIELD = re.compile(r"\{([a-z][a-z0-9_]{0,31})\}")

#: (name, type) of each parameter, in order.
Parameters: TypeAlias = tuple[tuple[str, str], ...]


class CommandDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A command that may be run.

    Attributes:
        words: program and arguments; `{name}` in one stands for the value of a parameter.
        return_type: of what it prints, one of `RETURN_TYPES`; empty if that does not matter.
    """

    name: str
    words: tuple[str, ...]
    parameters: Parameters = ()
    return_type: str = ""
    timeout_seconds: float = USUAL_SECONDS

    def filled(self, values: Mapping[str, PropertyValue]) -> tuple[str, ...]:
        """The words to run.

        Raises:
            UsageError: these are not the values that it takes.
        """
        must_fit(self.name, self.parameters, values)

        def text_of(match: re.Match[str]) -> str:
            value = values[match[1]]
            return str(value).lower() if isinstance(value, bool) else str(value)

        found = tuple(_FIELD.sub(text_of, word) for word in self.words)
        for word, before in zip(found, self.words, strict=True):
            if word.startswith("-") and not before.startswith("-") and not _is_number(word):
                raise UsageError(
                    f"the command {self.name} does not take {word[:80]!r}",
                    cause="a program would read it as an option",
                )
        return found


def _is_number(word: str) -> bool:
    return read_printed(word.encode(), "float", 0.0).value is not None


def must_fit(command: str, parameters: Parameters, values: Mapping[str, PropertyValue]) -> None:
    """Refuses values that do not fit a command.

    Raises:
        UsageError: one is missing, too many, or of another type.
    """
    known = dict(parameters)
    for name in values.keys() - known.keys():
        raise UsageError(
            f"the command {command} takes no {name[:80]}", hint=_takes(command, parameters)
        )
    for name, kind in known.items():
        if name not in values:
            raise UsageError(f"{name} is missing", hint=_takes(command, parameters))
        value = values[name]
        if type(value).__name__ != kind:
            raise UsageError(f"{name} must be of type {kind}", hint=_takes(command, parameters))
        if isinstance(value, str) and read_printed(value.encode(), "str", 0.0).value != value:
            raise UsageError(f"{name} cannot be {value[:80]!r}", cause="one line, 1,024 bytes")


def values_of(
    command: str, parameters: Parameters, texts: Mapping[str, str]
) -> dict[str, PropertyValue]:
    """The values that texts stand for.

    Raises:
        UsageError: they are not what the command takes.
    """
    known = dict(parameters)
    found: dict[str, PropertyValue] = {}
    for name, text in texts.items():
        kind = known.get(name)
        if kind is None:
            hint = _takes(command, parameters)
            raise UsageError(f"the command {command} takes no {name[:80]}", hint=hint)
        reading = read_printed(text.encode(), kind, 0.0)
        if reading.value is None:
            raise UsageError(f"{name} cannot be {text[:80]!r}", cause=reading.missing)
        found[name] = reading.value
    must_fit(command, parameters, found)
    return found


def _takes(command: str, parameters: Parameters) -> str:
    words = " ".join(f"{name}={kind.upper()}" for name, kind in parameters)
    return f"{command} takes {words or 'nothing'}"


def read_commands(text: str, source: str) -> list[CommandDefinition]:
    """The commands that a file defines, a section each.

    Args:
        source: what the text is called in messages: the file.

    Raises:
        UsageError: it cannot be read; the message names the file and the section.
    """
    return [each.made(_command) for each in ini_sections(text, source, MOST_COMMANDS)]


def _command(section: IniSection) -> CommandDefinition:
    if not _NAME.fullmatch(section.name):
        raise section.wrong(
            "this cannot be the name of a command", "small letters, digits, - and _, up to 64"
        )
    section.only(_KEYS)
    words = section.words("command")
    if not words or not words[0].startswith("/") or _FIELD.search(words[0]):
        raise section.wrong(
            "command does not say where the program is", "command = /usr/bin/touch {file}"
        )
    parameters = _parameters(section.text("parameters"))
    for word in words:
        for field in _FIELD.findall(word):
            if field not in dict(parameters):
                raise section.wrong(f"{{{field}}} is no parameter", f"parameters = {field}:str")
    return CommandDefinition(
        name=section.name,
        words=words,
        parameters=parameters,
        return_type=section.one_of("return_type", ("", *RETURN_TYPES)),
        timeout_seconds=section.seconds("timeout", 1.0, LONGEST_SECONDS, USUAL_SECONDS),
    )


def _parameters(text: str) -> Parameters:
    found: dict[str, str] = {}
    for word in text.split():
        match = _PARAMETER.fullmatch(word)
        if match is None or match[2] not in RETURN_TYPES or match[1] in found:
            raise UsageError(
                f"parameters: {word[:80]!r} is no parameter",
                hint=f"write NAME:TYPE, each once; types are {', '.join(RETURN_TYPES)}",
            )
        found[match[1]] = match[2]
    if len(found) > MOST_PARAMETERS:
        raise UsageError(f"{len(found)} parameters", cause=f"a command has {MOST_PARAMETERS}")
    return tuple(found.items())
