"""Serves the metrics of one process, and measures the lag of its event loop."""

from __future__ import annotations

import socket
from collections.abc import Callable

from kestrelctl.metrics.endpoint import Endpoint
from kestrelctl.metrics.exposition import Exposition, Families
from kestrelctl.metrics.lag import LoopLag
from kestrelctl.metrics.readers import Readers


class MetricsServer:
    """Serves a process's metrics from `start` to `stop`.

    Args:
        prefix: that of the names: `kestrel_` or `kestrel_worker_`.
        families: what this kind of process has to tell; asked once for each scrape.
        why_not_ready: why it cannot do its work now; empty if it can.
        readers: whom it answers.
    """

    def __init__(
        self,
        prefix: str,
        families: Families,
        why_not_ready: Callable[[], str],
        readers: Readers,
    ) -> None:
        self._lag = LoopLag()
        self.exposition = Exposition(prefix, families, self._lag)
        self._endpoint = Endpoint(self.exposition.render, why_not_ready, readers)

    async def start(self, listening: socket.socket) -> None:
        """Starts to serve.

        Args:
            listening: see `endpoint.listen`.
        """
        await self._endpoint.start(listening)
        self._lag.start()

    async def stop(self) -> None:
        """Stops serving."""
        self._lag.stop()
        await self._endpoint.stop()
