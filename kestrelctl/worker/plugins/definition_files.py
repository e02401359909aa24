"""The files that define what is read of this machine, and what may be run there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from kestrelctl.commands.command_definition import (
    MOST_COMMANDS,
    CommandDefinition,
    read_commands,
)
from kestrelctl.errors import UsageError
from kestrelctl.properties.property_definition import (
    MOST_PROPERTIES,
    PropertyDefinition,
    read_definitions,
)

D = TypeVar("D", PropertyDefinition, CommandDefinition)


def read_all_definitions(files: Iterable[Path]) -> list[PropertyDefinition]:
    """The properties that files define together.

    Raises:
        UsageError: one cannot be read, a property is there twice, or they are too many.
    """
    return list(_read_all(files, read_definitions, MOST_PROPERTIES).values())


def read_all_commands(files: Iterable[Path]) -> Mapping[str, CommandDefinition]:
    """The commands that files define together, by name.

    Raises:
        UsageError: one cannot be read, a command is there twice, or they are too many.
    """
    return _read_all(files, read_commands, MOST_COMMANDS)


def _read_all(
    files: Iterable[Path], read: Callable[[str, str], Sequence[D]], most: int
) -> dict[str, D]:
    found: dict[str, D] = {}
    for file in files:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read", cause=str(error)) from None
        for each in read(text, str(file)):
            if each.name in found:
                raise UsageError(f"{each.name} is defined twice", cause=f"again in {file}")
            found[each.name] = each
    if len(found) > most:
        raise UsageError(f"{len(found)} are defined", cause=f"a worker may have {most}")
    return found
