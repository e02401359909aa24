"""The rules of the house that no linter knows: how modules are cut, and what the locks pin."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
MODULES = sorted((CHECKOUT / "kestrelctl").rglob("*.py"))


def name(module: Path) -> str:
    return str(module.relative_to(CHECKOUT))


def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), name(module))


def line_count(module: Path) -> int:
    return len(module.read_text(encoding="utf-8").splitlines())


def pins(lock: str) -> set[str]:
    """Every `name==version ; marker` of a lock file."""
    lines = (CHECKOUT / lock).read_text(encoding="utf-8").splitlines()
    return {line.rstrip(" \\") for line in lines if "==" in line and not line.startswith("#")}


def test_modules_are_small() -> None:
    # An __init__ that holds only its docstring would make the others look smaller than they are.
    assert statistics.median(line_count(m) for m in MODULES if m.name != "__init__.py") <= 150


def test_no_module_is_too_long() -> None:
    assert {name(m): line_count(m) for m in MODULES if line_count(m) > 600} == {}


def test_modules_are_named_after_what_they_hold() -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "misc"}
    parts = {name(module): set(Path(name(module)).with_suffix("").parts) for module in MODULES}
    assert [named for named, found in parts.items() if found & vague] == []


def test_modules_start_with_a_docstring() -> None:
    assert [name(module) for module in MODULES if not ast.get_docstring(parsed(module))] == []


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
