"""A launch on its way from the queue to its report."""

from __future__ import annotations

import math
import resource

from kestrelctl.worker.executor import Command, Completion
from kestrelctl.worker.sandbox import Sandbox
from kestrelctl.worker.usage import peak_bytes


class RunningProcess:
    """A launch on its way from the queue to its report."""

    __slots__ = (
        "deadline",
        "launch",
        "left_something",
        "peak_bytes",
        "pid",
        "reason",
        "report",
        "sample_at",
        "since",
        "slot",
        "started_at",
        "terminated",
    )

    def __init__(self, launch: Command, slot: Sandbox) -> None:
        self.launch = launch
        self.slot = slot
        self.pid = 0  # of what runs now: the task itself, then its cleanup
        self.started_at = 0.0
        self.since = 0.0  # start of what runs now, monotonic
        self.deadline = math.inf
        self.terminated = False  # SIGTERM was sent; SIGKILL is next
        self.reason = ""
        self.peak_bytes = 0
        self.sample_at = 0.0
        self.left_something = False
        self.report: Completion | None = None  # of the task itself, while its cleanup runs

    def ended(
        self, code: int, usage: resource.struct_rusage, inherited: int, now: float
    ) -> Completion:
        """The report, still without outputs.

        Args:
            code: exit code, or minus the signal.
            usage: from wait4.
            inherited: see `peak_bytes`.
            now: monotonic seconds.
        """
        return Completion(
            self.launch.number,
            code if code >= 0 else None,
            -code if code < 0 else None,
            self.reason,
            self.started_at,
            now - self.since,
            usage.ru_utime + usage.ru_stime,
            peak_bytes(usage, inherited, self.peak_bytes),
        )
