"""How long a local pool may take to start: as long as workers keep coming."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kestrelctl.errors import KestrelError
from kestrelctl.local import control
from kestrelctl.local.control import START_SECONDS

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
