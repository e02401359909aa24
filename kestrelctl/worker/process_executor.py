"""Runs tasks as processes: start, watch, end, account for, leave nothing behind.

The executor reaps every child of this process, so `subprocess` beside it works but learns no exit
status. It kills every orphan handed to this process; children that were there before it are left
alone, and so are later ones that stay in this process's session. It lives in the main thread, on
the running event loop, and changes the current directory of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.worker.child_signal import ChildSignal
from kestrelctl.worker.descriptors import raise_descriptor_limit, seal_descriptors
from kestrelctl.worker.executor import SPAWN_BOUNDS, Command, Completion, Executor
from kestrelctl.worker.inline_executor import InlineExecutor
from kestrelctl.worker.orphans import (
    ATTEMPT_VARIABLE,
    PR_SET_CHILD_SUBREAPER,
    Orphans,
    kill_group,
    prctl,
)
from kestrelctl.worker.output import STREAMS, KeptOutputs
from kestrelctl.worker.programs import Programs, why_not_started
from kestrelctl.worker.running_process import RunningProcess
from kestrelctl.worker.sandbox import FileActions, Sandbox
from kestrelctl.worker.start_order import StartOrder
from kestrelctl.worker.trash import Trash
from kestrelctl.worker.usage import own_peak, sample

__all__ = ["Command", "Completion", "Executor", "InlineExecutor", "ProcessExecutor"]

log = logging.getLogger(__name__)

START_SLICE_SECONDS = 0.004
"""How long starts may keep the event loop from everything else."""
WATCH_SECONDS = 0.25
"""How often running tasks are looked at: output size, memory, time limit."""
YOUNG_SECONDS = 0.1
"""A task younger than this is not looked at, so that most short tasks cost nothing here."""
GRACE_SECONDS = 2.0
"""Between SIGTERM and SIGKILL."""
CLEANUP_SECONDS = 60.0
"""Time limit of a cleanup command."""


class ProcessExecutor:
    """An `Executor` that runs tasks as processes of this machine.

    Nothing a task does raises here: what cannot be started ends with an `Completion` that says why.

    Args:
        directory: for scratch directories and outputs; one process at a time may use it.
        on_completion: called on the event loop with each `Completion`.
        output_limit_bytes: a task that writes more to stdout or stderr is killed.
        kept_bytes: room for outputs that are longer than their tail; the oldest go first.
        kept_files: the same, in number.
    """

    def __init__(
        self,
        directory: Path,
        on_completion: Callable[[Completion], None],
        *,
        output_limit_bytes: int = 64 << 20,
        kept_bytes: int = 1 << 30,
        kept_files: int = 10_000,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._child_signal = ChildSignal(self._loop, self._reap)  # before Trash has threads
        self.spawns = Histogram(SPAWN_BOUNDS)
        self._on_completion = on_completion
        self._output_limit_bytes = output_limit_bytes
        directory = directory.absolute()
        self._slots_directory = directory / "slots"
        self._trash = Trash(directory / "trash")
        self._trash.discard(self._slots_directory)
        self._kept = KeptOutputs(
            directory / "outputs", limit_bytes=kept_bytes, limit_files=kept_files
        )

        self._slots: dict[str, Sandbox] = {}
        self._programs = Programs()
        self._queue: StartOrder[RunningProcess] = StartOrder()
        self._tasks: dict[int, RunningProcess] = {}  # by attempt: from start to report
        self._by_pid: dict[int, RunningProcess] = {}  # in order of start
        self._slice_pending = False
        self._watch: asyncio.TimerHandle | None = None

        raise_descriptor_limit()
        self._null = seal_descriptors()
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._ignored_signals = [
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) is signal.SIG_IGN
        ]
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._orphans = Orphans()

    # ---- asked from outside

    def start(self, launch: Command) -> None:
        """Queue a task; `StartOrder` says when its turn comes.

        Raises:
            ValueError: its number or its slot is in use.
        """
        slot = self._slots.get(launch.slot)
        warm = slot is not None
        if slot is None:
            place = self._slots_directory / str(len(self._slots))
            slot = self._slots[launch.slot] = Sandbox(place, self._null, self._trash.discard)
        if slot.number is not None or launch.number in self._tasks:
            raise ValueError(f"attempt {launch.number}: slot {launch.slot!r} runs {slot.number}")
        slot.number = launch.number
        task = self._tasks[launch.number] = RunningProcess(launch, slot)
        self._queue.add(launch.number, task, warm=warm)
        self._go_on_starting()

    def kill(self, number: int, reason: str = "cancelled") -> bool:
        """End a task: SIGTERM to its process group, SIGKILL two seconds later.

        Returns:
            False if there is no such task (any more); then nothing happens.
        """
        queued = self._queue.remove(number)
        if queued is not None:
            self._loop.call_soon(self._report, queued, Completion(number, reason=reason))
            return True
        task = self._tasks.get(number)
        if task is None or task.pid not in self._by_pid:
            return False
        self._terminate(task, reason)
        return True

    @property
    def running(self) -> int:
        """How many processes run."""
        return len(self._by_pid)

    @property
    def waiting(self) -> int:
        """How many tasks are queued."""
        return len(self._queue)

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Part of the output of a running task, or of one that ended and wrote more than its tail.

        Args:
            number: of the attempt.
            stream: stdout or stderr.
            offset: first byte.
            limit: most bytes returned.

        Raises:
            NotFound: that output is not here.
        """
        task = self._tasks.get(number)
        if task is not None and task.pid and stream in STREAMS:
            with contextlib.suppress(OSError):
                return task.slot.read(stream, offset, limit)
        return self._kept.read(number, stream, offset, limit)

    async def close(self) -> None:
        """Kill every task, report none of them, and give everything back once they are gone."""
        if self._on_completion is _ignore:
            return
        self._on_completion = _ignore
        self._queue = StartOrder()
        give_up = time.monotonic() + GRACE_SECONDS
        while (self._by_pid or self._orphans) and time.monotonic() < give_up:
            for task in self._by_pid.values():
                task.launch = replace(task.launch, cleanup=())
                kill_group(task.pid)
            self._orphans.kill_all()
            await asyncio.sleep(0.005)
        await self._trash.wait()
        self._child_signal.close()
        self._orphans.close()
        prctl(PR_SET_CHILD_SUBREAPER, 0)
        if self._watch is not None:
            self._watch.cancel()
        os.fchdir(self._home)
        os.close(self._home)
        os.close(self._null)

    # ---- starting

    def _go_on_starting(self) -> None:
        if not self._slice_pending:
            self._slice_pending = True
            self._loop.call_soon(self._start_slice)

    def _start_slice(self) -> None:
        until = time.monotonic() + START_SLICE_SECONDS
        task = self._queue.longest_waiting()
        while task is not None:
            launch = task.launch
            task.started_at = time.time()
            why_not = self._spawn(task, launch.argv, task.slot.for_task, launch.time_limit_seconds)
            if why_not:
                report = Completion(launch.number, reason=why_not, started_at=task.started_at)
                self._report(task, report)
            if time.monotonic() >= until:
                break
            task = self._queue.latest()
        self._slice_pending = False
        if self._queue:
            self._go_on_starting()

    def _spawn(
        self,
        task: RunningProcess,
        argv: tuple[str, ...],
        file_actions: FileActions,
        limit_seconds: float | None,
    ) -> str:
        """Start a process of a task. Returns why it could not be started, or nothing."""
        began = time.monotonic()
        env = task.launch.env.copy()
        env[ATTEMPT_VARIABLE] = str(task.launch.number)
        program = name = argv[0] if argv else ""
        may_renew = task.report is None  # not under a cleanup: the task's output is in there
        while True:
            try:
                task.slot.enter()
                program = self._programs.find(name, env.get("PATH"))
                task.since = time.monotonic()  # it runs before the call returns
                task.pid = os.posix_spawn(
                    program,
                    argv,
                    env,
                    file_actions=file_actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=self._ignored_signals,
                )
                break
            except (OSError, ValueError, TypeError) as error:
                if may_renew and isinstance(error, (PermissionError, IsADirectoryError)):
                    # Perhaps an earlier task made the slot unusable: that is not this one's fault.
                    may_renew = False
                    task.slot.renew()
                    continue
                self._programs.forget(name, env.get("PATH"))
                return why_not_started(error, program)
        now = time.monotonic()
        self.spawns.observe(now - began)
        task.sample_at = now + YOUNG_SECONDS
        task.terminated = False
        task.deadline = math.inf if limit_seconds is None else now + limit_seconds
        self._by_pid[task.pid] = task
        self._watch_by(min(task.deadline, now + WATCH_SECONDS))
        return ""

    # ---- watching

    def _watch_by(self, when: float) -> None:
        if self._watch is not None:
            if self._watch.when() <= when:
                return
            self._watch.cancel()
        self._watch = self._loop.call_at(when, self._look_after)

    def _look_after(self) -> None:
        """Enforce limits on all that runs, and note its memory."""
        self._watch = None
        self._reap()  # in case a thread without our signal mask swallowed the signal
        now = time.monotonic()
        again = now + WATCH_SECONDS
        for task in self._by_pid.values():
            if task.deadline <= now:
                self._terminate(task, "time-limit")
            again = min(again, task.deadline)
            if now - task.since < YOUNG_SECONDS:
                continue
            if max(task.slot.sizes()) > self._output_limit_bytes:
                task.terminated = True  # no grace: it would go on writing
                self._terminate(task, "output-limit")
            if task.sample_at <= now and task.report is None:
                # At ages that double: a high-water mark needs no more.
                task.sample_at = now + (now - task.since)
                task.peak_bytes = sample(task.pid) or task.peak_bytes
        if self._by_pid or self._orphans:
            self._watch_by(max(again, now + 0.01))

    def _terminate(self, task: RunningProcess, reason: str) -> None:
        task.reason = task.reason or reason
        if task.terminated:
            kill_group(task.pid, signal.SIGKILL)
            task.deadline = math.inf
            return
        kill_group(task.pid, signal.SIGTERM)
        task.terminated = True
        task.deadline = time.monotonic() + GRACE_SECONDS
        self._watch_by(task.deadline)

    # ---- ending

    def _reap(self) -> None:
        ended = []
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if not pid:
                    break
                task = self._by_pid.pop(pid, None)
                if task is None:
                    self._orphans.reaped(pid)
                    continue
                # At once, before the group's id can belong to anybody else.
                task.left_something |= kill_group(pid)
                ended.append((task, status, usage))
        now = time.monotonic()
        self._orphans.look(self._by_pid, now)
        inherited = own_peak()
        for task, status, usage in ended:
            if self._orphans and self._orphans.may_write(task.launch.number):
                task.left_something = True
            code = os.waitstatus_to_exitcode(status)
            if task.report is None:
                self._ended(task, task.ended(code, usage, inherited, now))
            else:
                why = f"exit code {code}" if code > 0 else f"signal {-code}"
                self._report(task, _with_cleanup(task.report, why if code else ""))
        if self._orphans:
            oldest = next((task.since for task in self._by_pid.values()), math.inf)
            self._orphans.kill_finished(self._has_process, oldest)
            self._watch_by(now + WATCH_SECONDS)

    def _has_process(self, number: int) -> bool:
        task = self._tasks.get(number)
        return task is not None and task.pid in self._by_pid

    def _ended(self, task: RunningProcess, report: Completion) -> None:
        cleanup = task.launch.cleanup
        if cleanup:
            task.report = report
            why_not = self._spawn(task, cleanup, task.slot.for_cleanup, CLEANUP_SECONDS)
            if not why_not:
                return
            report = _with_cleanup(report, why_not)
        self._report(task, report)

    def _report(self, task: RunningProcess, report: Completion) -> None:
        """Free the slot and hand the report out."""
        slot = task.slot
        try:
            if task.pid:
                sizes = slot.sizes()
                if sizes != (0, 0):
                    report = self._with_outputs(report, slot, sizes)
                if task.left_something:
                    slot.abandon_outputs()
                slot.empty_scratch()
        except OSError as error:
            log.warning("attempt %d: its files: %s", report.number, error)
        slot.number = None
        self._tasks.pop(report.number, None)
        try:
            self._on_completion(report)
        except Exception:
            log.exception("attempt %d: its report was not accepted", report.number)

    def _with_outputs(
        self, report: Completion, slot: Sandbox, sizes: tuple[int, int]
    ) -> Completion:
        stdout, stderr = slot.take_outputs(
            report.number, sizes, self._kept, self._output_limit_bytes
        )
        return replace(
            report, stdout=stdout, stderr=stderr, stdout_bytes=sizes[0], stderr_bytes=sizes[1]
        )


def _ignore(report: Completion) -> None:
    """What `on_completion` is after `close`."""


def _with_cleanup(report: Completion, why: str) -> Completion:
    if not why or report.reason:
        return report
    return replace(report, reason=f"cleanup-failed: {why}")
