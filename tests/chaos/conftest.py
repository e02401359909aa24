"""Pools to be broken."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from brokenpool import BrokenPool

from kestrelctl.local.control import throw_away_pool


@pytest.fixture
def broken_pool(
    tmp_path: Path,
) -> Callable[[int], contextlib.AbstractAsyncContextManager[BrokenPool]]:
    """Starts a pool with so many workers, spread over one process per processor."""

    @contextlib.asynccontextmanager
    async def start(workers: int) -> AsyncIterator[BrokenPool]:
        async with throw_away_pool(workers) as state:
            yield BrokenPool(state, tmp_path / "witness")

    return start
