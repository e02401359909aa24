"""What several files of an operator define together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from kestrelctl.errors import UsageError, why


class HasName(Protocol):
    """Anything that is defined under a name."""

    @property
    def name(self) -> str:
        """Its own, in all files."""
        ...


D = TypeVar("D", bound=HasName)


def all_defined(
    files: Iterable[Path], read: Callable[[str, str], Sequence[D]], most: int
) -> dict[str, D]:
    """What files define, by name.

    Args:
        read: what one text defines, given what it is called in messages.
        most: so many may be defined together.

    Raises:
        UsageError: one cannot be read, something is there twice, or it is too much.
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
