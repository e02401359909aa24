"""One user attacks a real pool with all that he may send, and the others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import psutil
from puppet import Puppet, run_job

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers, codec, requests
from kestrelctl.xmpp.user import UserConnection

WORKERS = 4
JOBS = 500
ATTACK_SECONDS = 12.0
#: Of processor time, which the manager and the server may take for others before they answer one
#: request. On a busy machine the user may wait longer, but not because of others.
MOST_WORK_SECONDS = 1.0
MOST_MANAGER_BYTES = 150 << 20
MOST_SERVER_BYTES = 120 << 20
MIB = 1 << 20


class Watch:
    """The largest that processes have been."""

    def __init__(self, *pids: int) -> None:
        self.most = dict.fromkeys(pids, 0)
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        processes = [psutil.Process(pid) for pid in self.most]
        while True:
            for process in processes:
                self.most[process.pid] = max(self.most[process.pid], process.memory_info().rss)
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        self._task.cancel()


async def ask_without_reading(pool: PoolState, session: Puppet, requests: int) -> None:
    """Asks for long lists, and reads none of them."""
    stream = session.session._stream
    assert stream is not None
    assert stream.transport is not None
    stream.transport.pause_reading()
    for number in range(requests):
        request = {"type": "job_status", "id": str(number), "limit": JOBS}
        session.session.send(json.dumps(request), f"jobs@{pool.domain}")
        if number % 100 == 0:
            await asyncio.sleep(0.01)


async def upload(pool: PoolState, session: Puppet, one_name: bool) -> None:
    """Sends 250 MB of items for jobs that are never submitted."""
    lines = json.dumps(["x" * 1000] * 480)
    for number in range(520):
        name = "one" if one_name else f"u{number}"
        session.session.send(
            f'{{"type": "upload_items", "id": "{number}", "upload": "{name}", "lines": {lines}}}',
            f"jobs@{pool.domain}",
        )
        while session.session.backlog_bytes() > 4 * MIB:
            await asyncio.sleep(0.005)


async def shout(pool: PoolState, session: Puppet) -> None:
    """Sends, as a worker, what the pool cannot use."""
    report = json.dumps({"type": "report", "results": [[7, 7, 7, 0, 1.0, 1.0]] * 50})
    for number in range(10_000):
        session.session.send(report if number % 2 else "{}", f"pool@{pool.domain}")
        while session.session.backlog_bytes() > MIB:
            await asyncio.sleep(0.005)


async def work_for_answers(user: UserConnection, seconds: float, *pids: int) -> list[float]:
    """The processor time that processes take until a request is answered, in seconds, sorted.

    Requests are sent one after another for so long.
    """
    processes = [psutil.Process(pid) for pid in pids]

    def worked() -> float:
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    loop = asyncio.get_running_loop()
    took = []
    end = loop.time() + seconds
    while loop.time() < end:
        before = worked()
        await user.ask(requests.PoolStatus(), 150.0)
        took.append(worked() - before)
        await asyncio.sleep(0.01)
    return sorted(took)


async def test_one_user_cannot_stall_the_others() -> None:
    async with throw_away_pool(WORKERS) as pool, connect_local(pool) as user:
        for number in range(JOBS):
            spec = JobSpec(
                program=Program(argv=("true", "x" * 300)), name=f"a job with the number {number}"
            )
            await user.ask(requests.SubmitJob(spec=spec))
        listed = await user.ask(requests.ListJobs(limit=JOBS))
        assert len(codec.encode(listed)) > 200_000
        watch = Watch(pool.manager_pid, pool.server_pid)
        async with (
            Puppet(pool, "eve", "users") as one,
            Puppet(pool, "eve", "users") as two,
            Puppet(pool, "mallory", "users") as three,
            Puppet(pool, "w99", "workers") as four,
        ):
            attack = asyncio.gather(
                ask_without_reading(pool, one, 2000),
                upload(pool, two, one_name=True),
                upload(pool, three, one_name=False),
                shout(pool, four),
            )
            took = await work_for_answers(user, ATTACK_SECONDS, pool.manager_pid, pool.server_pid)
            job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=20))
            attack.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await attack
        watch.stop()
        status = await user.ask(requests.PoolStatus())
        assert isinstance(status, answers.PoolSummary)
        print(
            f"{len(took)} requests, work for each: p50 {took[len(took) // 2]:.3f} s, p99 "
            f"{took[len(took) * 99 // 100]:.3f} s, longest {took[-1]:.3f} s; largest manager "
            f"{watch.most[pool.manager_pid] // MIB} MiB, server "
            f"{watch.most[pool.server_pid] // MIB} MiB"
        )
        assert job.done == 20
        assert sum(status.workers.values()) == status.workers.get("idle", 0) == WORKERS
        assert took[len(took) * 99 // 100] <= MOST_WORK_SECONDS
        assert watch.most[pool.manager_pid] < MOST_MANAGER_BYTES
        assert watch.most[pool.server_pid] < MOST_SERVER_BYTES
        log = (Path(pool.password_file).parent / "manager.log").read_text()
        assert log.count("\n") < 200
