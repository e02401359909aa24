"""Serves the metrics of a manager."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kestrelctl.core.environments.started import EnvironmentPhase
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.service import Service
from kestrelctl.metrics.flock_families import FlockNumbers
from kestrelctl.metrics.metrics_server import MetricsServer
from kestrelctl.metrics.pool_families import EnvironmentNumbers, ManagerProcessNumbers, PoolFamilies
from kestrelctl.metrics.readers import Readers


async def serve_metrics(
    listening: socket.socket,
    readers: Readers,
    service: Service,
    flock: Callable[[], FlockNumbers],
    sends_waiting: Callable[[], Mapping[str, int]],
    properties: Callable[[], Sequence[tuple[str, str, PropertySummary]]],
    environments: EnvironmentService | None = None,
) -> MetricsServer:
    """Serves the metrics of a manager; the caller stops the server.

    Args:
        listening: the socket at which they are served.
        readers: who may read them.
        flock: tells how that of the pool stands; asked once for each scrape.
        sends_waiting: by kind, how many messages wait for a limit or for room in the connection.
        environments: None if the pool has none.
        properties: the sums of those that were chosen; asked once for each scrape.
    """

    def numbers() -> ManagerProcessNumbers:
        return ManagerProcessNumbers(
            connected=service.pool.connected,
            store=service.store.statistics(),
            store_error=service.store_error,
            commits=service.commit_seconds,
            certificate=service.session.certificate(),
            conflicts=service.conflicts,
            mails=service.mails,
            flock=flock(),
            sends_waiting=sends_waiting(),
            properties=properties(),
            environments={} if environments is None else environment_numbers(environments),
            managers=service.managers(),
        )

    families = PoolFamilies(service.pool, service.stanzas, numbers, service.now)
    server = MetricsServer("kestrel_", families, lambda: why_not_ready(service), readers)
    await server.start(listening)
    return server


def environment_numbers(desk: EnvironmentService) -> dict[str, EnvironmentNumbers]:
    """Counts the environments of each class, and what waits for them."""
    phases = Counter((each.of, each.phase) for each in desk.there())
    return {
        name: EnvironmentNumbers(
            phases={phase.value: phases[name, phase] for phase in EnvironmentPhase},
            waiting=desk.demand.needed[name],
            failing_hosts=len(desk.failures.of_class(name)),
            started=desk.counts.started[name],
            failed=desk.counts.failed[name],
        )
        for name in desk.classes
    }


def why_not_ready(service: Service) -> str:
    """Tells why no job could be accepted now; empty if one could."""
    if service.store_error:
        return f"the store cannot be written: {service.store_error}"
    if not service.pool.connected:
        return "not connected to the XMPP server"
    return ""
