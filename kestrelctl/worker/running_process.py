"""The process of an attempt, from its start to its completion."""

from __future__ import annotations

import math
import resource

from kestrelctl.worker.executor import CommandSpec, Completion
from kestrelctl.worker.sandbox import Sandbox
from kestrelctl.worker.usage import peak_bytes


class RunningProcess:
    """The process of an attempt: first that of the task itself, then that of its cleanup."""

    __slots__ = (
        "command",
        "completion",
        "deadline",
        "left_something",
        "peak_bytes",
        "pid",
        "reason",
        "sample_at",
        "sandbox",
        "since",
        "started_at",
        "terminated",
    )

    def __init__(self, command: CommandSpec, sandbox: Sandbox, started_at: float) -> None:
        self.command = command
        self.sandbox = sandbox
        self.pid = 0  # of what runs now; 0 if nothing could be started
        self.started_at = started_at
        self.since = 0.0  # start of what runs now, monotonic
        self.deadline = math.inf
        self.terminated = False  # SIGTERM was sent; SIGKILL is next
        self.reason = ""
        self.peak_bytes = 0
        self.sample_at = 0.0
        self.left_something = False
        self.completion: Completion | None = None  # of the task itself, while its cleanup runs

    def completed(
        self, code: int, usage: resource.struct_rusage, inherited: int, now: float
    ) -> Completion:
        """How the task ended, still without its outputs.

        Args:
            code: exit code, or minus the signal.
            usage: from wait4.
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
            usage.ru_utime + usage.ru_stime,
            peak_bytes(usage, inherited, self.peak_bytes),
        )
