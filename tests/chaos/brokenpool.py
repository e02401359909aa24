"""Pools to be broken: real processes, ended by pid, and a witness of what tasks really did."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local
from kestrelctl.local.pool_state import PoolState, read_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection


class BrokenPool:
    """A throw-away pool, its user, and the hands that break it."""

    def __init__(self, state: PoolState, witness: Path) -> None:
        self._directory = Path(state.password_file).parent
        self._started = state
        self.witness = witness

    @property
    def state(self) -> PoolState:
        return read_state(self._directory) or self._started

    def worker(self, index: int = 0) -> psutil.Process:
        """A worker's process: the child of its keeper."""
        return _process(lambda: psutil.Process(self.state.worker_pids[index]).children()[0])

    @property
    def manager(self) -> psutil.Process:
        return _process(lambda: psutil.Process(self.state.manager_pid))

    @property
    def server(self) -> psutil.Process:
        return _process(lambda: psutil.Process(self.state.server_pid))

    @contextlib.asynccontextmanager
    async def user(self) -> AsyncIterator[UserConnection]:
        async with connect_local(self.state) as connection:
            yield connection

    def job(self, count: int, seconds: float, **more: Any) -> JobSpec:
        """Tasks that leave a line with their id behind, at their end."""
        script = f'sleep {seconds}; echo "$KESTREL_TASK_ID" >> {self.witness}'
        return JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=count, **more)

    def ran(self) -> Counter[int]:
        """How often each task ran to its end, by the lines that the tasks themselves left."""
        text = self.witness.read_text() if self.witness.exists() else ""
        return Counter(int(line) for line in text.split())

    async def submit(self, spec: JobSpec) -> int:
        async with self.user() as user:
            answer = await user.ask(rq.SubmitJob(spec=spec))
        assert isinstance(answer, an.Submitted)
        return answer.job_id

    async def view(self, job_id: int) -> an.JobView:
        async with self.user() as user:
            answer = await user.ask(rq.ListJobs(jobs=str(job_id)))
        assert isinstance(answer, an.Jobs)
        return answer.jobs[0]

    async def until(self, what: Callable[[], Any], seconds: float = 30.0) -> None:
        """Waits for a condition."""
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, "it did not happen in time"
            await asyncio.sleep(0.005)

    async def status(self) -> an.PoolSummary:
        async with self.user() as user:
            answer = await user.ask(rq.PoolStatus())
        assert isinstance(answer, an.PoolSummary)
        return answer

    async def losses(self) -> dict[str, int]:
        """Losses by their cause, as the manager's metrics tell them; those that there were."""

        def read() -> str:
            with urllib.request.urlopen(self.state.metrics, timeout=10) as page:
                return bytes(page.read()).decode()

        told = re.findall(
            r'^kestrel_losses_total\{cause="(\w+)"\} (\d+)', await asyncio.to_thread(read), re.M
        )
        assert told
        return {cause: int(count) for cause, count in told if int(count)}

    async def until_idle(self, workers: int, seconds: float = 30.0) -> None:
        """Waits until so many workers are there and have nothing to do."""
        deadline = time.monotonic() + seconds
        states: dict[str, int] = {}
        async with self.user() as user:
            while states != {"idle": workers}:
                assert time.monotonic() < deadline, f"the workers are {states}"
                await asyncio.sleep(0.05)
                status = await user.ask(rq.PoolStatus())
                assert isinstance(status, an.PoolSummary)
                states = status.workers

    async def ended(self, job_id: int, seconds: float = 90.0) -> an.JobView:
        """Waits for a job's end, whatever happens to manager and server meanwhile."""
        deadline = time.monotonic() + seconds
        last: an.JobView | None = None
        while time.monotonic() < deadline:
            with contextlib.suppress(Exception):
                last = await asyncio.wait_for(self.view(job_id), 5)
                if last.state not in ("active", "cancelling"):
                    return last
            await asyncio.sleep(0.2)
        raise AssertionError(f"the job did not end: {last}")

    async def tasks(self, job_id: int) -> list[an.TaskView]:
        found: list[an.TaskView] = []
        after: int | None = -1
        async with self.user() as user:
            while after is not None:
                page = await user.ask(rq.ListTasks(job=str(job_id), after=after))
                assert isinstance(page, an.Tasks)
                found.extend(page.tasks)
                after = page.after
        return found


def left_behind(scratch: Path) -> dict[int, str]:
    """Processes that a pool with this directory has left, and their commands."""
    found = {}
    mine = psutil.Process()
    children = {process.pid for process in mine.children(recursive=True)}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            command = " ".join(process.cmdline())
            if process.pid != mine.pid and (process.pid in children or str(scratch) in command):
                found[process.pid] = command
    return found


def _process(find: Callable[[], psutil.Process]) -> psutil.Process:
    """A process that may just be on its way up again."""
    deadline = time.monotonic() + 10
    while True:
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            found = find()
            if found.pid:
                return found
        assert time.monotonic() < deadline, "the process did not come back"
        time.sleep(0.01)
