"""What an account sends too fast, over all of its sessions, is read later."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from contextlib import AsyncExitStack

from puppet import Puppet

from kestrelctl.local.pool_state import PoolState

#: Stanzas that a user's account may send at once after a rest.
BURST = 200
SESSIONS = 4


def pauses(pool: PoolState) -> int:
    """How often the server has put off reading, as its metrics say."""
    with urllib.request.urlopen(pool.server_metrics, timeout=10) as answer:
        page = answer.read().decode()
    return sum(int(float(n)) for n in re.findall(r"^prosody\S*paused_total\S* (\S+)$", page, re.M))


async def send(pool: PoolState, user: str, each: int, bursts: int) -> None:
    """Some sessions of an account say that they are there, so often each, in so many bursts."""
    async with AsyncExitStack() as stack:
        sessions = [
            await stack.enter_async_context(Puppet(pool, user, "users")) for _ in range(SESSIONS)
        ]
        for _ in range(bursts):
            for session in sessions:
                stream = session.session._stream
                assert stream is not None
                stream.write(f"<presence to='pool@{pool.domain}'/>" * each)
            await asyncio.sleep(0)
        for session in sessions:  # what was sent before has been read when this comes back
            session.session.send('{"type": "pool_status", "id": "1"}', f"jobs@{pool.domain}")
        for session in sessions:  # a manager that stood still has read it, too, and is busy
            answer = await session.answer(30)
            assert answer["type"] == "pool" or answer["code"] == "busy"


async def test_stanzas_count_over_all_sessions_of_an_account(local_pool: PoolState) -> None:
    before = await asyncio.to_thread(pauses, local_pool)
    await send(local_pool, "slow", BURST // SESSIONS // 4, 1)
    assert await asyncio.to_thread(pauses, local_pool) == before
    await send(local_pool, "fast", BURST // SESSIONS, 3)
    assert await asyncio.to_thread(pauses, local_pool) > before
