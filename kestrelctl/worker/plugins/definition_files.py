"""The files that define what is read of this machine, and what may be run there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from kestrelctl.core.properties.command_definition import (
    MOST_COMMANDS,
    CommandDefinition,
    read_commands,
)
from kestrelctl.core.properties.definition import (
    MOST_PROPERTIES,
    PropertyDefinition,
    read_definitions,
)
from kestrelctl.defined_in_files import all_defined


def read_all_definitions(files: Iterable[Path]) -> list[PropertyDefinition]:
    """The properties that files define together.

    Raises:
        UsageError: one cannot be read, a property is there twice, or they are too many.
    """
    return list(all_defined(files, read_definitions, MOST_PROPERTIES).values())


def read_all_commands(files: Iterable[Path]) -> Mapping[str, CommandDefinition]:
    """The commands that files define together, by name.

    Raises:
        UsageError: one cannot be read, a command is there twice, or they are too many.
    """
    return all_defined(files, read_commands, MOST_COMMANDS)
