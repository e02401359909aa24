"""Enforces the limits of running processes: time, output, memory, processes, scratch space."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Mapping

from kestrelctl.core.model.end_reason import NO_REASON, EndKind, ReasonText
from kestrelctl.core.model.job.ending_rules import DEFAULT_GRACE_SECONDS, stop_signal_number
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.timer import Timer
from kestrelctl.worker.isolation.rung import Rung
from kestrelctl.worker.launch.launcher import Launcher
from kestrelctl.worker.run.attempt_state import AttemptState
from kestrelctl.worker.run.process_tree import (
    exact_memory,
    held_bytes,
    resident_bytes,
    thread_count,
)
from kestrelctl.worker.run.usage import sample

WATCH_SECONDS = 0.25
"""How often running processes are looked at."""
YOUNG_SECONDS = 0.1
"""A process younger than this is not looked at, so that most short tasks cost nothing here."""
GRACE_SECONDS = DEFAULT_GRACE_SECONDS
"""Between SIGTERM and SIGKILL of a stage or a cleanup, and when a worker closes."""
MOST_LOOKING = 0.05
"""The most of one processor that looking takes; where much runs, it is done less often."""
GROWTH = 1.25
"""A task of several processes is measured exactly again when it seems to have grown so much."""
MOST_EXACTLY = 256
"""Processes of one task that are measured exactly for the report of its peak."""
SCRATCH_SLICE_SECONDS = 0.002
"""How long the files of one task are counted at a time."""


class LimitEnforcer:
    """Looks at the running processes from time to time, and only while there are any.

    Args:
        running: by attempt; those that have ended are taken out.
        rung: how they run.
        launcher: has started them.
        output_limit_bytes: a task that writes more to stdout or stderr is killed.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        running: Mapping[int, AttemptState],
        rung: Rung,
        launcher: Launcher,
        output_limit_bytes: int,
    ) -> None:
        self._loop = loop
        self._running = running
        self._rung = rung
        self._launcher = launcher
        self._output_limit_bytes = output_limit_bytes
        self._usage_at = 0.0
        self._timer = Timer(self._look, loop)

    def watch(self, run: AttemptState) -> None:
        """Takes care of a process that has started."""
        limit_seconds = run.limit_seconds
        if limit_seconds is not None and not run.terminated:
            run.deadline = run.since + limit_seconds
        self._look_by(min(run.deadline, run.since + WATCH_SECONDS))

    def terminate(self, run: AttemptState, reason: ReasonText) -> None:
        """Ends a task: its stop signal to its process group, SIGKILL after its grace.

        SIGKILL goes to all that it has started, and at once at the second call. Stages and a
        cleanup get SIGTERM: the stop signal is for the task's own program.
        """
        run.reason = run.reason or reason
        if run.terminated:
            self._launcher.kill(run.command.number)
            run.deadline = math.inf
            return
        program = run.command.program
        number, grace_seconds = int(signal.SIGTERM), GRACE_SECONDS
        if run.part == RUN:
            number = stop_signal_number(program.stop_signal)
            grace_seconds = program.stop_grace_seconds or DEFAULT_GRACE_SECONDS
        self._launcher.signal(run.command.number, number)
        run.terminated = True
        run.deadline = time.monotonic() + grace_seconds
        self._look_by(run.deadline)

    def close(self) -> None:
        """Stops looking."""
        self._timer.stop()

    def _look_by(self, when: float) -> None:
        self._timer.set_by(when)

    def _look(self) -> None:
        self._launcher.hear()  # what has ended in time has kept its limits
        began = now = time.monotonic()
        again = now + WATCH_SECONDS
        with_usage = self._usage_at <= now
        for run in self._running.values():
            if run.deadline <= now:
                self.terminate(run, EndKind.TIME_LIMIT.text())
            again = min(again, run.deadline)
            if now - run.since < YOUNG_SECONDS:
                continue
            if max(run.sandbox.sizes()) > self._output_limit_bytes:
                self._kill(run, EndKind.OUTPUT_LIMIT.text())
            elif with_usage and (why := self._beyond(run)):
                self._kill(run, why)
        if with_usage:
            now = time.monotonic()
            self._usage_at = now + (now - began) / MOST_LOOKING
        if self._running:
            self._look_by(max(again, now + 0.01))

    def _kill(self, run: AttemptState, reason: ReasonText) -> None:
        run.terminated = True  # no grace: it would take more meanwhile
        self.terminate(run, reason)

    def _beyond(self, run: AttemptState) -> ReasonText:
        """The limit that a task exceeds, with figures; empty if there is none."""
        limits = run.limits
        if not self._rung.has_kernel_limits:
            pids = self._rung.processes(run.pid, limits.processes)
            pids += self._launcher.orphans_of(run.command.number)
            if max(len(pids), thread_count(pids)) > limits.processes:
                detail = f"more than {limits.processes:,} processes and threads"
                return EndKind.PROCESS_LIMIT.text(detail)
            in_files = self._rung.memory_files_bytes(run.pid)
            resident = resident_bytes(pids) + in_files
            if 0 < limits.memory_bytes < resident:
                used = _used_bytes(pids, in_files, limits.memory_bytes)
                if used > limits.memory_bytes:
                    return memory_limit_reason(used, limits.memory_bytes)
            if run.part == RUN:
                self._note_peak(run, pids, resident)
        used, files = run.scratch.advance(time.monotonic() + SCRATCH_SLICE_SECONDS)
        if run.scratch.unreadable:
            return EndKind.DISK_LIMIT.text(run.scratch.unreadable)
        if files > limits.files:
            return EndKind.DISK_LIMIT.text(
                f"more than {limits.files:,} files in the scratch directory"
            )
        if 0 < limits.disk_bytes < used:
            allowed = _mebibytes(limits.disk_bytes)
            detail = f"{_mebibytes(used)} in the scratch directory, of {allowed}"
            return EndKind.DISK_LIMIT.text(detail)
        return NO_REASON

    def _note_peak(self, run: AttemptState, pids: list[int], used_bytes: int) -> None:
        """Keeps the largest resident memory of a task in mind, with shared pages counted once.

        Files that are mapped are part of that, as in the kernel's own figure.
        """
        if not pids:  # a sandbox that is being made
            return
        if len(pids) == 1:
            used_bytes = max(used_bytes, sample(pids[0]))
        elif used_bytes < run.summed_bytes * GROWTH or len(pids) > MOST_EXACTLY:
            return
        else:
            run.summed_bytes = used_bytes
            used_bytes = sum(exact_memory(pids))
        run.peak_bytes = max(run.peak_bytes, used_bytes)


def _used_bytes(pids: list[int], in_files: int, limit_bytes: int) -> int:
    """The memory that a task takes: without pages of files, which the kernel can take back.

    Shared pages are counted once only where it seems to exceed the limit: that costs more.

    Args:
        in_files: what it keeps in file systems that are made of memory, in bytes.
    """
    held = held_bytes(pids) + in_files
    if held <= limit_bytes:
        return held
    exact = exact_memory(pids)
    return exact.anonymous_bytes + max(exact.shared_bytes, in_files)


def memory_limit_reason(used_bytes: int, limit_bytes: int) -> ReasonText:
    """The reason of a task that took too much memory."""
    used, limit = _mebibytes(used_bytes), _mebibytes(limit_bytes)
    return EndKind.MEMORY_LIMIT.text(f"used {used} of {limit}")


def _mebibytes(amount_bytes: int) -> str:
    return f"{amount_bytes / (1 << 20):,.0f} MiB"
