"""Tests of the process that makes environments: whatever happens there, the worker hears of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kestrelctl.errors import KestrelError
from kestrelctl.worker.environments.driver_process import DistantDriver, DriverProcess
from kestrelctl.worker.environments.environment_driver import EnvironmentDriver
from kestrelctl.worker.environments.maker import DriverCall, answer


@contextmanager
def drivers_below(root: Path) -> Iterator[DriverProcess]:
    """A process of drivers, which is waited for at the end."""
    process = DriverProcess(root, "pool", "w")
    yield process
    process.close()
    os.wait()


async def test_a_driver_that_cannot_be_made_here_says_why(tmp_path: Path) -> None:
    """Mounts cannot name a directory with a comma; a worker waited for ever for an answer."""
    with drivers_below(tmp_path / "a,b") as process:
        async with asyncio.timeout(20):
            with pytest.raises(KestrelError, match="environments cannot be kept") as failed:
                await DistantDriver("chroot", process).sweep()
    assert failed.value.cause == "its path has a colon or a comma"


async def test_whatever_fails_in_a_driver_is_answered(tmp_path: Path) -> None:
    with drivers_below(tmp_path) as process:
        async with asyncio.timeout(20):
            with pytest.raises(KestrelError, match="the driver failed"):
                await process.ask(DriverCall(0, "chroot", "prepare"))  # without a class


async def test_a_failure_that_nobody_has_foreseen_is_an_answer() -> None:
    def cannot_be_made(kind: str) -> EnvironmentDriver:
        raise ValueError(f"{kind}: odd")

    found = await answer(DriverCall(7, "chroot", "prepare"), cannot_be_made)
    assert (found.number, found.error) == (7, "the driver failed")
    assert "odd" in found.cause
