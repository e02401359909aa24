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
from kestrelctl.worker.isolation.rung import Rung
from kestrelctl.worker.launch.launcher import Launcher
from kestrelctl.worker.run.process_tree import (
    exact_memory,
    held_bytes,
    resident_bytes,
    thread_count,
)
from kestrelctl.worker.run.running_process import RunningProcess
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
        running: Mapping[int, RunningProcess],
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
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, process: RunningProcess) -> None:
        """Takes care of a process that has started."""
        limit_seconds = process.limit_seconds
        if limit_seconds is not None and not process.terminated:
            process.deadline = process.since + limit_seconds
        self._look_by(min(process.deadline, process.since + WATCH_SECONDS))

    def terminate(self, process: RunningProcess, reason: ReasonText) -> None:
        """Ends a task: its stop signal to its process group, SIGKILL after its grace.

        SIGKILL goes to all that it has started, and at once at the second call. Stages and a
        cleanup get SIGTERM: the stop signal is for the task's own program.
        """
        process.reason = process.reason or reason
        if process.terminated:
            self._launcher.kill(process.command.number)
            process.deadline = math.inf
            return
        program = process.command.program
        number, grace_seconds = int(signal.SIGTERM), GRACE_SECONDS
        if process.part == RUN:
            number = stop_signal_number(program.stop_signal)
            grace_seconds = program.stop_grace_seconds or DEFAULT_GRACE_SECONDS
        self._launcher.signal(process.command.number, number)
        process.terminated = True
        process.deadline = time.monotonic() + grace_seconds
        self._look_by(process.deadline)

    def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_by(self, when: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        self._timer = None
        self._launcher.hear()  # what has ended in time has kept its limits
        began = now = time.monotonic()
        again = now + WATCH_SECONDS
        with_usage = self._usage_at <= now
        for process in self._running.values():
            if process.deadline <= now:
                self.terminate(process, EndKind.TIME_LIMIT.text())
            again = min(again, process.deadline)
            if now - process.since < YOUNG_SECONDS:
                continue
            if max(process.sandbox.sizes()) > self._output_limit_bytes:
                self._kill(process, EndKind.OUTPUT_LIMIT.text())
            elif with_usage and (why := self._beyond(process)):
                self._kill(process, why)
        if with_usage:
            now = time.monotonic()
            self._usage_at = now + (now - began) / MOST_LOOKING
        if self._running:
            self._look_by(max(again, now + 0.01))

    def _kill(self, process: RunningProcess, reason: ReasonText) -> None:
        process.terminated = True  # no grace: it would take more meanwhile
        self.terminate(process, reason)

    def _beyond(self, process: RunningProcess) -> ReasonText:
        """The limit that a task is beyond, with figures; empty if there is none."""
        limits = process.limits
        if not self._rung.has_kernel_limits:
            pids = self._rung.processes(process.pid, limits.processes)
            pids += self._launcher.orphans_of(process.command.number)
            if max(len(pids), thread_count(pids)) > limits.processes:
                detail = f"more than {limits.processes:,} processes and threads"
                return EndKind.PROCESS_LIMIT.text(detail)
            in_files = self._rung.memory_files_bytes(process.pid)
            resident = resident_bytes(pids) + in_files
            if 0 < limits.memory_bytes < resident:
                used = _used_bytes(pids, in_files, limits.memory_bytes)
                if used > limits.memory_bytes:
                    return memory_limit_reason(used, limits.memory_bytes)
            if process.part == RUN:
                self._note_peak(process, pids, resident)
        used, files = process.scratch.advance(time.monotonic() + SCRATCH_SLICE_SECONDS)
        if process.scratch.unreadable:
            return EndKind.DISK_LIMIT.text(process.scratch.unreadable)
        if files > limits.files:
            return EndKind.DISK_LIMIT.text(
                f"more than {limits.files:,} files in the scratch directory"
            )
        if 0 < limits.disk_bytes < used:
            allowed = _mebibytes(limits.disk_bytes)
            detail = f"{_mebibytes(used)} in the scratch directory, of {allowed}"
            return EndKind.DISK_LIMIT.text(detail)
        return NO_REASON

    def _note_peak(self, process: RunningProcess, pids: list[int], used_bytes: int) -> None:
        """Keeps the largest resident memory of a task in mind, with shared pages counted once.

        Files that are mapped are part of that, as in the kernel's own figure.
        """
        if len(pids) == 1:
            used_bytes = max(used_bytes, sample(pids[0]))
        elif used_bytes < process.summed_bytes * GROWTH or len(pids) > MOST_EXACTLY:
            return
        else:
            process.summed_bytes = used_bytes
            used_bytes = sum(exact_memory(pids))
        process.peak_bytes = max(process.peak_bytes, used_bytes)


def _used_bytes(pids: list[int], in_files: int, limit_bytes: int) -> int:
    """What a task takes of its memory: without pages of files, which the kernel can take back.

    Only where it seems to be beyond the limit are shared pages counted once, which costs more.

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
