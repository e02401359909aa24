"""Rules of the house that no linter knows: how modules are cut and named, what the locks pin."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
MODULES = sorted((CHECKOUT / "kestrelctl").rglob("*.py"))


def name(module: Path) -> str:
    return str(module.relative_to(CHECKOUT))


@cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), name(module))


def pins(lock: str) -> set[str]:
    """Every `name==version` of a lock file, wherever it is for: what one lock has for some versions
    of Python only, another may have for all."""
    lines = (CHECKOUT / lock).read_text(encoding="utf-8").splitlines()
    found = [line for line in lines if "==" in line and not line.startswith("#")]
    return {line.partition(";")[0].rstrip(" \\") for line in found}


def test_modules_are_named_after_what_they_hold() -> None:
    vague = {"util", "utils", "helper", "helpers", "common", "misc"}
    parts = {name(module): set(Path(name(module)).with_suffix("").parts) for module in MODULES}
    assert [named for named, found in parts.items() if found & vague] == []


def shared(named: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that several modules have, or have something of, with these modules."""
    modules: dict[str, list[str]] = {}
    for each, module in named:
        modules.setdefault(each, []).append(name(module))
    return {each: found for each, found in modules.items() if len(found) > 1}


CARRIED = "the message of protocol.work that carries the effect or event of the core"
#: Names of classes that several modules share, and why they may.
SHARED_CLASS_NAMES = {
    "Kill": CARRIED,
    "Leaving": CARRIED,
    "Recall": CARRIED,
    "TakeCheckpoints": CARRIED,
    "Resized": CARRIED,
    "Returned": CARRIED,
    "Staged": CARRIED,
    "Run": CARRIED,
    "SetHeartbeat": CARRIED,
    "Welcome": CARRIED,
}


def test_no_two_public_classes_have_one_name() -> None:
    found = shared(
        (node.name, module)
        for module in MODULES
        for node in parsed(module).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {each: twins for each, twins in found.items() if each not in SHARED_CLASS_NAMES} == {}
    assert found.keys() == SHARED_CLASS_NAMES.keys(), "an exception that nobody needs any more"


def test_only_the_core_and_the_simulated_world_look_into_a_pools_state() -> None:
    """Shells ask the pool: what its answers rest on may change without them."""

    def looks_in(node: ast.AST) -> bool:
        if not isinstance(node, ast.Attribute) or node.attr != "state":
            return False
        owner = node.value
        called = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
        return called.lstrip("_") == "pool"

    shells = [m for m in MODULES if not {"core", "simulate"} & set(Path(name(m)).parts)]
    found = [
        f"{name(module)}:{node.lineno}"
        for module in shells
        for node in ast.walk(parsed(module))
        if looks_in(node)
    ]
    assert found == []


def test_modules_start_with_a_docstring() -> None:
    assert [name(module) for module in MODULES if not ast.get_docstring(parsed(module))] == []


DEPLOYED = [
    "requirements-run.lock",
    "requirements-manager.lock",
    "requirements-worker.lock",
    "requirements-worker-s3.lock",
]


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
