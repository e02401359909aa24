"""Every task of an acknowledged job runs at least once; exactly one result of it is accepted.

How soon the pool recovers is promised in tests/simulation/test_time_to_notice.py and measured by
tests/bench/faults.py.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
from brokenpool import BrokenPool

from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol.requests import CancelJobs

StartPool = Callable[[int], AbstractAsyncContextManager[BrokenPool]]

TASKS = 600
SECONDS = 0.05
#: What a worker may hold: a task that runs, and those that bridge the time to the next message.
#: Of these some have ended and wait to be reported together; if the worker is killed then, the pool
#: hands them out again before it is back.
HELD = 1 + math.ceil(Config().ahead_seconds / SECONDS)


def kill_worker(pool: BrokenPool) -> None:
    pool.worker(random.randrange(2)).kill()


def kill_keeper(pool: BrokenPool) -> None:
    pool.worker(0).parent().kill()


def kill_manager(pool: BrokenPool) -> None:
    pool.manager.kill()


def kill_server(pool: BrokenPool) -> None:
    pool.server.kill()


@pytest.mark.parametrize(
    ("blow", "lost"),
    [(kill_worker, 4 * HELD), (kill_keeper, 4 * HELD), (kill_manager, 8), (kill_server, 8)],
    ids=["kill_worker", "kill_keeper", "kill_manager", "kill_server"],
)
async def test_the_promise_holds_when_a_process_is_killed_under_load(
    broken_pool: StartPool, blow: Callable[[BrokenPool], None], lost: int
) -> None:
    async with broken_pool(8) as pool:
        job_id = await pool.submit(pool.job(TASKS, SECONDS, max_losses=20))
        for _ in range(2):
            already = sum(pool.ran().values())
            await pool.until(lambda already=already: sum(pool.ran().values()) > already + 60)
            blow(pool)
        job = await pool.ended(job_id)
        tasks = await pool.tasks(job_id)
        ran = pool.ran()
    assert job.done == TASKS, job
    assert sorted(task.task_id for task in tasks) == list(range(TASKS))
    assert {task.state for task in tasks} == {"done"}
    assert set(ran) == set(range(TASKS)), "a task that counts as done never ran to its end"
    repeated = sum(ran.values()) - TASKS
    assert repeated <= 2 * lost, f"{repeated} repetitions; at most what was lost with the killed"


async def test_all_blows_together_at_random(broken_pool: StartPool) -> None:
    dice = random.Random(2009)
    async with broken_pool(8) as pool:
        job_id = await pool.submit(pool.job(TASKS, SECONDS, max_losses=50))
        for blow in dice.sample([kill_worker, kill_manager, kill_server, kill_worker], 4):
            await asyncio.sleep(dice.uniform(0.2, 1.0))
            blow(pool)
        job = await pool.ended(job_id)
        ran = pool.ran()
    assert job.done == TASKS, job
    assert set(ran) == set(range(TASKS))


async def test_a_killed_workers_task_is_sent_elsewhere_because_the_server_says_so(
    broken_pool: StartPool,
) -> None:
    rounds = 3
    async with broken_pool(2) as pool:
        for _ in range(rounds):
            starts = pool.witness.with_name("starts")
            starts.write_text("")
            script = f'echo "$KESTREL_WORKER" >> {starts}; exec sleep 60'
            job_id = await pool.submit(JobSpec(program=Program(argv=("/bin/sh", "-c", script))))
            await pool.until(lambda starts=starts: starts.read_text())
            first = starts.read_text().split()[0]
            index = int(first[1 : first.index("@")]) - 1
            pool.worker(index).kill()
            await pool.until(lambda starts=starts: len(starts.read_text().split()) == 2)
            async with pool.user() as user:
                await user.ask(CancelJobs(jobs=str(job_id)))
            await pool.until_idle(2)
        losses = await pool.losses()
    assert losses == {"unavailable": rounds}


async def test_a_restarted_manager_hands_out_the_rest_of_a_job(broken_pool: StartPool) -> None:
    async with broken_pool(4) as pool:
        job_id = await pool.submit(pool.job(1000, 0.02))
        await pool.until(lambda: sum(pool.ran().values()) > 50)
        pool.manager.kill()
        job = await pool.ended(job_id)
        status = await pool.status()
    assert job.done == 1000
    assert status.epoch == 2
    assert status.totals["tasks_sent"] > 0


async def test_a_hung_worker_is_noticed_while_it_hangs(broken_pool: StartPool) -> None:
    async with broken_pool(2) as pool:
        job_id = await pool.submit(pool.job(2, 1.0, max_losses=5))
        await asyncio.sleep(0.5)
        hung = pool.worker(0)
        keeper = hung.parent()
        # Whoever would let it go on at once hangs as well.
        hanging = [keeper.parent(), keeper, hung]
        for process in hanging:
            process.suspend()
        try:
            job = await pool.ended(job_id)
        finally:
            for process in hanging:
                process.resume()
        # It speaks again, and what it says is refused without harm.
        await asyncio.sleep(2.0)
        tasks = await pool.tasks(job_id)
        losses = await pool.losses()
    assert job.done == 2
    assert losses == {"lease": 1}
    assert [task.state for task in tasks] == ["done", "done"]
