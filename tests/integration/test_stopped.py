"""Tasks of a local pool can stop and kill its processes, because all run as one user."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest
from daemons import Spawn, until
from puppet import run_job
from test_daemons import local_up

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.xmpp.user import UserConnection

TO_EACH = (
    "import os, signal\n"
    "def parent(pid):\n"
    "    return int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
    "worker = launcher = os.getppid()\n"
    "if open(f'/proc/{launcher}/comm').read().startswith('kestrel-launch'):\n"
    "    worker = parent(launcher)\n"
    "keeper = parent(worker)\n"
    "os.kill({who}, signal.{number})\n"
)


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


@pytest.mark.parametrize("number", ["SIGSTOP", "SIGKILL"])
@pytest.mark.parametrize("who", ["launcher", "worker", "keeper"])
async def test_a_task_that_stops_or_kills_its_worker_stops_no_pool(
    local_pool: PoolState, user: UserConnection, who: str, number: str
) -> None:
    script = TO_EACH.replace("{who}", who).replace("{number}", number)
    async with asyncio.timeout(60):
        job = await run_job(
            user, JobSpec(program=Program(argv=("python3", "-c", script)), max_losses=1)
        )
        assert job.state in ("done", "failed")
        job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=20))
    assert job.done == 20


def running(state: PoolState | None) -> list[bool]:
    """Which processes of a pool run; one that a task has killed may still be written down."""
    if state is None:
        return [False]
    return list(map(psutil.pid_exists, (state.manager_pid, state.server_pid, *state.worker_pids)))


@pytest.mark.parametrize("who", ["manager", "server", "keepers and workers"])
async def test_what_was_stopped_goes_on(
    local_pool: PoolState, user: UserConnection, who: str
) -> None:
    directory = Path(local_pool.password_file).parent
    await until(lambda: all(running(read_state(directory))))
    state = read_state(directory)
    assert state is not None
    pids = {
        "manager": [state.manager_pid],
        "server": [state.server_pid],
        "keepers and workers": [
            process.pid
            for keeper in map(psutil.Process, state.worker_pids)
            for process in (keeper, *keeper.children())
        ],
    }[who]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    await until(lambda: not any(map(is_stopped, pids)))
    async with asyncio.timeout(60):
        job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=20))
    assert job.done == 20


async def test_a_process_that_is_stopped_all_the_time_is_started_anew(
    spawn: Spawn, tmp_path: Path
) -> None:
    state = local_up(spawn, tmp_path, "stopped")
    directory = tmp_path / "kestrel" / "pools" / "stopped"
    [keeper, *_] = state.worker_pids
    async with asyncio.timeout(30):
        while psutil.pid_exists(keeper):
            os.kill(keeper, signal.SIGSTOP)
            await asyncio.sleep(0.15)
    await until(lambda: keeper not in getattr(read_state(directory), "worker_pids", [keeper]))
    async with asyncio.timeout(60), connect_local(state) as user:
        job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=20))
    assert job.done == 20
    os.kill(state.pid, signal.SIGSTOP)
    down = spawn("down", "--name", "stopped", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)})
    assert await asyncio.to_thread(down.wait, 60) == 0
    assert read_state(directory) is None
