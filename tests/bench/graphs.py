"""Jobs that wait for jobs, on an idle pool: `python tests/bench/graphs.py [rounds]`.

A chain of 1,000 jobs of one task, each after the one before; 100 layers of 100 such jobs, each
after all of the layer before; and the tasks of the layers as one array. Of the layers also how long
it took from sending them to the acknowledgement. In turn, as often as is asked; the middle of each
is printed.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from kestrelctl.client.graph_sending import lines_of, send_graph
from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.answers import GraphJob, Jobs
from kestrelctl.protocol.requests import SubmitJob, Watch
from kestrelctl.xmpp.user import UserConnection

TRUE = JobSpec(program=Program(argv=("/bin/true",)))
CHAIN = [GraphJob(spec=TRUE, after=(After(n - 1, n - 1),) if n else ()) for n in range(1_000)]
LAYERS = [
    GraphJob(spec=TRUE, after=(After(100 * n - 100, 100 * n - 1),) if n else ())
    for n in range(100)
    for _ in range(100)
]


async def graph(user: UserConnection, jobs: list[GraphJob], key: str) -> tuple[float, float]:
    """Seconds from sending jobs to the acknowledgement, and from that to the end of the last."""
    lines = lines_of(jobs)
    began = time.perf_counter()
    answer = await send_graph(user, lines, key)
    sent = time.perf_counter()
    last = answer.job_id + len(jobs) - 1
    await ended(user, str(last))
    await ended(user, f"{last - 99}-{last}")
    return sent - began, time.perf_counter() - sent


async def array(user: UserConnection, tasks: int) -> float:
    """The same of one job of so many tasks, from the acknowledgement."""
    await user.ask(SubmitJob(spec=JobSpec(program=TRUE.program, count=tasks)))
    sent = time.perf_counter()
    await ended(user, "last")
    return time.perf_counter() - sent


async def ended(user: UserConnection, jobs: str) -> None:
    """Waits for the ends of jobs."""
    while True:
        answer = await user.ask(Watch(jobs=jobs))
        assert isinstance(answer, Jobs)
        if all(view.state in ("done", "failed", "cancelled") for view in answer.jobs):
            assert {view.state for view in answer.jobs} == {"done"}
            return
        await asyncio.sleep(0.05)


async def measure(rounds: int) -> None:
    """Prints what came of it."""
    chain, layers, one, sending = [], [], [], []
    async with throw_away_pool(1) as state, connect_local(state) as user:
        await array(user, 1_000)
        for turn in range(rounds):
            print(f"round {turn + 1} of {rounds}", file=sys.stderr)
            chain.append((await graph(user, CHAIN, f"chain {turn}"))[1])
            sent, ran = await graph(user, LAYERS, f"layers {turn}")
            sending.append(sent)
            layers.append(ran)
            one.append(await array(user, len(LAYERS)))
    middle = statistics.median
    print(f"chain: {len(CHAIN) / middle(chain):,.0f} jobs/s")
    print(f"layers: {len(LAYERS) / middle(layers):,.0f} jobs/s, sent in {middle(sending):.2f} s")
    print(f"one array: {len(LAYERS) / middle(one):,.0f} tasks/s")
    print(f"layers to array: {middle(one) / middle(layers):.2f}")


if __name__ == "__main__":
    asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
