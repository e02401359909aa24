"""Runs a sweep: submits jobs of sleeping tasks to a pool and measures it from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from itertools import groupby
from operator import itemgetter

import msgspec
import psutil

from kestrelctl.bench.bounds import Sleep, parse_sleep
from kestrelctl.bench.collected_runs import CollectedRuns
from kestrelctl.bench.estimate import Speed, expect
from kestrelctl.bench.pool_size import PoolSize, suited, written
from kestrelctl.bench.reference import had_workers
from kestrelctl.bench.result import PLAIN, PROCESS, BenchRun, LatencyMs, measured_run
from kestrelctl.bench.spawn_rate import bare_rate
from kestrelctl.bench.stall import STALL_SECONDS, Stall
from kestrelctl.core.model.job.placeholders import Placeholders
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError, TimedOut, UsageError
from kestrelctl.grammar.quantities import parse_digits
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

#: Lines of one upload; five thousand sleep times are about 50 kB.
UPLOAD_LINES = 5000
#: The trial that shows how fast this machine is has a fifth of the tasks of a run, within these
#: bounds: at least so many because a pool is slow at first, and at most so many.
LEAST_TRIAL_TASKS = 500
MOST_TRIAL_TASKS = 4000
#: The pause between two questions about the progress of a run: while somebody watches, and while
#: nobody does.
WATCHED_PAUSE_SECONDS = 0.5
PAUSE_SECONDS = 20.0


class BenchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of what to measure.

    Attributes:
        jobs: tasks of each run (the word of 2009).
        workers: the workers of the throw-away pool, of one processor each; None for as many as suit
            the machine and the sleep time. A given pool is measured with the workers it has.
        sleeps: one run each: `0`, `10`, or `0-10` for random times; followed by a colon and a
            number, on that many workers.
        isolation: the isolation between the tasks of the throw-away pool.
        metrics: whether the throw-away pool serves metrics; off only to measure what they cost.
        command: the command line of the sweep, for the report.
    """

    jobs: int = 50_000
    workers: int | None = None
    sleeps: tuple[str, ...] = ("0", "1")
    executor: str = PROCESS
    isolation: str = PLAIN
    metrics: bool = True
    command: str | None = None


#: (run, of how many, tasks done): called about twice a second.
OnProgress = Callable[[str, int, int], None]


class PlannedRun(msgspec.Struct, frozen=True):
    """One run of a plan: the sleep time of its tasks, and its workers; None to be chosen."""

    sleep: Sleep
    workers: int | None


async def bench(
    plan: BenchPlan,
    collected: CollectedRuns,
    pool: UserConnection | None = None,
    progress: OnProgress | None = None,
) -> None:
    """Measures a pool into `collected`; throw-away pools on this machine if none is given.

    Runs that follow each other on the same number of workers share a pool.

    Raises:
        UsageError: the plan makes no sense.
        KestrelError: a run failed, lost tasks, or was faster than its bound allows.
    """
    planned = check(plan)
    if pool is not None and any(":" in spec for spec in plan.sleeps):
        raise UsageError(
            "a pool that runs has the workers that it has",
            hint="leave the number of workers out, or --pool",
        )
    collected.planned_runs = len(planned)
    if pool is not None:
        collected.begin(None)
        sizes: list[PoolSize | None] = [None] * len(planned)
    else:
        speed = await measure_speed(plan, collected)
        chosen = [_size(run, speed) for run in planned]
        sleeps = [run.sleep for run in planned]
        collected.begin(expect(list(zip(sleeps, chosen, strict=True)), plan.jobs, speed))
        sizes = [*chosen]
    for size, runs in groupby(zip(sizes, planned, strict=True), itemgetter(0)):
        async with measured_pool(plan, size, pool) as (connection, local):
            for _, run in runs:
                found = await one_run(plan, run.sleep, connection, local, progress)
                is_chosen = size is not None and run.workers is None
                collected.add(msgspec.structs.replace(found, chosen=is_chosen))
                await measure_bare_rate(collected, pool)
                collected.tell()


def _size(run: PlannedRun, speed: Speed) -> PoolSize:
    if run.workers is not None:
        return PoolSize(run.workers)
    return suited(run.sleep, speed.tasks_per_second, speed.cores)


async def measure_speed(plan: BenchPlan, collected: CollectedRuns) -> Speed:
    """Measures this machine for some seconds: its bare rate, and `sleep 0` on a small pool."""
    cores = len(os.sched_getaffinity(0))
    began = time.perf_counter()
    await measure_bare_rate(collected, None)
    measured = time.perf_counter()
    tasks = min(MOST_TRIAL_TASKS, max(LEAST_TRIAL_TASKS, plan.jobs // 5))
    trial = msgspec.structs.replace(plan, jobs=tasks)
    nothing = Sleep(0.0, 0.0)
    async with measured_pool(plan, suited(nothing, 0.0, cores), None) as (connection, local):
        up = time.perf_counter()
        run = await one_run(trial, nothing, connection, local, None)
        done = time.perf_counter()
    pool_seconds = up - measured + time.perf_counter() - done
    latency_seconds = run.dispatch_latency_ms.p50 / 1000
    return Speed(run.tasks_per_second, latency_seconds, pool_seconds, measured - began, cores)


async def measure_bare_rate(collected: CollectedRuns, pool: UserConnection | None) -> None:
    """Measures the bare rate of this machine again; not for a given pool, which may be remote."""
    if pool is None:
        collected.spawn_rates_per_second.append(await bare_rate())


def check(plan: BenchPlan) -> list[PlannedRun]:
    """Checks a plan and returns its runs.

    Raises:
        UsageError: the plan makes no sense.
    """
    planned = [_planned(spec, plan.workers) for spec in plan.sleeps]
    if not planned:
        raise UsageError("no sleep time is given", hint="`--sleep 0,1`, or leave it out")
    if plan.jobs < 1 or any(run.workers is not None and run.workers < 1 for run in planned):
        raise UsageError("a sweep needs at least one task and one worker")
    if plan.executor != PROCESS and any(run.sleep.longest for run in planned):
        raise UsageError(
            "the inline executor does not sleep", hint="give it `--sleep 0`, or leave it out"
        )
    return planned


def is_beside_2009(plan: BenchPlan) -> bool:
    """Whether a run of the plan has the workers of 2009."""
    return any(
        run.workers is not None and had_workers(str(run.sleep), run.workers) for run in check(plan)
    )


def _planned(spec: str, workers: int | None) -> PlannedRun:
    """Reads `10`, or `10:914` for a run on 914 workers."""
    sleep, colon, number = spec.partition(":")
    count = parse_digits(number) if colon else workers
    if colon and not count:
        raise UsageError(
            f"not a number of workers: {number[:80]!r} in {spec[:80]!r}",
            hint="write 10:914 for tasks of ten seconds on 914 workers",
        )
    return PlannedRun(parse_sleep(sleep), count)


@contextlib.asynccontextmanager
async def measured_pool(
    plan: BenchPlan, size: PoolSize | None, pool: UserConnection | None
) -> AsyncIterator[tuple[UserConnection, PoolState | None]]:
    """Yields the given pool, or a throw-away one of this size and the state of its processes."""
    if pool is not None:
        yield pool, None
        return
    assert size is not None
    async with (
        throw_away_pool(
            size.workers,
            plan.executor,
            plan.isolation,
            metrics=plan.metrics,
            processors=size.tasks_each,
        ) as state,
        connect_local(state) as connection,
    ):
        yield connection, state


async def one_run(
    plan: BenchPlan,
    sleep: Sleep,
    connection: UserConnection,
    local: PoolState | None,
    progress: OnProgress | None,
) -> BenchRun:
    """Runs one job of `plan.jobs` tasks and measures it.

    Raises:
        KestrelError: it failed, lost tasks, or was faster than its bound allows.
    """
    sessions, workers = await workers_of(connection)

    def named(run: str, tasks: int, done: int) -> None:
        if progress is not None:
            progress(f"{run}, {written(sessions, workers)} workers", tasks, done)

    spec, upload = await _job(plan, sleep, connection)
    before = _cpu_seconds(local)
    started = time.perf_counter()
    submitted = await connection.ask(
        rq.SubmitJob(spec=spec, upload=upload, watch=True), STALL_SECONDS
    )
    assert isinstance(submitted, an.Submitted)
    try:
        job, makespan = await _ended(
            connection, submitted.job_id, sleep, started, named if progress else None
        )
    except (KestrelError, asyncio.CancelledError):
        if local is None:  # a pool that stays should not run a job that nobody waits for
            with contextlib.suppress(KestrelError):
                await connection.ask(rq.CancelJobs(jobs=str(submitted.job_id)))
        raise
    server, manager, worker = _cpu_used(before, _cpu_seconds(local))
    status = await _status(connection)
    if job.done < plan.jobs:
        raise KestrelError(
            f"{plan.jobs - job.done} of {plan.jobs} tasks did not succeed",
            cause=f"{job.failed} failed, {job.lost} were lost, {job.cancelled} cancelled",
            hint=f"kestrelctl job tasks {job.job_id} --state failed",
        )
    tasks = await _tasks(connection, job.job_id)
    distinct = len({task.index for task in tasks})
    return measured_run(
        sleep=sleep,
        executor=plan.executor,
        tasks=plan.jobs,
        workers=workers,
        sessions=sessions,
        makespan_seconds=makespan,
        started_at=[(task.started_at or 0.0) - job.submitted_at for task in tasks],
        finished_at=[
            (task.started_at or 0.0) + (task.wall_seconds or 0.0) - job.submitted_at
            for task in tasks
        ],
        latency_ms=LatencyMs(
            p50=round(1000 * (job.dispatch_p50_seconds or 0.0), 2),
            p99=round(1000 * (job.dispatch_p99_seconds or 0.0), 2),
        ),
        lost=plan.jobs - distinct,
        duplicates=max(job.done, len(tasks)) - distinct,
        manager_rss_mb=status.manager_rss_bytes / 1e6,
        server_cpu_seconds=server,
        manager_cpu_seconds=manager,
        worker_cpu_seconds=worker,
    )


async def _job(plan: BenchPlan, sleep: Sleep, connection: UserConnection) -> tuple[JobSpec, str]:
    """Makes the job of a run: a plain array, or one with a sleep time for each task."""
    name = f"bench sleep {sleep}"
    if sleep.shortest == sleep.longest:
        argv = ("/bin/sleep", f"{sleep.longest:g}")
        return JobSpec(name=name, program=Program(argv=argv), count=plan.jobs), ""
    upload = f"bench-{sleep}"
    lines = [f"{sleep.seconds(index):g}" for index in range(plan.jobs)]
    for first in range(0, len(lines), UPLOAD_LINES):
        piece = lines[first : first + UPLOAD_LINES]
        await connection.ask(rq.UploadItems(upload=upload, lines=piece), STALL_SECONDS)
    argv, filled = ("/bin/sleep", "{}"), Placeholders.ARRAY
    return JobSpec(
        name=name, program=Program(argv=argv, placeholders=filled), count=plan.jobs
    ), upload


async def _ended(
    connection: UserConnection,
    job_id: int,
    sleep: Sleep,
    started: float,
    progress: OnProgress | None,
) -> tuple[an.JobView, float]:
    """Waits for the end of a job, asking now and then how far it is.

    Args:
        started: when it was submitted, by `time.perf_counter`.

    Returns:
        The job, and the seconds that it took: as the pool has them, if the way to it was cut when
        the end was told.

    Raises:
        TimedOut: no task of it has ended for a long time.
    """
    ends = connection.pushed()
    ended: asyncio.Task[an.Ended] = asyncio.ensure_future(anext(ends))
    stall = Stall(sleep.longest, time.monotonic())
    pause = WATCHED_PAUSE_SECONDS if progress else PAUSE_SECONDS
    missed: an.JobView | None = None
    try:
        while (reason := stall.reason(time.monotonic())) is None:
            done, _ = await asyncio.wait({ended}, timeout=pause)
            seconds = time.perf_counter() - started
            if job := ended.result().job if done else missed:
                if progress:
                    progress(str(sleep), job.tasks, job.done)
                return job, seconds if done else (job.ended_at or 0.0) - job.submitted_at
            with contextlib.suppress(TimedOut):  # a busy manager: `stall` says when it is too much
                answer = await connection.ask(rq.Watch(jobs=str(job_id)))
                assert isinstance(answer, an.Jobs)
                job = answer.jobs[0]
                stall.seen(job, time.monotonic())
                if progress:
                    progress(str(sleep), job.tasks, job.done)
                missed = job if job.ended_at is not None else None
    finally:
        ended.cancel()
    raise TimedOut(
        f"the run with sleep {sleep} made no progress and was given up",
        cause=reason,
        hint="is the machine overloaded, or its disk full?",
    )


async def _tasks(connection: UserConnection, job_id: int) -> list[an.TaskView]:
    """Asks for all tasks of a job that succeeded, page by page."""
    found: list[an.TaskView] = []
    after: int | None = -1
    while after is not None:
        page = await connection.ask(rq.ListTasks(job=str(job_id), after=after), STALL_SECONDS)
        assert isinstance(page, an.Tasks)
        found.extend(task for task in page.tasks if task.state == "done")
        after = page.after
    return found


async def _status(connection: UserConnection) -> an.PoolSummary:
    status = await connection.ask(rq.PoolStatus(), STALL_SECONDS)
    assert isinstance(status, an.PoolSummary)
    return status


async def workers_of(connection: UserConnection) -> tuple[int, int]:
    """Counts the workers of the pool, and the tasks of one processor that it runs side by side."""
    sessions = total = 0
    after: str | None = ""
    while after is not None:
        page = await connection.ask(rq.ListWorkers(after=after), STALL_SECONDS)
        assert isinstance(page, an.Workers)
        there = [worker for worker in page.workers if worker.state in ("idle", "busy")]
        sessions += len(there)
        total += sum(int(worker.assets.get("cpus", 0)) for worker in there)
        after = page.after
    if not total:
        raise KestrelError("the pool has no worker that could run the sweep")
    return sessions, total


def _cpu_seconds(local: PoolState | None) -> dict[tuple[str, int], float]:
    """Reads the CPU time so far of each process of a local pool, by its part and process id.

    Empty if one of them has ended: the time that it used is not known.
    """
    if local is None:
        return {}
    try:
        processes = [("server", psutil.Process(local.server_pid))]
        processes += [("manager", psutil.Process(local.manager_pid))]
        for keeper in map(psutil.Process, local.worker_pids):
            processes += [("worker", process) for process in keeper.children(recursive=True)]
        return {(part, process.pid): _own(process) for part, process in processes}
    except psutil.NoSuchProcess:
        return {}


def _own(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _cpu_used(
    before: dict[tuple[str, int], float], after: dict[tuple[str, int], float]
) -> tuple[float, float, float]:
    """Computes the CPU time that server, manager and workers used in between; zeros if unknown."""
    known = before and before.keys() <= after.keys()
    used = {key: seconds - before.get(key, 0.0) for key, seconds in after.items() if known}
    server, manager, worker = (
        sum(seconds for (part, _), seconds in used.items() if part == name)
        for name in ("server", "manager", "worker")
    )
    return server, manager, worker
