"""The metrics of a worker process, of all its sessions together."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from prometheus_client.core import Metric

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.metrics.families import (
    by,
    certificate_family,
    counter,
    counters,
    gauge,
    gauges,
    histogram,
    stanza_families,
    stored_families,
)
from kestrelctl.metrics.stanzas import StanzaCounts


class InputNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a worker process for the inputs of tasks.

    Attributes:
        uses: inputs that tasks have asked for, by what was found: hit, miss.
        cache_bytes, limit_bytes: what the cache takes, and the most that it takes.
    """

    uses: dict[str, int]
    fetched_bytes: int
    cache_bytes: int
    limit_bytes: int


class WorkerProcessNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process at the moment of a scrape.

    Attributes:
        welcomed: sessions that the pool has accepted.
        finished: results by outcome: done, failed, killed, unable.
        assets: what all sessions together offer, in natural units.
        unreported: results that the manager has not acknowledged.
        inputs: None where tasks have none.
        stored: what was put into the file share.
    """

    sessions: int
    welcomed: int
    running: int
    queued: int
    finished: dict[str, int]
    unreported: int
    spool_bytes: int
    spool_degraded: bool
    reconnects: int
    assets: dict[str, float]
    runs: Histogram
    spawns: Histogram
    stanzas: StanzaCounts
    stored: StoredTotals
    inputs: InputNumbers | None = None
    certificate: tuple[str, float] | None = None


class WorkerFamilies:
    """The families of a worker process; call it for those of this moment.

    Args:
        numbers: asked once for each scrape.
    """

    def __init__(self, numbers: Callable[[], WorkerProcessNumbers]) -> None:
        self._numbers = numbers

    def __call__(self) -> Iterator[Metric]:
        found = self._numbers()
        sessions = {"online": found.welcomed, "offline": found.sessions - found.welcomed}
        yield gauges(
            "kestrel_worker_sessions",
            "Sessions that the pool has accepted, and the others.",
            ("state",),
            by(sessions),
        )
        yield counter(
            "kestrel_worker_reconnects", "Times that a session came back.", found.reconnects
        )
        yield gauges("kestrel_worker_offered", "What it offers.", ("asset",), by(found.assets))
        yield gauge("kestrel_worker_tasks_running", "Tasks that run.", found.running)
        yield gauge("kestrel_worker_tasks_queued", "Tasks that wait behind them.", found.queued)
        yield counters(
            "kestrel_worker_tasks_finished",
            "Attempts that ended.",
            ("outcome",),
            by(found.finished),
        )
        yield histogram(
            "kestrel_worker_task_run_seconds",
            "Run time of attempts that succeeded or failed.",
            found.runs,
        )
        yield histogram("kestrel_worker_spawn_seconds", "Time to start a process.", found.spawns)
        yield gauge(
            "kestrel_worker_unreported_results",
            "Results that the manager has not acknowledged.",
            found.unreported,
        )
        yield gauge("kestrel_worker_spool_bytes", "The spool on disk.", found.spool_bytes)
        yield gauge(
            "kestrel_worker_spool_degraded",
            "1 while results are only in memory.",
            found.spool_degraded,
        )
        yield from stored_families("kestrel_worker_", found.stored)
        if found.inputs is not None:
            yield from _input_families(found.inputs)
        yield certificate_family(found.certificate)
        yield from stanza_families("kestrel_worker_", found.stanzas)


def _input_families(found: InputNumbers) -> Iterator[Metric]:
    yield counters(
        "kestrel_worker_inputs",
        "Inputs of tasks, by whether the cache had them or they were fetched.",
        ("cache",),
        by(found.uses),
    )
    yield counter(
        "kestrel_worker_input_fetched_bytes",
        "What was fetched of inputs.",
        found.fetched_bytes,
    )
    yield gauge("kestrel_worker_input_cache_bytes", "The cache on disk.", found.cache_bytes)
    yield gauge(
        "kestrel_worker_input_cache_limit_bytes",
        "The most that the cache takes.",
        found.limit_bytes,
    )
