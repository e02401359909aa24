"""`kestrelctl down` ends a local pool and all that it started, whatever has befallen it before."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
from brokenpool import BrokenPool

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import pool_directory, read_state

NAME = "broken"
#: Of each task: a shell that does not care for SIGTERM, a child, and a daemon of a session of its
#: own.
TASK = "trap '' TERM; setsid sleep 1000 & sleep 1001"


async def kestrelctl(command: str, *options: str) -> int:
    """Runs it; returns its exit status."""
    words = (sys.executable, "-m", "kestrelctl", command, "--name", NAME, *options)
    return await (await asyncio.create_subprocess_exec(*words)).wait()


@pytest.fixture
async def busy_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokenPool]:
    """A pool of two workers as `kestrelctl up` makes it, with a task on each."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert await kestrelctl("up", "--workers", "2") == 0
    state = read_state(pool_directory(NAME))
    assert state is not None
    pool = BrokenPool(state, tmp_path / "witness")
    try:
        await pool.submit(JobSpec(program=Program(argv=("/bin/sh", "-c", TASK)), count=2))
        await pool.until(lambda: sum(each.name() == "sleep" for each in everything(pool)) == 4)
        yield pool
    finally:
        _end(everything(pool))


def everything(pool: BrokenPool) -> list[psutil.Process]:
    """The supervisor and all that is below it."""
    with contextlib.suppress(psutil.NoSuchProcess):
        supervisor = psutil.Process(pool.state.pid)
        return [supervisor, *supervisor.children(recursive=True)]
    return []


def _end(processes: list[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def keeper(pool: BrokenPool, index: int) -> psutil.Process:
    return psutil.Process(pool.state.worker_pids[index])


def freeze_all_but_the_supervisor(pool: BrokenPool) -> None:
    for process in everything(pool)[1:]:
        process.suspend()


def freeze_everything(pool: BrokenPool) -> None:
    for process in everything(pool):
        process.suspend()


def freeze_workers_and_kill_a_keeper(pool: BrokenPool) -> None:
    pool.worker(0).suspend()
    pool.worker(1).suspend()
    keeper(pool, 0).kill()


def freeze_a_keeper_and_kill_its_worker(pool: BrokenPool) -> None:
    keeper(pool, 0).suspend()
    pool.worker(0).kill()


def freeze_the_server_and_kill_the_manager(pool: BrokenPool) -> None:
    pool.server.suspend()
    pool.manager.kill()


def kill_both_keepers(pool: BrokenPool) -> None:
    keeper(pool, 0).kill()
    keeper(pool, 1).kill()


def kill_the_supervisor_and_freeze_a_worker(pool: BrokenPool) -> None:
    pool.worker(0).suspend()
    psutil.Process(pool.state.pid).kill()


def kill_the_supervisor_and_freeze_a_keeper(pool: BrokenPool) -> None:
    keeper(pool, 0).suspend()
    psutil.Process(pool.state.pid).kill()


@pytest.mark.parametrize(
    "faults",
    [
        freeze_all_but_the_supervisor,
        freeze_everything,
        freeze_workers_and_kill_a_keeper,
        freeze_a_keeper_and_kill_its_worker,
        freeze_the_server_and_kill_the_manager,
        kill_both_keepers,
        kill_the_supervisor_and_freeze_a_worker,
        kill_the_supervisor_and_freeze_a_keeper,
    ],
    ids=lambda faults: faults.__name__,
)
async def test_down_leaves_nothing_behind_after_several_faults_at_once(
    busy_pool: BrokenPool, faults: Callable[[BrokenPool], None]
) -> None:
    before = everything(busy_pool)
    faults(busy_pool)
    try:
        status = await kestrelctl("down")
        left = [f"{process.pid} {process.cmdline()}" for process in before if runs(process)]
    finally:
        _end([*before, *everything(busy_pool)])
    assert status == 0
    assert left == []
