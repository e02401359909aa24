"""The jobs of one account stay within their limit in a real pool, also after `kill -9`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError, OverQuota
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

JOB = JobSpec(program=Program(argv=("true", *["ab"] * 10_000)), held=True)
LIMIT_BYTES = 5 * encoded_bytes(JOB) + 100


async def submit_all(user: UserConnection, jobs: int) -> int:
    """How many of so many jobs are taken."""
    taken = 0
    for _ in range(jobs):
        with contextlib.suppress(OverQuota):
            await user.ask(rq.SubmitJob(spec=JOB))
            taken += 1
    return taken


async def line_of(user: UserConnection) -> an.UserLine:
    """What `user usage` tells an account of itself."""
    found = await user.ask(rq.UserUsage(since=0.0))
    assert isinstance(found, an.UsedByUsers)
    (line,) = found.users
    return line


async def kill_manager(pool: PoolState, user: UserConnection) -> None:
    """Returns when the next manager answers."""
    state = read_state(Path(pool.password_file).parent)
    assert state is not None
    os.kill(state.manager_pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while True:
            again = read_state(Path(pool.password_file).parent)
            if again is not None and again.manager_pid != state.manager_pid:
                with contextlib.suppress(KestrelError):
                    await user.ask(rq.PoolStatus(), timeout_seconds=2.0)
                    return
            await asyncio.sleep(0.1)


@pytest.mark.timeout(120)
async def test_an_account_has_only_so_much_in_the_queue_also_after_a_killed_manager() -> None:
    async with (
        throw_away_pool(1) as pool,
        connect_local(pool) as user,
        connect_local(pool, admin=True) as admin,
    ):
        await admin.ask(rq.ChangeUser(user=pool.user, max_queued_bytes=LIMIT_BYTES))
        assert await submit_all(user, 20) == 5
        line = await line_of(user)
        assert (line.queued_bytes, line.max_queued_bytes) == (
            5 * encoded_bytes(JOB),
            LIMIT_BYTES,
        )

        await kill_manager(pool, user)
        assert await line_of(user) == line
        with pytest.raises(OverQuota) as refused:
            await user.ask(rq.SubmitJob(spec=JOB))
        assert refused.value.cause is not None
        assert f"may have {LIMIT_BYTES:,}" in refused.value.cause
        assert "--max-queued-size" in (refused.value.hint or "")

        await user.ask(rq.CancelJobs(jobs="1-2"))
        assert await submit_all(user, 5) == 2
        assert await submit_all(admin, 1) == 1, "others have room of their own"
