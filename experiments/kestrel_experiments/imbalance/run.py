"""Shares the hosts of a real pool out among three classes of work, of which one has most of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from kestrel_experiments.flock.driver import TraceDriver
from kestrel_experiments.flock_simulation.trace import Arrival
from kestrel_experiments.imbalance.class_load import (
    ImbalancePlan,
    Sharing,
    class_load,
    environment_classes,
    tag_of,
)
from kestrel_experiments.imbalance.environment_watch import EnvironmentWatch
from kestrel_experiments.imbalance.result import ImbalanceRun, run_of
from kestrelctl.bench.stall import STALL_SECONDS
from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.errors import KestrelError
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.answers import EnvironmentList
from kestrelctl.protocol.requests import ListEnvironments
from kestrelctl.xmpp.user import UserConnection

#: Time between two looks at the environments that there are: none starts in less.
LOOK_SECONDS = 0.2
_POOL = "load"


def class_file(classes: Iterable[EnvironmentClass]) -> str:
    """Writes the classes as a file for a manager."""
    return "".join(
        f"[environment.{each.name}]\n"
        f'kind = "{each.kind}"\n'
        f"tags = {json.dumps(each.tags)}\n"
        f"resources = {{ cpus = {each.resources.cpus:g} }}\n"
        f"minimum = {each.minimum}\n"
        f"maximum = {each.maximum}\n"
        f"start_seconds = {each.start_seconds:g}\n"
        f"idle_seconds = {each.idle_seconds:g}\n\n"
        for each in classes
    )


async def imbalance_run(plan: ImbalancePlan, sharing: Sharing, seed: int) -> ImbalanceRun:
    """Makes a run on a pool that is made for it.

    Raises:
        KestrelError: the pool did not come up, or made no progress, or was done too soon.
    """
    tasks = class_load(plan, seed)
    classes = environment_classes(plan, sharing)
    watch = EnvironmentWatch()
    with tempfile.TemporaryDirectory(prefix="kestrel-") as directory:
        file = Path(directory, "environments.toml")
        file.write_text(class_file(classes))
        async with (
            throw_away_pool(plan.hosts, metrics=False, environments=(file,)) as pool,
            connect_local(pool) as user,
        ):
            driver = TraceDriver(
                user,
                _POOL,
                pool.user,
                [Arrival(task.at, task.seconds) for task in tasks],
                1.0,
                [tag_of(task.of) for task in tasks],
            )
            watching = asyncio.ensure_future(_watch(user, watch))
            try:
                await _all_are_ready(user, plan.hosts, sum(each.minimum for each in classes), watch)
                began_at = time.time()
                await driver.submit_all(asyncio.get_running_loop().time())
                await driver.all_ended()
                told = await driver.records(pool.domain, user)
            finally:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
    return run_of(
        plan,
        sharing,
        seed,
        tasks,
        [driver.key(number) for number in range(len(tasks))],
        began_at,
        told,
        watch.spans.values(),
        expected=driver.expected,
        late_ms=round(1000 * max(driver.late_seconds, default=0.0), 1),
    )


async def _watch(user: UserConnection, watch: EnvironmentWatch) -> None:
    while True:
        answer = await user.ask(ListEnvironments())
        assert isinstance(answer, EnvironmentList)
        watch.look(answer.environments, time.time())
        await asyncio.sleep(LOOK_SECONDS)


async def _all_are_ready(
    user: UserConnection, hosts: int, environments: int, watch: EnvironmentWatch
) -> None:
    """Waits until all hosts make environments, and those that always stay are there."""
    deadline = time.monotonic() + STALL_SECONDS
    while time.monotonic() < deadline:
        answer = await user.ask(ListEnvironments())
        assert isinstance(answer, EnvironmentList)
        fewest = min(len(each.hosts) for each in answer.classes)
        if fewest >= hosts and watch.ready() >= environments:
            return
        await asyncio.sleep(LOOK_SECONDS)
    raise KestrelError(
        "the hosts did not come up",
        cause=f"{fewest:,} of {hosts:,} make environments, {watch.ready():,} are there",
    )
