"""From a task that needs a tag nobody has to its start: `tests/bench/environments.py KIND ROUNDS`.

KIND is `venv` or `podman` (as root; the image is made here, of a shell and mounts). What a recipe
makes is there before the first round, and no environment is there before any. Prints how long it
took, and how busy the machine was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import test_containers_on_demand as containers
from daemons import spawning
from environment_house import House, house_of
from podman_apart import podman_apart
from puppet import run_job
from servers import running

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer

VENV = """
[environment.box]
kind = "venv"
recipe = "nothing.txt"
tags = ["box"]
idle_seconds = 1
"""


#: Says when it runs, and what its worker and the worker's keeper have used until then.
TASK = """
date +%s.%N
process=$PPID
for each in 1 2; do
    read -r line </proc/$process/stat
    set -- $line
    echo ${14} ${15}
    process=$4
done
"""


class Round(NamedTuple):
    """What it took until the task's program ran, in seconds; `cpu` of the environment's worker."""

    wall: float
    cpu: float


async def one_round(house: House) -> Round:
    began = time.time()
    spec = JobSpec(program=Program(argv=("sh", "-c", TASK)), requires=("BOX",))
    job = await run_job(house.user, spec, seconds=120)
    log = await house.user.ask(rq.Logs(job=str(job.job_id), task_id=0))
    assert isinstance(log, an.Log)
    while await house.there():
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    at, *ticks = map(float, log.data.split())
    return Round(at - began, sum(ticks) / os.sysconf("SC_CLK_TCK"))


async def measure(kind: str, rounds: int, directory: Path) -> None:
    with contextlib.ExitStack() as stack:
        before: tuple[str, ...] = ()
        classes = VENV
        if kind == "podman":
            tree = containers.tree(directory / "tree")
            apart = podman_apart(directory, tree, containers.IMAGE, containers.mounts())
            before = stack.enter_context(apart)
            classes = containers.CLASSES
        spawn = stack.enter_context(spawning())
        async with running(PrivateServer.create(directory / "xmpp")) as server:
            how = {"before": before, "kinds": (kind,)}
            async with house_of(server, spawn, directory, classes, **how) as house:
                first = await one_round(house)
                took = sorted([await one_round(house) for _ in range(rounds)])
    wall, cpu = [each.wall for each in took], statistics.median(each.cpu for each in took)
    load = os.getloadavg()[0]
    print(
        f"{kind}: {rounds} rounds: {wall[0]:.2f} to {wall[-1]:.2f} s, median"
        f" {statistics.median(wall):.2f} s, of which its worker computed {cpu:.2f} s; the first,"
        f" which prepared it, {first.wall:.2f} s; load of the machine {load:.1f} on"
        f" {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="kestrel-bench-") as place:
        kind = sys.argv[1] if len(sys.argv) > 1 else "venv"
        rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
        asyncio.run(measure(kind, rounds, Path(place)))
