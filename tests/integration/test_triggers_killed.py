"""The manager of a real pool is killed, and its triggers go on as if it had not been."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil

from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.triggers import FiredList, FiredView, ListFired, TriggerTest, TryTrigger
from kestrelctl.xmpp.user import UserConnection

TRIGGERS = """
[beat]
expr = len(workers) == 1
cmd = query()
ticks = 1

[rests]
expr = len(workers) == 1
cmd = resume(workers)
ticks = 1
cooldown = 3600
"""


async def fired(admin: UserConnection, name: str) -> list[FiredView]:
    found = await admin.ask(ListFired(name=name))
    return found.fired if isinstance(found, FiredList) else []


async def test_what_rests_goes_on_resting_and_what_was_recorded_is_there(
    tmp_path: Path,
) -> None:
    file = tmp_path / "triggers.ini"
    file.write_text(TRIGGERS)
    async with (
        throw_away_pool(1, triggers=(file,)) as pool,
        connect_local(pool, admin=True) as admin,
    ):
        async with asyncio.timeout(60):
            while not await fired(admin, "rests"):
                await asyncio.sleep(0.1)
            before = len(await fired(admin, "beat"))
            os.kill(pool.manager_pid, signal.SIGKILL)
            while psutil.pid_exists(pool.manager_pid):
                await asyncio.sleep(0.05)
            while len(await fired(admin, "beat")) < before + 3:
                await asyncio.sleep(0.1)
        assert len(await fired(admin, "rests")) == 1
        tested = await admin.ask(TryTrigger(name="beat"))
        assert isinstance(tested, TriggerTest)
        assert tested.recorded == 2, "a moment of each manager"
