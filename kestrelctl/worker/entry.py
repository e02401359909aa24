"""Begins a worker process: the keeper stays behind, small; then the worker is loaded."""

from __future__ import annotations

from kestrelctl.worker.keeper import run_kept
from kestrelctl.worker.options import WorkerOptions
from kestrelctl.worker.run.orphans import PR_SET_DUMPABLE, prctl


def run(options: WorkerOptions) -> int:
    """Runs a worker under a keeper; returns its exit status, in both processes."""

    def main() -> int:
        from kestrelctl.worker import daemon

        return daemon.run(options)

    # Tasks run as the same user and could otherwise look for the password in our memory (ptrace(2),
    # "Ptrace access mode checking"). It ends with exec, so it does not bind the tasks.
    prctl(PR_SET_DUMPABLE, 0)
    return run_kept(main)
