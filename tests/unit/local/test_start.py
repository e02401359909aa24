"""How long a local pool may take to start, and what one that was thrown away leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kestrelctl.errors import KestrelError
from kestrelctl.local import control
from kestrelctl.local.control import START_SECONDS, throw_away_pool

WANTED = 917


class Starting:
    """A pool in which one more part of the workers is there at each look, on a clock set by hand.

    Args:
        step_seconds: from one look to the next.
        join: workers that come in this time.
        most: so many, and then no more.
    """

    def __init__(self, step_seconds: float, join: int, most: int = WANTED) -> None:
        self.now = 0.0
        self.idle = 0
        self.step_seconds, self.join, self.most = step_seconds, join, most

    async def ask(self, *_: object, **__: object) -> Any:
        self.now += self.step_seconds
        self.idle = min(self.most, self.idle + self.join)
        return SimpleNamespace(workers={"idle": self.idle})

    async def ready(self, monkeypatch: pytest.MonkeyPatch) -> object:
        @contextlib.asynccontextmanager
        async def connect(_: object) -> AsyncIterator[Starting]:
            yield self

        monkeypatch.setattr(control, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(control, "connect_local", connect)
        monkeypatch.setattr(control, "PoolSummary", SimpleNamespace)
        monkeypatch.setattr(control, "read_state", lambda _: "state")
        monkeypatch.setattr(control, "POLL_SECONDS", 0.0)
        process = SimpleNamespace(poll=lambda: None, terminate=lambda: None)
        return await control._ready(cast("Any", process), Path("/nowhere"), WANTED)


async def test_a_pool_may_start_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting(step_seconds=0.9 * START_SECONDS, join=100)
    assert await starting.ready(monkeypatch) == "state"
    assert starting.now > 5 * START_SECONDS


async def test_a_pool_that_gets_no_further_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting(step_seconds=5.0, join=100, most=WANTED - 1)
    with pytest.raises(KestrelError, match="the pool did not come up"):
        await starting.ready(monkeypatch)
    assert starting.now == pytest.approx(10 * 5.0 + START_SECONDS, abs=5.0)


async def test_who_does_not_wait_for_the_end_of_a_pool_leaves_no_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A bench may be ended while a pool of it ends."""
    is_ending = asyncio.Event()
    process = SimpleNamespace(
        poll=lambda: None, terminate=is_ending.set, send_signal=lambda _: None
    )

    async def ready(*_: object) -> str:
        return "state"

    monkeypatch.setattr(control, "find_prosody", lambda: None)
    monkeypatch.setattr(control, "_start", lambda *_, **__: process)
    monkeypatch.setattr(control, "_ready", ready)
    directory = tmp_path / "pool"
    directory.mkdir()

    async def use() -> None:
        async with throw_away_pool(1, directory=directory):
            pass

    using = asyncio.ensure_future(use())
    await is_ending.wait()
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert not directory.exists()
