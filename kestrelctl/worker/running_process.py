"""The process of an attempt, from its start to its completion."""

from __future__ import annotations

import asyncio
import math
import resource

from kestrelctl.worker.executor import CommandSpec, Completion
from kestrelctl.worker.isolation.rung import TaskLimits
from kestrelctl.worker.sandbox import Sandbox
from kestrelctl.worker.scratch_size import ScratchSize
from kestrelctl.worker.usage import peak_bytes


class RunningProcess:
    """The process of an attempt: first that of the task itself, then that of its cleanup."""

    __slots__ = (
        "code",
        "command",
        "completion",
        "cpu_seconds",
        "deadline",
        "left_something",
        "limits",
        "max_rss",
        "peak_bytes",
        "pid",
        "reason",
        "sandbox",
        "scratch",
        "since",
        "staging",
        "started_at",
        "summed_bytes",
        "terminated",
    )

    def __init__(
        self, command: CommandSpec, sandbox: Sandbox, limits: TaskLimits, started_at: float
    ) -> None:
        self.command = command
        self.sandbox = sandbox
        self.limits = limits
        self.scratch = ScratchSize(f"{sandbox.place}/scratch")
        self.pid = 0  # of what runs now; 0 if nothing could be started
        self.started_at = started_at
        self.since = 0.0  # start of what runs now, monotonic
        self.deadline = math.inf
        self.terminated = False  # SIGTERM was sent; SIGKILL is next
        self.reason = ""
        self.code: int | None = None  # of a process that leaves one behind which is to end first
        self.cpu_seconds = 0.0
        self.max_rss = 0  # as the kernel counts it, in its unit
        self.peak_bytes = 0
        self.summed_bytes = 0  # resident memory of all processes when the peak was last measured
        self.left_something = False
        self.completion: Completion | None = None  # of the task itself, while more is done for it
        self.staging: asyncio.Task[None] | None = None  # while what it left is stored

    def add(self, usage: resource.struct_rusage) -> None:
        """Counts what a process of the task has used, as wait4 tells it."""
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.max_rss = max(self.max_rss, usage.ru_maxrss)

    def completed(self, code: int, inherited: int, now: float) -> Completion:
        """How the task ended, still without its outputs.

        Args:
            code: exit code, or minus the signal.
            inherited: see `peak_bytes`.
            now: monotonic seconds.
        """
        return Completion(
            self.command.number,
            code if code >= 0 else None,
            -code if code < 0 else None,
            self.reason,
            self.started_at,
            now - self.since,
            self.cpu_seconds,
            peak_bytes(self.max_rss, inherited, self.peak_bytes),
        )
