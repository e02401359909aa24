"""The process of an attempt, from its start to its completion."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import time
from collections.abc import Iterator

from kestrelctl.core.model.end_reason import NO_REASON
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.worker.isolation.rung import TaskLimits
from kestrelctl.worker.launch.launcher import ProgramEnded
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.sandbox import Sandbox
from kestrelctl.worker.run.stage_state import StageState

_BLOCK_BYTES = 512  # unit of st_blocks (stat(2))
_SLICE_FILES = 64


class ScratchSize:
    """Counts, over many calls and again and again, what is below a directory.

    Files that are deleted and still open are not seen.

    Attributes:
        unreadable: why a part of it cannot be counted; empty if all can.
    """

    __slots__ = ("_files", "_root", "_size_bytes", "_walk", "unreadable")

    def __init__(self, root: str) -> None:
        self._root = root
        self._walk: Iterator[None] | None = None
        self._files = self._size_bytes = 0
        self.unreadable = ""

    def advance(self, until: float) -> tuple[int, int]:
        """Counts on until that moment (monotonic), or to the end; the next call begins anew then.

        Returns:
            Bytes and files so far in this round, which may be less than there is, and at most
            what was there at different moments of it.
        """
        if self._walk is None:
            self._files = self._size_bytes = 0
            self._walk = self._count()
        for _ in self._walk:
            if time.monotonic() >= until:
                return self._size_bytes, self._files
        self._walk = None
        return self._size_bytes, self._files

    def _count(self) -> Iterator[None]:
        directories = [self._root]
        while directories:
            directory = directories.pop()
            try:
                with os.scandir(directory) as entries:
                    for number, entry in enumerate(entries):
                        if entry.is_dir(follow_symlinks=False):
                            directories.append(entry.path)
                        self._add(entry)
                        if number % _SLICE_FILES == 0:
                            yield
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    self.unreadable = f"a directory in it cannot be read: {error.strerror}"
            yield

    def _add(self, entry: os.DirEntry[str]) -> None:
        try:
            self._size_bytes += entry.stat(follow_symlinks=False).st_blocks * _BLOCK_BYTES
        except FileNotFoundError:
            return
        self._files += 1


#: What runs beside the stages of an attempt.
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


class RunningProcess:
    """The process of an attempt: that of the task itself, of a stage before or after it, or of its
    cleanup.
    """

    __slots__ = (
        "command",
        "completion",
        "course",
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
        "starting",
        "summed_bytes",
        "terminated",
        "waits",
        "withdrawn",
    )

    def __init__(
        self, command: CommandSpec, sandbox: Sandbox, limits: TaskLimits, started_at: float
    ) -> None:
        self.command = command
        self.sandbox = sandbox
        self.limits = limits
        self.scratch = ScratchSize(f"{sandbox.place}/scratch")
        self.course = StageState(command.program.stages) if command.program.stages else None
        self.part = RUN  # what runs now: a stage, or CLEANUP
        self.starting: Starting | None = None  # of that
        self.waits = command.waits  # that is to start when another of its lane has ended
        self.withdrawn = False  # it is not to start any more
        self.lives = False  # it was handed to the launcher, which has not told its end
        self.pid = 0  # of that, once it has started
        self.limit_seconds: float | None = None  # of that
        self.furnished = False  # its scratch directory has what it is to find there
        self.ran = False  # a program of it did, so that its files are its own
        self.killed = NO_REASON  # what `kill` was given
        self.pause: asyncio.Handle | None = None  # before the next try of a stage
        self.started_at = started_at
        self.since = 0.0  # start of what runs now, monotonic
        self.deadline = math.inf
        self.terminated = False  # SIGTERM was sent; SIGKILL is next
        self.reason = NO_REASON
        self.cpu_seconds = 0.0
        self.kernel_peak_bytes = 0  # of one of its processes; 0 if the kernel does not tell
        self.peak_bytes = 0  # of all, as far as it was measured
        self.summed_bytes = 0  # resident memory of all processes when the peak was last measured
        self.left_something = False
        self.completion: Completion | None = None  # of the task itself, while more is done for it
        self.staging: asyncio.Task[None] | None = None  # while what it left is stored

    def begin_command(self, wall: float) -> None:
        """What is measured from now on is the task's own.

        Args:
            wall: seconds since the epoch.
        """
        self.part = RUN
        self.reason = NO_REASON
        self.started_at = wall
        self.cpu_seconds = 0.0
        self.kernel_peak_bytes = self.peak_bytes = self.summed_bytes = 0

    def add(self, ended: ProgramEnded) -> None:
        """Counts what a program of the attempt has used."""
        self.cpu_seconds += ended.cpu_seconds
        self.kernel_peak_bytes = max(self.kernel_peak_bytes, ended.peak_bytes)
        self.left_something |= ended.left_something

    def completed(self, code: int, now: float) -> Completion:
        """How the task ended, still without its outputs.

        Args:
            code: exit code, or minus the signal.
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
            self.kernel_peak_bytes or self.peak_bytes,
        )

    def never_ran(self) -> Completion:
        """How an attempt ended of which nothing could be started."""
        return Completion(self.command.number, reason=self.reason, started_at=self.started_at)
