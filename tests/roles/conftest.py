"""Load the Python of a role, which is in no package."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROLES = Path(__file__).parents[2] / "roles"


@pytest.fixture(scope="session")
def roles() -> Path:
    """The directory of all roles."""
    return ROLES


@pytest.fixture(scope="session")
def load() -> Callable[[str], ModuleType]:
    """Return a function from a path below `roles`, without `.py`, to the module there."""

    def load_module(path: str) -> ModuleType:
        name = "role_" + path.replace("/", "_")
        if name not in sys.modules:
            specification = importlib.util.spec_from_file_location(name, ROLES / f"{path}.py")
            assert specification is not None
            assert specification.loader is not None
            module = importlib.util.module_from_spec(specification)
            sys.modules[name] = module
            specification.loader.exec_module(module)
        return sys.modules[name]

    return load_module
