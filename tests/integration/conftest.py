"""What several integration tests stand on: a real XMPP server, and a real pool."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from daemons import Spawn, spawning
from page_desk import Desk
from servers import running

from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts `kestrelctl …` and ends what is left of it."""
    with spawning() as start:
        yield start


@pytest.fixture
async def private_server(tmp_path: Path) -> AsyncIterator[PrivateServer]:
    """A started server without accounts."""
    async with running(PrivateServer.create(tmp_path / "xmpp")) as server:
        yield server


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A desk whose pool goes in the end."""
    found = Desk(tmp_path)
    yield found
    found.types("kestrelctl down --delete --yes")


@pytest.fixture(scope="module")
def local_pool() -> Iterator[PoolState]:
    """A pool with two workers, shared by the tests of a module."""
    with asyncio.Runner() as runner:
        pool = throw_away_pool(2)
        yield runner.run(pool.__aenter__())
        runner.run(pool.__aexit__(None, None, None))


@pytest.fixture
async def user(local_pool: PoolState) -> AsyncIterator[UserConnection]:
    """The shared pool's user."""
    async with connect_local(local_pool) as connection:
        yield connection


@pytest.fixture
async def admin(local_pool: PoolState) -> AsyncIterator[UserConnection]:
    """The shared pool's admin."""
    async with connect_local(local_pool, admin=True) as connection:
        yield connection
