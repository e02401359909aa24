"""The state of an attempt while it runs."""

from __future__ import annotations

import math
import time

from kestrelctl.core.model.end_reason import NO_REASON
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.worker.isolation.rung import TaskLimits
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.sandbox import Sandbox
from kestrelctl.worker.run.scratch_size import ScratchSize
from kestrelctl.worker.run.stage_state import StageState

#: The part of an attempt that runs beside its stages.
CLEANUP = "cleanup"


class Starting:
    """One program of an attempt that is to be started, and what was tried for it.

    Attributes:
        program: the file that is executed; what the command says as long as it is not found.
        through: the sandbox program that executes it; empty for none.
        resumes: whether the files of an earlier attempt are moved to it: once.
        may_renew: whether another sandbox may be taken.
        anew: whether the scratch directory is to be made again.
    """

    __slots__ = ("anew", "argv", "may_renew", "program", "remade", "resumes", "through")

    def __init__(self, argv: tuple[str, ...], *, resumes: bool, may_renew: bool) -> None:
        self.argv = argv
        self.program = argv[0] if argv else ""
        self.through = ""
        self.resumes = resumes
        self.may_renew = may_renew
        self.anew = self.remade = False


class AttemptState:
    """An attempt: its command, the sandbox that it has, and the program of it that runs now.

    Attributes:
        part: what runs now: a stage, or CLEANUP.
        starting: the start of that.
        pid: of that, once it has started.
        since: when that started, monotonic.
        limit_seconds: of that.
        lives: it was handed to the launcher, which has not told its end.
        waits: it is to start when another of its lane has ended.
        withdrawn: it is not to start any more.
        furnished: its scratch directory has what it is to find there.
        ran: a program of it ran, so that its files are its own.
        killed: what `kill` was given.
        terminated: it was asked to end; SIGKILL is next.
        reason: what ended it other than its exit, so far.
        seen_cpu_seconds: the most that was told of the command while it ran.
        kernel_peak_bytes: of one of its processes; 0 if the kernel does not tell.
        peak_bytes: of all, as far as it was measured.
        summed_bytes: resident memory of all processes when the peak was last measured.
        completion: of the command itself, while more is done for it.
    """

    __slots__ = (
        "command",
        "completion",
        "cpu_seconds",
        "deadline",
        "furnished",
        "kernel_peak_bytes",
        "killed",
        "left_something",
        "limit_seconds",
        "limits",
        "lives",
        "part",
        "peak_bytes",
        "pid",
        "ran",
        "reason",
        "sandbox",
        "scratch",
        "seen_cpu_seconds",
        "since",
        "stages",
        "started_at",
        "starting",
        "summed_bytes",
        "terminated",
        "waits",
        "withdrawn",
    )

    #: Both exist from the moment at which what it needs is there.
    sandbox: Sandbox
    scratch: ScratchSize

    def __init__(self, command: CommandSpec, limits: TaskLimits) -> None:
        self.command = command
        self.limits = limits
        stages = command.program.stages
        self.stages = StageState(stages) if stages else None
        self.part = RUN
        self.starting: Starting | None = None
        self.waits = command.waits
        self.withdrawn = False
        self.lives = False
        self.pid = 0
        self.limit_seconds: float | None = None
        self.furnished = False
        self.ran = False
        self.killed = NO_REASON
        self.started_at = time.time()
        self.since = 0.0
        self.deadline = math.inf
        self.terminated = False
        self.reason = NO_REASON
        self.cpu_seconds = self.seen_cpu_seconds = 0.0
        self.kernel_peak_bytes = 0
        self.peak_bytes = 0
        self.summed_bytes = 0
        self.left_something = False
        self.completion: Completion | None = None

    def enter(self, sandbox: Sandbox) -> None:
        """Gives it a sandbox from now on."""
        self.sandbox = sandbox
        self.scratch = ScratchSize(f"{sandbox.place}/scratch")

    @property
    def command_lives(self) -> bool:
        """Whether the command runs, and not a stage of it, its cleanup, or nothing."""
        return self.part == RUN and self.completion is None and self.lives

    @property
    def has_output(self) -> bool:
        """Whether what it prints is in its sandbox."""
        return self.lives or self.ran
