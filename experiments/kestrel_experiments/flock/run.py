"""Runs the live experiment of the source: pools with real servers, each with its trace."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from kestrel_experiments.flock.audit import audit
from kestrel_experiments.flock.driver import TraceDriver
from kestrel_experiments.flock.faults import FAULTS, do_faults
from kestrel_experiments.flock.pools import FlockPools, flocked_pools, lone_pools
from kestrel_experiments.flock.result import FlockResult, FlockRun, Mode
from kestrel_experiments.flock.source import POOLS, SourcePool, traces
from kestrel_experiments.flock.statistics import lent, starts_elsewhere, together, waits_of
from kestrelctl.bench.machine import BenchMachine
from kestrelctl.errors import UsageError
from kestrelctl.local.control import connect_local

#: Time from when all pools are up until the moment 0 of the trace: a flock has found itself then.
_BEFORE_SECONDS = 3.0
#: Longer than any task: what runs elsewhere ends there, as in the source, whose machines
#: were nobody's desktop.
RECLAIM_UNITS = 20.0
#: Nothing shorter can be told from what the machine itself needs for a task.
LEAST_UNIT_SECONDS = 0.001


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan of what to measure.

    Attributes:
        modes: the modes in which each seed is run.
        seeds: how many, from `first_seed` on.
        unit_seconds: how long a unit of the trace is, and a minute of the flock.
        reclaim_units: how long tasks of other pools may go on while own ones wait.
        at_once: number of runs side by side.
        delays_ms: delays between each two servers, each way; runs with flocking are made for each.
        kill: whether a manager and a server are killed in the middle of runs with flocking.
        most_tasks: number of tasks of each pool, the first ones; None for all.
        pools: the pools that take part.
    """

    modes: tuple[Mode, ...] = ("without", "with")
    seeds: int = 1
    first_seed: int = 1
    unit_seconds: float = 0.05
    reclaim_units: float = RECLAIM_UNITS
    at_once: int = 1
    delays_ms: tuple[float, ...] = (0.0,)
    kill: bool = False
    most_tasks: int | None = None
    pools: tuple[SourcePool, ...] = POOLS


class PlannedFlockRun(NamedTuple):
    """One run of a plan."""

    mode: Mode
    seed: int
    delay_ms: float


#: (run, its number from 1 on, of how many): called when a run has ended.
OnFlockRun = Callable[[FlockRun, int, int], None]


def planned_runs(plan: ExperimentPlan) -> list[PlannedFlockRun]:
    """Lists the runs of a plan, seed by seed, so that a plan that ends early has whole pairs.

    Raises:
        UsageError: the plan makes no sense.
    """
    if not plan.modes or plan.seeds < 1 or plan.at_once < 1:
        raise UsageError("an experiment needs at least one seed, one mode, and one run at once")
    if plan.unit_seconds < LEAST_UNIT_SECONDS:
        raise UsageError(
            f"a unit of {plan.unit_seconds:g} s is too short",
            cause="starting a task takes longer than the task",
            hint="a unit of 0.05 takes 75 s a run",
        )
    flocked = [mode for mode in plan.modes if mode != "without"]
    if not flocked and (plan.kill or any(plan.delays_ms)):
        raise UsageError(
            "--kill and --delay are about pools that flock", hint="leave --without out"
        )
    found = []
    for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
        if "without" in plan.modes:
            found.append(PlannedFlockRun("without", seed, 0.0))
        found += [
            PlannedFlockRun(mode, seed, delay_ms) for mode in flocked for delay_ms in plan.delays_ms
        ]
    return found


class Experiment:
    """Carries out a plan, and keeps what it has found, also if it ends early.

    Args:
        on_run: is told of each run that has ended.
    """

    def __init__(self, plan: ExperimentPlan, on_run: OnFlockRun | None = None) -> None:
        self.plan = plan
        self.planned = planned_runs(plan)
        self.runs: list[FlockRun] = []
        self._on_run = on_run

    async def run(self) -> None:
        """Makes all runs, as many at once as the plan says.

        Raises:
            KestrelError: one failed; the others are ended.
        """
        waiting = iter(self.planned)
        lanes = [
            asyncio.ensure_future(self._lane(waiting))
            for _ in range(min(self.plan.at_once, len(self.planned)))
        ]
        try:
            await asyncio.gather(*lanes)
        finally:
            for lane in lanes:
                lane.cancel()
            await asyncio.gather(*lanes, return_exceptions=True)

    async def _lane(self, waiting: Iterator[PlannedFlockRun]) -> None:
        for planned in waiting:
            run = await one_flock_run(self.plan, planned)
            self.runs.append(run)
            if self._on_run is not None:
                self._on_run(run, len(self.runs), len(self.planned))

    def result(
        self, machine: BenchMachine, command: str | None, ended_by: str | None = None
    ) -> FlockResult:
        """Returns the result of all runs so far, in the order of the plan.

        Args:
            ended_by: what ended it before its last run, e.g. `SIGTERM`.
        """
        early = None
        if ended_by is not None:
            early = f"{ended_by} after {len(self.runs)} of {len(self.planned)} runs"
        place = {planned: number for number, planned in enumerate(self.planned)}
        return FlockResult(
            machine=machine,
            unit_seconds=self.plan.unit_seconds,
            runs=sorted(
                self.runs, key=lambda run: place[PlannedFlockRun(run.mode, run.seed, run.delay_ms)]
            ),
            command=command,
            ended_early=early,
            most_tasks=self.plan.most_tasks,
        )


async def one_flock_run(plan: ExperimentPlan, planned: PlannedFlockRun) -> FlockRun:
    """Runs one trace on pools that are made for it.

    Raises:
        KestrelError: a pool did not come up, or made no progress.
    """
    drawn = traces(planned.seed)
    tasks = {pool.name: drawn[pool.name][: plan.most_tasks] for pool in plan.pools}
    async with contextlib.AsyncExitStack() as stack:
        pools = await stack.enter_async_context(_pools(plan, planned))
        drivers, admins = {}, {}
        for name, state in pools.states.items():
            admins[name] = await stack.enter_async_context(connect_local(state, admin=True))
            connection = await stack.enter_async_context(connect_local(state))
            drivers[name] = TraceDriver(
                connection, name, state.user, tasks[name], plan.unit_seconds
            )
        begin = asyncio.get_running_loop().time() + _BEFORE_SECONDS
        began_at = time.time() + _BEFORE_SECONDS
        lasts = max(task.at for each in tasks.values() for task in each) * plan.unit_seconds
        faults = asyncio.ensure_future(_faults(plan, planned, pools, begin, lasts))
        try:
            await asyncio.gather(*(driver.submit_all(begin) for driver in drivers.values()))
            done = await faults
        finally:
            faults.cancel()
        await asyncio.gather(*(driver.all_ended() for driver in drivers.values()))
        told = {
            name: await driver.records(pools.states[name].domain, admins[name])
            for name, driver in drivers.items()
        }
    expected = {name: driver.expected for name, driver in drivers.items()}
    waits = [waits_of(told[name], plan.unit_seconds, began_at) for name in drivers]
    late = [seconds for driver in drivers.values() for seconds in driver.late_seconds]
    return FlockRun(
        mode=planned.mode,
        seed=planned.seed,
        delay_ms=planned.delay_ms,
        waits=[*waits, together(waits)],
        audit=audit(expected, told),
        late_ms=round(1000 * max(late, default=0.0), 1),
        lent=lent(told),
        starts=starts_elsewhere(told),
        faults=done,
    )


def _pools(
    plan: ExperimentPlan, planned: PlannedFlockRun
) -> contextlib.AbstractAsyncContextManager[FlockPools]:
    names = [pool.name for pool in plan.pools]
    if planned.mode == "without":
        return lone_pools(names)
    return flocked_pools(
        names,
        plan.unit_seconds,
        planned.delay_ms / 1000,
        reclaim_minutes=plan.reclaim_units,
        by_relays=plan.kill,
        is_fixed=planned.mode == "static",
    )


async def _faults(
    plan: ExperimentPlan,
    planned: PlannedFlockRun,
    pools: FlockPools,
    begin: float,
    tasks_seconds: float,
) -> list[str]:
    if not plan.kill or planned.mode == "without":
        return []
    return await do_faults(FAULTS, pools, begin, tasks_seconds)
