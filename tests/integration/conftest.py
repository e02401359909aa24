"""What several integration tests stand on: a real XMPP server of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kestrelctl.xmpp.prosody import PrivateServer


@asynccontextmanager
async def running(server: PrivateServer) -> AsyncIterator[PrivateServer]:
    """Run the server as a child process for as long as the context lasts."""
    process = await asyncio.create_subprocess_exec(*server.command())
    try:
        await server.wait_ready()
        yield server
    finally:
        process.terminate()
        await process.wait()


@pytest.fixture
async def private_server(tmp_path: Path) -> AsyncIterator[PrivateServer]:
    """A started server without accounts."""
    async with running(PrivateServer.create(tmp_path / "xmpp")) as server:
        yield server
