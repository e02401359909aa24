"""Assets and units of a real worker: what tasks are told, and what becomes of them at a resize."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from daemons import Spawn, until
from test_daemons import joined, worker_words

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.errors import UsageError
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

SAY = 'echo "$KESTREL_GPUS|$CUDA_VISIBLE_DEVICES|$ROCR_VISIBLE_DEVICES|$KESTREL_FPGA"'


@pytest.fixture
async def worker(
    local_pool: PoolState, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> AsyncIterator[Path]:
    """A worker `assets` with GPUs that are configured; a directory that it shares with tasks."""
    process = spawn(
        *worker_words(local_pool, tmp_path, "assets"),
        "--cpus", "8", "--asset", "gpus=0,1", "--asset", "fpga=indexed:x",
        "--asset", "seats=shared:2",
    )  # fmt: skip
    await joined(user, "assets")
    yield tmp_path
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=15)


async def submitted(user: UserConnection, script: str, count: int = 1, **request: float) -> int:
    spec = JobSpec(
        program=Program(argv=("/bin/sh", "-c", script)),
        count=count,
        requires=("assets",),
        request={"cpus": 0.5, **request},
    )
    answer = await user.ask(rq.SubmitJob(spec=spec))
    assert isinstance(answer, an.Submitted)
    return answer.job_id


async def printed(user: UserConnection, job_id: int) -> list[str]:
    """What the tasks of a job have written when it has ended."""
    async with asyncio.timeout(15):
        while True:
            jobs = await user.ask(rq.ListJobs(jobs=str(job_id)))
            assert isinstance(jobs, an.Jobs)
            if jobs.jobs[0].state != "active":
                break
            await asyncio.sleep(0.05)
    page = await user.ask(rq.AllLogs(job=str(job_id)))
    assert isinstance(page, an.LogPage)
    return [output.data.decode().strip() for output in page.outputs]


async def the_worker(user: UserConnection) -> an.WorkerView:
    page = await user.ask(rq.ListWorkers(names=["assets@"]))
    assert isinstance(page, an.Workers)
    [found] = page.workers
    return found


async def resize(admin: UserConnection, change: AssetChange) -> an.WorkerView:
    answer = await admin.ask(rq.ResizeWorker(name="assets@", change=change))
    assert isinstance(answer, an.Workers)
    return answer.workers[0]


async def test_tasks_are_told_their_units(user: UserConnection, worker: Path) -> None:
    # The first waits for the second, so each of them has a GPU of its own.
    there = f"[ -e {worker}/0 ] && [ -e {worker}/1 ]"
    both = f"touch {worker}/$KESTREL_TASK_ID; until {there}; do sleep 0.02; done; {SAY}"
    two = await submitted(user, both, 2, gpus=1)
    assert sorted(await printed(user, two)) == ["0|0|0|", "1|1|1|"]
    assert await printed(user, await submitted(user, SAY, gpus=2, fpga=1)) == ["0,1|0,1|0,1|x"]
    assert await printed(user, await submitted(user, SAY, gpus=0.5)) == ["0|0|0|"]
    assert await printed(user, await submitted(user, SAY)) == ["|||"]
    view = await the_worker(user)
    assert (view.assets["gpus"], view.free["gpus"], view.shared) == (2.0, 2.0, ["seats"])
    assert [(unit.id, unit.free) for unit in view.units["gpus"]] == [("0", 1.0), ("1", 1.0)]


async def test_a_worker_is_not_resized_for_what_the_whole_pool_has(
    user: UserConnection, admin: UserConnection, worker: Path
) -> None:
    await admin.ask(rq.SetAsset(name="matlab", total=5))
    with pytest.raises(UsageError, match="matlab is an asset of the whole pool"):
        await resize(admin, AssetChange(amounts={"cpus": 1.0, "matlab": 5.0}))


async def test_a_resize_lets_run_what_runs(
    user: UserConnection, admin: UserConnection, worker: Path
) -> None:
    until_go = f"until [ -e {worker}/go ]; do sleep 0.02; done"
    script = f"touch {worker}/begun-$KESTREL_TASK_ID; {until_go}; {SAY}"
    two = await submitted(user, script, 2, gpus=1)
    await until(lambda: len(list(worker.glob("begun-*"))) == 2)
    view = await resize(admin, AssetChange(units={"gpus": ("1",)}))
    assert (view.assets["gpus"], view.free["gpus"], view.running) == (1.0, 0.0, 2)
    more = await submitted(user, SAY, gpus=1)
    grown = await resize(admin, AssetChange(units={"gpus": ("1", "7")}, amounts={"cpus": 4.0}))
    assert (grown.assets["gpus"], grown.free["gpus"], grown.running) == (2.0, 0.0, 2)
    (worker / "go").touch()
    assert sorted(await printed(user, two)) == ["0|0|0|", "1|1|1|"]
    assert (await printed(user, more))[0] in ("1|1|1|", "7|7|7|")
    assert (await the_worker(user)).free["gpus"] == 2.0


async def test_what_a_worker_cannot_offer_it_says(
    user: UserConnection, admin: UserConnection, worker: Path
) -> None:
    with pytest.raises(UsageError) as refused:
        await resize(admin, AssetChange(amounts={"cpus": 0.0}))
    assert refused.value.cause == "a worker has 0.001 to 1,000,000 cpus, not 0"
    assert (await the_worker(user)).assets["cpus"] == 8.0


async def test_a_job_for_an_asset_that_nobody_has_waits_and_says_so(
    user: UserConnection, worker: Path
) -> None:
    job_id = await submitted(user, "true", abacus=1)
    answer = await user.ask(rq.ExplainJob(job=str(job_id)))
    assert isinstance(answer, an.JobExplanation)
    assert not answer.ever
    found = {(each.refusal.reason, each.refusal.wanted) for each in answer.obstacles}
    assert ("missing-asset", "abacus") in found
    await user.ask(rq.CancelJobs(jobs=str(job_id)))
