"""A real pool tells what becomes of its workers."""

from __future__ import annotations

import asyncio
import os
import signal

from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.answers import EventPage
from kestrelctl.protocol.requests import ListEvents


async def test_one_that_is_killed_has_failed_and_one_that_is_stopped_leaves() -> None:
    async with throw_away_pool(2) as pool, connect_local(pool) as user:

        async def kinds(*, until: str) -> list[str]:
            while True:
                page = await user.ask(ListEvents())
                assert isinstance(page, EventPage)
                found = [event.kind for event in page.events]
                if until in found and found[-1] == "join":
                    return found
                await asyncio.sleep(0.05)

        assert await kinds(until="join")
        killed, stopped = pool.worker_pids
        os.kill(killed, signal.SIGKILL)
        assert await kinds(until="failed") == ["join", "join", "failed", "join"]
        os.kill(stopped, signal.SIGHUP)
        found = await kinds(until="leave")
        assert found == ["join", "join", "failed", "join", "leave", "join"]
