"""Serves the metrics of a worker process."""

from __future__ import annotations

from collections.abc import Sequence

from kestrelctl.metrics.endpoint import listen
from kestrelctl.metrics.metrics_server import MetricsServer
from kestrelctl.metrics.readers import Readers
from kestrelctl.metrics.worker_families import InputNumbers, WorkerFamilies, WorkerProcessNumbers
from kestrelctl.worker.process import WorkerProcess
from kestrelctl.worker.run.process_executor import ProcessExecutor


async def serve_metrics(
    address: str, allowed: Sequence[str], process: WorkerProcess
) -> MetricsServer:
    """Serves the metrics of a worker process; whoever started it stops it.

    Args:
        address: HOST:PORT.
        allowed: addresses and networks that may read them, beside this machine.

    Raises:
        UsageError: one of them is no address, or no network.
        KestrelError: the address cannot be had.
    """
    readers = Readers(allowed)
    listening = listen(address)
    families = WorkerFamilies(lambda: numbers(process))
    server = MetricsServer("kestrel_worker_", families, lambda: why_not_ready(process), readers)
    await server.start(listening)
    return server


def numbers(process: WorkerProcess) -> WorkerProcessNumbers:
    """The numbers of the process at this moment."""
    sessions = process.sessions
    agents = [worker.agent for worker in sessions]
    offered: dict[str, float] = {}
    for worker in sessions:
        for name, value in worker.ad.assets.items():
            offered[name] = offered.get(name, 0.0) + value
    return WorkerProcessNumbers(
        sessions=len(sessions),
        welcomed=sum(agent.welcomed for agent in agents),
        running=sum(len(agent.running) for agent in agents),
        queued=sum(agent.waiting for agent in agents),
        finished=process.finished,
        unreported=sum(len(agent.unacknowledged) for agent in agents),
        spool_bytes=process.spool_bytes,
        spool_degraded=process.spool_degraded,
        reconnects=sum(max(0, worker.logins - 1) for worker in sessions),
        assets=offered,
        runs=process.runs,
        spawns=process.executor.start_seconds,
        stanzas=process.stanzas,
        inputs=_inputs(process),
        stored=process.stored,
        certificate=next((found for s in sessions if (found := s.session.certificate())), None),
    )


def _inputs(process: WorkerProcess) -> InputNumbers | None:
    executor = process.executor
    cache = executor.inputs if isinstance(executor, ProcessExecutor) else None
    if cache is None:
        return None
    return InputNumbers(
        uses={"hit": cache.hits, "miss": cache.misses},
        fetched_bytes=cache.fetched_bytes,
        cache_bytes=cache.used_bytes,
        limit_bytes=cache.limit_bytes,
    )


def why_not_ready(process: WorkerProcess) -> str:
    """The reason why no task could be taken now; empty if it could."""
    if any(worker.agent.welcomed for worker in process.sessions):
        return ""
    return "the pool has welcomed no session"
