"""A test of the tests: what breaks a promise is found.

Each defect of `defects.toml` is planted into a private copy of the package, and the test that it
names must fail there. It must pass in a copy without a defect.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROW
from planting import LIST, CannotBePlanted, Defect, Found, copy, defects, due, plant, run

#: One for each processor of a small machine.
AT_ONCE = 2


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "defect" in metafunc.fixturenames:
        chosen = defects()
        if metafunc.config.getoption("--planted", default="due") == "due":
            chosen = due(chosen, datetime.date.today().toordinal())
        names = [defect.name.replace(" ", "-") for defect in chosen]
        metafunc.parametrize("defect", chosen, ids=names)


class Field:
    """Where defects are planted: several at once, each in a copy and an interpreter of its own.

    Attributes:
        sound: what came of the tests of each file in a copy without a defect.
        planted: what came of the one test with each defect, by its name.
    """

    def __init__(self, chosen: list[Defect], path: Path) -> None:
        self._path = path
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self.sound: dict[str, Future[Found]] = {}
        self.planted: dict[str, Future[Found]] = {}
        sound = copy(path / "sound")
        for place, defect in enumerate(chosen):
            if defect.file not in self.sound:
                tests = [each.found_by for each in chosen if each.file == defect.file]
                self.sound[defect.file] = self._pool.submit(run, sound, list(dict.fromkeys(tests)))
            self.planted[defect.name] = self._pool.submit(self._try, defect, path / str(place))

    def _try(self, defect: Defect, path: Path) -> Found:
        return run(plant(defect, path), [defect.found_by])

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def field(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Field]:
    params = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = [found.params["defect"] for found in params if found and "defect" in found.params]
    made = Field(chosen, tmp_path_factory.mktemp("field"))
    yield made
    made.close()


def test_it_is_found(defect: Defect, field: Field, record_property: pytest.RecordProperty) -> None:
    found = field.planted[defect.name].result()
    sound = field.sound[defect.file].result()
    assert not sound.broken, f"{defect.file} cannot be run: {sound.broken}"
    assert not sound.failed, f"without a defect fails {sound.failed}"
    assert not found.broken, f"{defect.found_by} says nothing about it: {found.broken}"
    assert found.failed, f"{defect.found_by} passes though {defect.name}"
