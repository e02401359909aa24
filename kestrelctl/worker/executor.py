"""The port between what decides which task runs and what runs it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from kestrelctl.core.counting.histogram import Histogram

#: Seconds to start a process.
SPAWN_BOUNDS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5)


class Command(msgspec.Struct, frozen=True):
    """A task to run.

    Args:
        number: of the attempt, unique.
        slot: name of the scratch directory and output files to use; one task at a time in each.
        argv: the command; no shell sees it.
        env: the whole environment; KESTREL_ATTEMPT is added to it.
        time_limit_seconds: SIGTERM after it, SIGKILL two seconds later; None for no limit.
        cleanup: command to run after the task, same directory and environment. Its failure is a
            reason in the report and changes no exit code.
    """

    number: int
    slot: str
    argv: tuple[str, ...]
    env: dict[str, str]
    time_limit_seconds: float | None = None
    cleanup: tuple[str, ...] = ()


class Completion(msgspec.Struct, frozen=True, gc=False):
    """How an attempt ended.

    Args:
        number: of the attempt.
        exit_code: None if a signal ended it or it never ran.
        signal: the signal that ended it.
        reason: empty, or one of: time-limit, cancelled, output-limit, `cannot-start: …` (the
            task's fault), `no-space: …` and `no-resources: …` (the machine's fault),
            `cleanup-failed: …`, or what `kill` was given.
        started_at: seconds since the epoch.
        wall_seconds: from start to end, without the cleanup.
        cpu_seconds: user and system time of the task and of those of its children it waited for.
        peak_bytes: largest resident memory of any one of these. 0 for a task that was both
            shorter than about 0.1 s and smaller than the worker process itself: the kernel does
            not tell it.
        stdout, stderr: the last TAIL_BYTES of each.
        stdout_bytes, stderr_bytes: whole sizes.
    """

    number: int
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    started_at: float = 0.0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0


class Executor(Protocol):
    """What runs tasks. It never calls back from inside `start` or `kill`."""

    spawns: Histogram  #: seconds that processes took to start

    def start(self, launch: Command) -> None:
        """Queue a task. ValueError if its number or its slot is in use."""

    def kill(self, number: int, reason: str = "cancelled") -> bool:
        """End a task, or take it out of the queue. False if there is no such task (any more)."""

    @property
    def running(self) -> int:
        """How many tasks run."""

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """At most `limit` bytes of an attempt's stdout or stderr. NotFound if it is not here."""

    async def close(self) -> None:
        """Kill every task, report none of them, and give everything back."""
