"""No modules of kestrelctl import one another in a circle, imports for types alone included.

Two modules in a circle cannot be read, tested or moved one without the other. import-linter holds
whole rooms to an order; this looks inside them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]


def imports_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which of the modules each imports, anywhere in it, from the sources by name."""
    found: dict[str, set[str]] = {}
    for module, source in sources.items():
        names: set[str] = set()
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Import(names=aliases):
                    names |= {alias.name for alias in aliases}
                case ast.ImportFrom(module=str(package), names=aliases, level=0):
                    inner = {f"{package}.{alias.name}" for alias in aliases}
                    # What is no module itself is in the module that it is imported from.
                    names |= {each if each in sources else package for each in inner}
        found[module] = names & sources.keys()
    return found


def circle(sources: Mapping[str, str]) -> list[str]:
    """The modules of one circle, each importing the next; none if there is no circle."""
    try:
        TopologicalSorter(imports_of(sources)).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_there_is_no_circle() -> None:
    sources = {}
    for file in (CHECKOUT / "kestrelctl").rglob("*.py"):
        path = file.relative_to(CHECKOUT).with_suffix("")
        parts = path.parts[:-1] if path.name == "__init__" else path.parts
        sources[".".join(parts)] = file.read_text(encoding="utf-8")
    assert circle(sources) == []


def test_a_circle_is_named() -> None:
    sources = {
        "house": "",
        "house.cellar": "def dig():\n    from house import roof",
        "house.roof": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.wall",
        "house.wall": "from house.cellar import dig",
        "house.garden": "from house.wall import climb",
    }
    found = circle(sources)
    assert sorted(set(found)) == ["house.cellar", "house.roof", "house.wall"]
    imports = imports_of(sources)
    assert all(after in imports[before] for before, after in pairwise(found))


def test_what_a_package_offers_is_imported_from_the_package() -> None:
    sources = {"house": "from house.door import knock", "house.door": "from house import bell"}
    assert sorted(set(circle(sources))) == ["house", "house.door"]
