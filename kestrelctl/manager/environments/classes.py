"""Reads the classes of environments that a manager is given, and their recipes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kestrelctl.core.environments.class_files import read_classes
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.errors import UsageError, why
from kestrelctl.grammar.quantities import parse_capacity
from kestrelctl.protocol.workers import MOST_RECIPE_CHARACTERS


def read_all_classes(
    files: Iterable[Path],
) -> tuple[dict[str, EnvironmentClass], dict[str, str]]:
    """Reads all classes of some files, and the recipe of each class that has one.

    Raises:
        UsageError: a file cannot be read, something in it is wrong, or two classes have one name.
    """
    classes: dict[str, EnvironmentClass] = {}
    recipes: dict[str, str] = {}
    for file in files:
        for name, found in read_classes(_text(file), str(file.absolute()), parse_capacity).items():
            if name in classes:
                raise UsageError(f"there are two environment classes {name}", cause=str(file))
            classes[name] = found
            if found.recipe:
                whose = f"environment {name}: "
                recipes[name] = _text(Path(found.recipe), MOST_RECIPE_CHARACTERS + 1, whose)
                if len(recipes[name]) > MOST_RECIPE_CHARACTERS:
                    raise UsageError(
                        f"the recipe {found.recipe} is too long",
                        cause=f"it has more than {MOST_RECIPE_CHARACTERS:,} characters",
                    )
    return classes, recipes


def _text(file: Path, most: int = -1, whose: str = "") -> str:
    try:
        with file.open() as reading:
            return reading.read(most)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{whose}{file} cannot be read", cause=why(error)) from None
