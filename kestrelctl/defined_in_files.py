"""Reads definitions that an operator spreads over several files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from kestrelctl.errors import UsageError, why


class HasName(Protocol):
    """Anything that is defined under a name."""

    @property
    def name(self) -> str:
        """The name, used only once in all files."""
        ...


D = TypeVar("D", bound=HasName)


def all_defined(
    files: Iterable[Path], read: Callable[[str, str], Sequence[D]], most: int
) -> dict[str, D]:
    """Reads all that files define, by name.

    Args:
        read: returns what a text defines; its second argument names the text in messages.
        most: the largest number of definitions.

    Raises:
        UsageError: a file cannot be read, a name is defined twice, or there are too many.
    """
    found: dict[str, D] = {}
    for file in files:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read", cause=why(error)) from None
        for each in read(text, str(file)):
            if each.name in found:
                raise UsageError(f"{each.name} is defined twice", cause=f"again in {file}")
            found[each.name] = each
    if len(found) > most:
        raise UsageError(f"{len(found):,} are defined", cause=f"there may be {most:,}")
    return found
