"""Load the Python of a role, which is in no package; play scenarios while other tests run."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from scenarios import Scenarios

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


#: The scenarios that are being played, if the run has any.
PLAYING = pytest.StashKey[Scenarios]()


def wanted(session: pytest.Session) -> list[str]:
    """The scenarios that the tests of this run ask for."""
    return [
        item.callspec.params["scenario"]
        for item in session.items
        if isinstance(item, pytest.Function) and "scenarios" in item.fixturenames
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Begins with the scenarios before the first test: they run beside those that compute."""
    names = wanted(session)
    if not names or session.config.option.collectonly or "PYTEST_XDIST_WORKER" in os.environ:
        return (yield)
    playing = session.config.stash[PLAYING] = Scenarios(names)
    try:
        return (yield)
    finally:
        playing.close()


@pytest.fixture
def scenarios(request: pytest.FixtureRequest, scenario: str) -> Iterator[Scenarios]:
    """The scenarios that are being played; under pytest-xdist, only that of the test."""
    playing = request.config.stash.get(PLAYING, None)
    if playing is not None:
        yield playing
        return
    alone = Scenarios([scenario])
    yield alone
    alone.close()
