"""Images that were built after recipes, and are not used any more."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kestrelctl.core.environments.names import EnvironmentOwner
from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments import container_driver
from kestrelctl.worker.environments.container_driver import ContainerDriver
from kestrelctl.worker.environments.environment_files import UNUSED_SECONDS

USED_AT = time.time() - UNUSED_SECONDS - 1


class Engine:
    """An engine that has an image, or has not, or is away.

    Attributes:
        holds: a container of somebody else's uses the image.
    """

    def __init__(self) -> None:
        self.has_image = True
        self.holds = False
        self.is_away = False

    async def run(self, argv: Sequence[str], *, limit_seconds: float) -> str:
        if self.is_away:
            raise KestrelError("cannot connect to the engine")
        if "rmi" in argv:
            if self.holds or not self.has_image:
                raise KestrelError("it is used, or there is none")
            self.has_image = False
        elif "inspect" in argv and not self.has_image:
            raise KestrelError("no such image")
        return ""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    found = Engine()
    monkeypatch.setattr(container_driver, "run_tool", found.run)
    return found


@pytest.fixture
def note(tmp_path: Path) -> Path:
    """Says that the image was built here, and when it was used."""
    made = tmp_path / "prepared" / "digest"
    made.parent.mkdir()
    made.touch()
    os.utime(made, (USED_AT, USED_AT))
    return made


@pytest.fixture
def driver(tmp_path: Path) -> ContainerDriver:
    return ContainerDriver("docker", tmp_path, EnvironmentOwner("pool", "w"))


async def test_an_image_that_was_not_used_for_long_goes(
    engine: Engine, note: Path, driver: ContainerDriver
) -> None:
    assert await driver.collect(()) == ["digest"]
    assert not engine.has_image
    assert not note.exists()


async def test_one_that_is_used_elsewhere_goes_later(
    engine: Engine, note: Path, driver: ContainerDriver
) -> None:
    engine.holds = True
    assert await driver.collect(()) == []
    engine.holds = False
    assert await driver.collect(()) == ["digest"]


async def test_one_that_an_engine_has_which_is_away_goes_later(
    engine: Engine, note: Path, driver: ContainerDriver
) -> None:
    engine.is_away = True
    with pytest.raises(KestrelError, match="cannot connect"):
        await driver.collect(())
    engine.is_away = False
    assert await driver.collect(()) == ["digest"]


async def test_of_one_that_somebody_has_removed_nothing_is_kept(
    engine: Engine, note: Path, driver: ContainerDriver
) -> None:
    engine.has_image = False
    assert await driver.collect(()) == ["digest"]
    assert not note.exists()
