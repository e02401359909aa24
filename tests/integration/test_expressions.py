"""Expressions that HTCondor's library gives no value for, on a real pool."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from daemons import Spawn
from jobkit import job_spec
from test_daemons import joined, worker_words

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import UsageError
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection


@pytest.mark.parametrize("name", ["requirements", "rank"])
async def test_what_has_no_value_at_a_worker_holds_its_job_and_nobody_else(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path, name: str
) -> None:
    worker = spawn(*worker_words(local_pool, tmp_path, "south"), "--attribute", "site=München")
    await joined(user, "south")
    with pytest.raises(UsageError, match="no UTF-8"):
        await user.ask(rq.SubmitJob(spec=job_spec(**{name: r'"\303"'})))
    spec = job_spec(requires=("south",), **{name: "substr(Site, 0, 2)"})
    bad = await user.ask(rq.SubmitJob(spec=spec))
    other = await user.ask(
        rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)), requires=("south",)))
    )
    assert isinstance(bad, an.Submitted)
    assert isinstance(other, an.Submitted)
    async with asyncio.timeout(15):
        while True:
            page = await user.ask(rq.ListJobs(jobs=f"{bad.job_id},{other.job_id}"))
            assert isinstance(page, an.Jobs)
            if page.jobs[1].state == "done":
                break
            await asyncio.sleep(0.05)
    assert page.jobs[0].hold is not None
    assert "no UTF-8" in page.jobs[0].hold.reason
    await user.ask(rq.PoolStatus())
    await user.ask(rq.ExplainJob(job=str(bad.job_id)))
    await user.ask(rq.CancelJobs(jobs=str(bad.job_id)))
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=15)
