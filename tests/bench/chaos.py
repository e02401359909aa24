"""A storm over a real pool, then an audit: `python tests/bench/chaos.py [--seconds 600] ...`.

Server, manager and workers run on loopback; most workers reach the server over lines that fail.
While jobs of mixed tasks are submitted, processes are killed, frozen and restarted, and lines are
dropped or go dead, as a seed says. Then there is peace, and what the pool says of its tasks is
compared with what they themselves left behind. Ends with status 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec
import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))

from audit import WITNESS, Accepted, Told, Verdict, Witness, accepted, audit
from blows import KINDS, schedule
from brokenpool import left_behind
from storm import OWN_WORKERS, Storm, storm

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, OnWorkerLost
from kestrelctl.core.model.job.stage import IN, OUT, Stage
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.errors import KestrelError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

A = TypeVar("A")

LONGEST_TASK_SECONDS = 3.0
#: Seconds between two blows, on average.
EVERY_SECONDS = 2.0
#: In peace, tasks end at least this often, or the pool is stuck.
STUCK_SECONDS = 45.0
#: So many tasks in one request for their stories.
STORIES = 200
#: What daemons of such a pool may take.
MOST_MANAGER_BYTES = 300 << 20
MOST_SERVER_BYTES = 300 << 20
MOST_LOG_BYTES = 20 << 20


class Run:
    """One storm.

    Attributes:
        scratch: the directory of its workers.
        acknowledged: number of tasks of each job that was acknowledged, by its id.
        seen: results seen as accepted meanwhile: job id, task id.
    """

    def __init__(self, storm: Storm, scratch: Path, options: argparse.Namespace) -> None:
        self.storm = storm
        self.scratch = scratch
        self.pool = storm.pool
        self.options = options
        self.dice = Random(options.seed + 1)
        self.acknowledged: dict[int, int] = {}
        self.unacknowledged = 0
        self.seen: dict[int, dict[int, Accepted]] = defaultdict(dict)
        self.peaks: dict[str, int] = {"manager": 0, "server": 0}
        self.manager_starts = 0

    # -- while it lasts ----------------------------------------------------------------------------

    async def submit(self) -> None:
        """Submits jobs from the beginning until shortly before the end of the storm."""
        jobs = max(5, min(50, self.options.tasks // 50))
        began = time.monotonic()
        for number in range(jobs):
            due = began + 0.9 * self.options.seconds * number / jobs
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            count = len(range(number, self.options.tasks, jobs))
            spec = self._job(number, count)
            while True:
                try:
                    submitted = await self._ask(rq.SubmitJob(spec=spec), an.Submitted)
                except Exception:
                    # Nobody knows whether it arrived: it may be there or not, and is audited.
                    self.unacknowledged += 1
                    await asyncio.sleep(0.5)
                    continue
                self.acknowledged[submitted.job_id] = count
                break

    def _job(self, number: int, count: int) -> JobSpec:
        witness = self.pool.witness
        script = f'echo "s {WITNESS}" >> {witness}; sleep {{}}; echo "e {WITNESS}" >> {witness}'
        lengths = [
            0.0 if self.dice.random() < 0.25 else self.dice.uniform(0.0, LONGEST_TASK_SECONDS)
            for _ in range(count)
        ]
        program = Program(argv=("/bin/sh", "-c", script))
        if number % 3 == 1:
            program = with_stages(program, script)
        return JobSpec(
            program=program,
            name=f"storm-{number}",
            count=count,
            items=tuple(f"{seconds:.2f}" for seconds in lengths),
            on_worker_lost=OnWorkerLost.WAIT if number % 5 == 4 else OnWorkerLost.REQUEUE,
        )

    async def look(self) -> None:
        """Notes memory and accepted results now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(max(1.0, self.options.seconds / 20))
            self._weigh()
            if self.acknowledged:
                job_id = self.dice.choice(list(self.acknowledged))
                with contextlib.suppress(Exception):
                    page = await self._ask(
                        rq.ListTasks(job=str(job_id), states=[TaskState.DONE]), an.Tasks
                    )
                    for task in page.tasks:
                        self.seen[job_id].setdefault(task.task_id, accepted(task))

    def _weigh(self) -> None:
        state = self.pool.state
        for name, pid in (("manager", state.manager_pid), ("server", state.server_pid)):
            with contextlib.suppress(psutil.NoSuchProcess):
                self.peaks[name] = max(self.peaks[name], psutil.Process(pid).memory_info().rss)

    async def _ask(self, request: rq.AnyRequest, kind: type[A], seconds: float = 5.0) -> A:
        async with self.pool.user() as user:
            answer = await user.ask(request, timeout_seconds=seconds)
        assert isinstance(answer, kind)
        return answer

    # -- in peace ----------------------------------------------------------------------------------

    async def jobs(self) -> list[an.JobView]:
        found = await again(lambda: self._ask(rq.ListJobs(limit=1000), an.Jobs, 20.0))
        return found.jobs

    async def ended(self, verdict: Verdict) -> None:
        """Waits until all jobs have ended, or nothing ends any more."""
        ended, moved_at = -1, time.monotonic()
        while True:
            jobs = await self.jobs()
            if all(job.state not in ("active", "cancelling") for job in jobs):
                return
            now = sum(job.done + job.failed + job.lost for job in jobs)
            if now != ended:
                ended, moved_at = now, time.monotonic()
            if time.monotonic() > moved_at + STUCK_SECONDS:
                left = [job for job in jobs if job.state == "active"]
                verdict.breaches.append(
                    f"stuck: {len(left)} jobs are active, nothing ended for {STUCK_SECONDS:g} s; "
                    f"the first: {left[0].waiting} waiting, {left[0].running} running"
                )
                return
            await asyncio.sleep(0.5)

    async def told(self) -> dict[int, Told]:
        """All that the pool says of its jobs."""
        found = {}
        for job in await self.jobs():
            tasks = await again(partial(self.pool.tasks, job.job_id))
            story: list[an.StoryEntry] = []
            ids = [task.task_id for task in tasks]
            for first in range(0, len(ids), STORIES):
                request = rq.TellStory(
                    job=str(job.job_id), task_ids=ids[first : first + STORIES], limit=100_000
                )
                part = await again(partial(self._ask, request, an.Story, 20.0))
                assert not part.more, "the stories do not fit into one answer"
                story += part.entries
            found[job.job_id] = Told(job, tasks, story, self.seen[job.job_id])
        return found

    async def use_all_workers(self, verdict: Verdict) -> None:
        """Waits for all workers and has each run a task."""
        workers = self.options.workers
        states: dict[str, int] = {}
        deadline = time.monotonic() + STUCK_SECONDS
        while states != {"idle": workers} and time.monotonic() < deadline:
            states = (await again(lambda: self._ask(rq.PoolStatus(), an.PoolSummary))).workers
            await asyncio.sleep(0.5)
        if states != {"idle": workers}:
            verdict.breaches.append(f"of {workers} workers, in peace: {states}")
        roll = self.pool.witness.with_name("roll-call")
        roll.touch()
        for _ in range(3):
            script = f'echo "$KESTREL_WORKER" >> {roll}; sleep 1.5'
            spec = JobSpec(program=Program(argv=("/bin/sh", "-c", script)), count=workers)
            job = await again(partial(self._ask, rq.SubmitJob(spec=spec), an.Submitted))
            try:
                await self.pool.ended(job.job_id, STUCK_SECONDS)
            except AssertionError as error:
                verdict.breaches.append(f"a job in peace: {error}")
                return
            if len(set(roll.read_text().split())) >= workers:
                return
        used = len(set(roll.read_text().split()))
        verdict.breaches.append(f"only {used} of {workers} workers run tasks in the end")

    async def weigh(self, verdict: Verdict) -> list[str]:
        """Memory and logs at the end, in lines."""
        self._weigh()
        state = self.pool.state
        lines = []
        for name, most in (("manager", MOST_MANAGER_BYTES), ("server", MOST_SERVER_BYTES)):
            pid = state.manager_pid if name == "manager" else state.server_pid
            now = psutil.Process(pid).memory_info().rss
            lines.append(f"memory of the {name}: {_mb(now)} now, {_mb(self.peaks[name])} at most")
            if self.peaks[name] > most:
                verdict.breaches.append(f"the {name} takes {_mb(self.peaks[name])} of memory")
        directory = Path(state.password_file).parent
        logs = [*directory.rglob("*.log"), *self.scratch.glob("*.log")]
        for place, log in enumerate(sorted(logs, key=lambda log: -log.stat().st_size)):
            size = log.stat().st_size
            if "Traceback (most recent call last)" in log.read_text(errors="replace"):
                verdict.breaches.append(f"log {log.name} tells of an error that nobody expected")
            if place < 5:
                lines.append(f"log {log.name}: {_mb(size)}")
            if size > MOST_LOG_BYTES:
                verdict.breaches.append(f"log {log.name} has grown to {_mb(size)}")
        return lines


def with_stages(program: Program, script: str) -> Program:
    """The program with a stage before it and one after it, and a file that each task leaves."""
    short = ("/bin/sh", "-c", "sleep 0.05")
    stages = (Stage(name=IN, argv=short, tries=2), Stage(name=OUT, argv=short))
    command = ("/bin/sh", "-c", f"{script}; echo {{n}} >left")
    return msgspec.structs.replace(program, argv=command, stages=stages, outputs=("left",))


def missing_files(told: dict[int, Told]) -> list[str]:
    """The tasks that are done and did not leave what their job asks for."""
    return [
        f"task {task.task_id} of job {job_id} is done and left {task.output_files} files"
        for job_id, each in told.items()
        if each.job.spec.program.outputs
        for task in each.tasks
        if task.state == TaskState.DONE and task.output_files != 1
    ]


async def again(work: Callable[[], Awaitable[A]], times: int = 20) -> A:
    """Asks until there is an answer: after a storm the pool takes a moment."""
    for _ in range(times - 1):
        with contextlib.suppress(KestrelError, TimeoutError):
            return await work()
        await asyncio.sleep(1.0)
    return await work()


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def table(found: Storm, run: Run, verdict: Verdict, weights: list[str]) -> str:
    rows = [f"{'blow':24}{'struck':>8}{'missed':>8}{'seconds':>9}"]
    for kind in KINDS:
        seconds = f"{found.seconds[kind]:,}" if found.seconds[kind] else ""
        rows.append(f"{kind:24}{found.struck[kind]:8}{found.missed[kind]:8}{seconds:>9}")
    rows.append(f"{'all':24}{found.struck.total():8}{found.missed.total():8}")
    rows.append("")
    figures = {
        "jobs acknowledged": len(run.acknowledged),
        "submissions without an answer": run.unacknowledged,
        "starts of the manager": run.manager_starts,
        **dict(sorted(verdict.figures.items())),
    }
    rows += [f"{name:44}{figure:>9,}" for name, figure in figures.items()]
    return "\n".join([*rows, "", *weights])


async def main(options: argparse.Namespace) -> int:
    began = time.monotonic()
    verdict = Verdict()
    with tempfile.TemporaryDirectory(prefix="kestrel-storm-") as name:
        scratch = Path(name)
        sessions = options.workers - OWN_WORKERS
        async with storm(options.processes, sessions, scratch, options.isolation) as found:
            run = Run(found, scratch, options)
            await found.pool.until_idle(options.workers, 120.0)
            print(f"{options.workers} workers after {time.monotonic() - began:.0f} s", flush=True)
            blows = schedule(
                options.seed, options.seconds, options.processes, OWN_WORKERS, options.every
            )
            looking = asyncio.create_task(run.look())
            await asyncio.gather(found.rage(blows), run.submit())
            looking.cancel()
            print(f"peace after {time.monotonic() - began:.0f} s", flush=True)
            ended = Verdict()
            await run.ended(ended)
            print(f"all jobs ended after {time.monotonic() - began:.0f} s", flush=True)
            told = await run.told()
            witness = Witness.read(found.pool.witness.read_text().splitlines())
            verdict = audit(run.acknowledged, told, witness)
            verdict.breaches += ended.breaches + missing_files(told)
            await run.use_all_workers(verdict)
            run.manager_starts = (await found.pool.status()).epoch
            weights = await run.weigh(verdict)
            if options.keep:
                _keep(run, options.keep)
        verdict.breaches += [
            f"process {pid} is left behind: {command[:120]}"
            for pid, command in left_behind(scratch).items()
        ]
    print(table(found, run, verdict, weights))
    print()
    for breach in verdict.breaches[:50]:
        print(f"BROKEN: {breach}")
    if len(verdict.breaches) > 50:
        print(f"and {len(verdict.breaches) - 50} more")
    took = time.monotonic() - began
    holds = "broken" if verdict.breaches else "all promises hold"
    print(f"{holds}; seed {options.seed}, {took:.0f} s")
    return 1 if verdict.breaches else 0


def _keep(run: Run, to: Path) -> None:
    """Keeps witness, logs and store for whoever wants to know more."""
    import shutil

    pool = Path(run.pool.state.password_file).parent
    shutil.copytree(pool, to / "pool", ignore=shutil.ignore_patterns("tasks", "*.password"))
    for file in (*run.scratch.iterdir(), *run.pool.witness.parent.iterdir()):
        if file.is_file() and file.suffix != ".credentials":
            shutil.copy(file, to)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0, help="how long the storm lasts")
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=200, help="sessions of all processes")
    parser.add_argument("--processes", type=int, default=16, help="workers behind lines")
    parser.add_argument("--every", type=float, default=EVERY_SECONDS, help="seconds between blows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--isolation", choices=("plain", "namespace", "bubblewrap"),
                        default="plain", help="of workers behind lines")  # fmt: skip
    parser.add_argument("--keep", type=Path, help="directory for logs, witness and store")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
