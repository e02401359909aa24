"""Where a worker process begins: the keeper stays behind, small; then the worker is loaded."""

from __future__ import annotations

from kestrelctl.worker.keeper import run_kept
from kestrelctl.worker.options import WorkerOptions


def run(options: WorkerOptions) -> int:
    """Runs a worker under a keeper; returns its exit status, in both processes."""

    def main() -> int:
        from kestrelctl.worker import daemon

        return daemon.run(options)

    return run_kept(main)
