"""The files that define what is read of this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kestrelctl.errors import UsageError
from kestrelctl.properties.property_definition import (
    MOST_PROPERTIES,
    PropertyDefinition,
    read_definitions,
)


def read_all_definitions(files: Iterable[Path]) -> list[PropertyDefinition]:
    """The properties that files define together.

    Raises:
        UsageError: one cannot be read, a property is there twice, or they are too many.
    """
    found: dict[str, PropertyDefinition] = {}
    for file in files:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read", cause=str(error)) from None
        for each in read_definitions(text, str(file)):
            if each.name in found:
                raise UsageError(
                    f"the property {each.name} is defined twice", cause=f"again in {file}"
                )
            found[each.name] = each
    if len(found) > MOST_PROPERTIES:
        raise UsageError(
            f"{len(found)} properties are defined", cause=f"a worker may have {MOST_PROPERTIES}"
        )
    return list(found.values())
