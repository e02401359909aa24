"""A pool to which triggers look, and the example of their source."""

from __future__ import annotations

from typing import Any

from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.core.triggers.expression import (
    TableView,
)
from kestrelctl.core.triggers.pool_views import (
    PoolSnapshot,
    WatchedEnvironments,
    WatchedGroup,
    WatchedJob,
    WatchedQueue,
    WatchedUnmet,
    WatchedWorker,
)

SOURCES_EXAMPLE = """\
[client_query]
expr = { len(manager.clients) != 0 }
cmd = { sender.send_get_property() }
ticks = 30
on_update_check = no
"""


def worker(name: str, **properties: Any) -> WatchedWorker:
    return WatchedWorker(
        name=name, host=f"h-{name}", state="idle", tags=("linux",), groups=("gpu",), cpus=4.0,
        memory=8e9, running=0, queued=0, properties=properties,
    )  # fmt: skip


WORKERS = [worker("w1", load=0.5, users=0), worker("w2", load=3.5, users=1), worker("w3")]


JOB = WatchedJob(id=7, name="fit", owner="ada", priority=100, held=False, waiting=100, running=3)


SUMMARY = PropertySummary(2, 1, 0.5, 2.0, 3.5)


POOL = PoolSnapshot(
    at=5.0,
    workers=WORKERS,
    groups=TableView(
        ["gpu"],
        lambda _: WatchedGroup(
            workers=WORKERS[:2], properties=TableView(["load"], lambda _: SUMMARY)
        ),
    ),
    properties=TableView(["load"], lambda _: SUMMARY),
    queue=WatchedQueue(jobs=[JOB], waiting=100, running=3),
    unmet=WatchedUnmet(tasks=7, shapes={"1 cpu": 7}),
    environments={"venv": WatchedEnvironments(starting=0, ready=1, stopping=0, waiting=2)},
)
