"""The rules of the house that no linter knows: how modules are cut, and what the locks pin."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
MODULES = sorted((CHECKOUT / "kestrelctl").rglob("*.py"))
NAMES = [str(module.relative_to(CHECKOUT)) for module in MODULES]


def line_count(module: Path) -> int:
    return len(module.read_text(encoding="utf-8").splitlines())


def pins(lock: str) -> set[str]:
    """Every `name==version ; marker` of a lock file."""
    lines = (CHECKOUT / lock).read_text(encoding="utf-8").splitlines()
    return {line.rstrip(" \\") for line in lines if "==" in line and not line.startswith("#")}


def test_modules_are_small() -> None:
    # An __init__ that holds only its docstring would make the others look smaller than they are.
    assert statistics.median(line_count(m) for m in MODULES if m.name != "__init__.py") <= 150


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_module_is_not_too_long(module: Path) -> None:
    assert line_count(module) <= 600


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_module_is_named_after_what_it_holds(module: Path) -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "misc"}
    assert not vague & set(module.relative_to(CHECKOUT).with_suffix("").parts)


@pytest.mark.parametrize("module", MODULES, ids=NAMES)
def test_module_starts_with_a_docstring(module: Path) -> None:
    assert ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))


DEPLOYED = ["requirements-run.lock", "requirements-manager.lock", "requirements-worker.lock"]


@pytest.mark.parametrize("lock", DEPLOYED)
def test_what_runs_is_what_was_tested(lock: str) -> None:
    assert pins(lock)
    assert pins(lock) < pins("requirements.lock")


def test_a_manager_can_be_a_worker_too() -> None:
    assert pins("requirements-worker.lock") < pins("requirements-manager.lock")


@pytest.mark.parametrize("lock", ["requirements.lock", *DEPLOYED])
def test_lock_names_no_place_to_download_from(lock: str) -> None:
    text = (CHECKOUT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert "\n--" not in text  # as --index-url and --find-links would be
