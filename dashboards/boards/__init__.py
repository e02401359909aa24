"""What the dashboards show."""

from __future__ import annotations

from boards import (
    bench,
    environments,
    flock,
    overview,
    resources,
    server,
    throughput,
    waiting,
    workers,
)

BOARDS = (
    overview.BOARD,
    throughput.BOARD,
    workers.BOARD,
    waiting.BOARD,
    server.BOARD,
    resources.BOARD,
    flock.BOARD,
    environments.BOARD,
    bench.BOARD,
)
