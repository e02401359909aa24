"""docs/architecture.md names the rooms and places that the code has."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "kestrelctl"
PAGE = (CHECKOUT / "docs" / "architecture.md").read_text()


def section(heading: str) -> str:
    return PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def first_cells(rows: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)


ROOMS = first_cells(section("Rooms"))
#: The table's right column; each place is `path` or `path:name`.
PLACES = re.findall(
    r"`([a-z_/]+/[a-z_]+(?:\.py)?)(?::(\w+))?`",
    section("Where it is decided").partition("|---|")[2],
)


def floors() -> list[list[str]]:
    """The rooms of each floor, from the top, as the import contract has them."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    contracts = project["tool"]["importlinter"]["contracts"]
    [layers] = [each["layers"] for each in contracts if each.get("containers") == [PACKAGE.name]]
    return [floor.split(" | ") for floor in layers]


def test_the_rooms_are_in_the_order_of_the_import_contract() -> None:
    assert [room for floor in floors() for room in floor] == ROOMS


def test_every_room_of_the_package_is_named_once() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert sorted(ROOMS) == sorted(packages | modules)


def test_every_question_has_a_place() -> None:
    rows = re.findall(r"^\| ([^|]*\?) \| (.*) \|$", section("Where it is decided"), re.MULTILINE)
    assert len(rows) > 20
    assert [question for question, place in rows if "`core/" not in place] == []


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_every_place_is_there_and_defines_what_is_named(path: str, name: str) -> None:
    place = PACKAGE / path
    assert place.exists()
    if name:
        assert name in defined(place)


def defined(module: Path) -> set[str]:
    """The classes, functions and constants of a module."""
    names: set[str] = set()
    for each in ast.parse(module.read_text()).body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(each.name)
        targets = each.targets if isinstance(each, ast.Assign) else []
        targets = [each.target] if isinstance(each, ast.AnnAssign) else targets
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names
