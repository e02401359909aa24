"""The process of an attempt, from its start to its completion."""

from __future__ import annotations

import asyncio
import math
import resource

from kestrelctl.core.model.end_reason import NO_REASON
from kestrelctl.core.model.stage import RUN
from kestrelctl.worker.executor import CommandSpec, Completion
from kestrelctl.worker.isolation.rung import TaskLimits
from kestrelctl.worker.sandbox import FileActions, Sandbox
from kestrelctl.worker.scratch_size import ScratchSize
from kestrelctl.worker.stage_course import StageCourse
from kestrelctl.worker.usage import peak_bytes

#: What runs beside the stages of an attempt.
CLEANUP = "cleanup"


class RunningProcess:
    """The process of an attempt: that of the task itself, of a stage before or after it, or of its
    cleanup.
    """

    __slots__ = (
        "code",
        "command",
        "completion",
        "course",
        "cpu_seconds",
        "deadline",
        "furnished",
        "killed",
        "left_something",
        "limits",
        "max_rss",
        "part",
        "pause",
        "peak_bytes",
        "pid",
        "ran",
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
        self.course = StageCourse(command.program.stages) if command.program.stages else None
        self.part = RUN  # what runs now: a stage, or CLEANUP
        self.pid = 0  # of that; 0 if nothing could be started
        self.furnished = False  # its scratch directory has what it is to find there
        self.ran = False  # a program of it did, so that its files are its own
        self.killed = NO_REASON  # what `kill` was given
        self.pause: asyncio.Handle | None = None  # before the next try of a stage
        self.started_at = started_at
        self.since = 0.0  # start of what runs now, monotonic
        self.deadline = math.inf
        self.terminated = False  # SIGTERM was sent; SIGKILL is next
        self.reason = NO_REASON
        self.code: int | None = None  # of a process that leaves one behind which is to end first
        self.cpu_seconds = 0.0
        self.max_rss = 0  # as the kernel counts it, in its unit
        self.peak_bytes = 0
        self.summed_bytes = 0  # resident memory of all processes when the peak was last measured
        self.left_something = False
        self.completion: Completion | None = None  # of the task itself, while more is done for it
        self.staging: asyncio.Task[None] | None = None  # while what it left is stored

    @property
    def file_actions(self) -> FileActions:
        """Those of its next program, which goes on writing after what has run of it before."""
        return self.sandbox.for_cleanup if self.ran else self.sandbox.for_task

    def begin_command(self, wall: float) -> None:
        """What is measured from now on is the task's own.

        Args:
            wall: seconds since the epoch.
        """
        self.part = RUN
        self.reason = NO_REASON
        self.started_at = wall
        self.cpu_seconds = 0.0
        self.max_rss = self.peak_bytes = self.summed_bytes = 0

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

    def never_ran(self) -> Completion:
        """How an attempt ended of which nothing could be started."""
        return Completion(self.command.number, reason=self.reason, started_at=self.started_at)
