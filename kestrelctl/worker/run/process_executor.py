"""Runs commands as processes of this machine, accounts for them, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import logging
import math
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import (
    CANCELLED,
    MOVED,
    NO_REASON,
    EndKind,
    EndReason,
    ReasonText,
)
from kestrelctl.core.model.job.stage import RUN
from kestrelctl.worker.files.checkpoint_ends import will_go_on
from kestrelctl.worker.files.log_stage import LogStage, long_streams
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.files.task_outputs import store_outputs
from kestrelctl.worker.isolation.keyring import close_session_keyring
from kestrelctl.worker.isolation.plain import Plain
from kestrelctl.worker.isolation.rung import Rung, TaskLimits
from kestrelctl.worker.launch.launcher import Launcher, NotStarted, ProgramEnded, Started
from kestrelctl.worker.launch.native_launcher import NativeLauncher
from kestrelctl.worker.launch.python_launcher import PythonLauncher
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.run.computed_attempts import ComputedAttempt, ComputedAttempts
from kestrelctl.worker.run.disk_space import why_unwritable
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion
from kestrelctl.worker.run.limits import LimitEnforcer
from kestrelctl.worker.run.output import STREAMS, KeptOutputs
from kestrelctl.worker.run.process_tree import descendants
from kestrelctl.worker.run.running_process import CLEANUP, RunningProcess
from kestrelctl.worker.run.sandbox import Sandbox
from kestrelctl.worker.run.stage_runner import StageRunner
from kestrelctl.worker.run.starter import (
    Starter,
    raise_descriptor_limit,
    seal_descriptors,
    switch_core_dumps_off,
)
from kestrelctl.worker.run.usage import used_now
from kestrelctl.worker.trash import Trash

log = logging.getLogger(__name__)

MOST_AHEAD = 20
"""Commands that wait to be started when another has ended, without this process."""
CLEANUP_SECONDS = 60.0
"""Time limit of a cleanup command."""
ROOM_SECONDS = 0.05
"""A disk that had room is not tried again so soon."""
REMOVAL_SECONDS = 5.0
"""How long the result of a task that failed on a full disk waits for the removal of its files."""
ITS_OWN_FAULT = EndKind.DISK_FULL.text("there is room without what the task wrote")


def end_worker(why: str) -> None:
    """The worker dies at once, as of SIGKILL, and its keeper ends what it leaves.

    The pool counts that as a loss of what ran, and finds out which task it was that ends workers.
    """
    log.critical("%s; so does this worker", why)
    os.kill(os.getpid(), signal.SIGKILL)


class ProcessExecutor:
    """An `Executor` that runs commands as processes of this machine.

    A command finds a scratch directory of its own, which KESTREL_SCRATCH in its environment names,
    and KESTREL_ATTEMPT_ID there. Nothing it does raises here: what cannot be started ends with a
    `Completion` that says why.

    Args:
        directory: for scratch directories and outputs; one process at a time may use it.
        on_completion: called on the event loop with each `Completion`.
        on_stage: called there with the number of an attempt and the name of each stage that it
            begins, where its command has stages.
        on_begun: called there with the number of an attempt that waited, and when it started
            (monotonic).
        on_withdrawn: called there with the number of one that was withdrawn.
        output_limit_bytes: a task that writes more to stdout or stderr is killed.
        kept_bytes: room for outputs that are longer than their tail; the oldest go first.
        kept_files: the same, in number.
        rung: how tasks are isolated from each other and from this process.
        task_limits: for tasks that ask for nothing themselves.
        any_workdir: whether a command may say in which directory it starts.
        output_stage: stores what commands leave; None where that is not possible.
        log_stage: the same of what they print.
        native: the program that starts tasks; None to have this process do it.
        on_death: called with the reason when nothing is known of the tasks any more.
    """

    def __init__(
        self,
        directory: Path,
        on_completion: Callable[[Completion], None],
        *,
        on_stage: Callable[[int, str], None] = lambda number, name: None,
        on_begun: Callable[[int, float], None] = lambda number, at: None,
        on_withdrawn: Callable[[int], None] = lambda number: None,
        output_limit_bytes: int = 64 << 20,
        kept_bytes: int = 1 << 30,
        kept_files: int = 10_000,
        rung: Rung | None = None,
        task_limits: TaskLimits | None = None,
        any_workdir: bool = False,
        output_stage: OutputStage | None = None,
        log_stage: LogStage | None = None,
        native: Path | None = None,
        on_death: Callable[[str], None] = end_worker,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_completion = on_completion
        self._on_begun = on_begun
        self._on_withdrawn = on_withdrawn
        self._output_limit_bytes = output_limit_bytes
        directory = directory.absolute()
        self._directory = OwnDirectory(directory)
        self._sandboxes = OwnDirectory(directory / "sandboxes")
        self._rung = rung or Plain()
        for prepare in (raise_descriptor_limit, switch_core_dumps_off, seal_descriptors):
            prepare()  # for tasks, which inherit it
        self._launcher = self._make_launcher(native, on_death)
        self._trash = Trash(directory / "trash")
        self._computed = ComputedAttempts(directory / "computed")
        kept = {each.sandbox for each in self._computed.left.values()}
        for name in set(os.listdir(self._sandboxes.fd)) - kept:
            with contextlib.suppress(OSError):  # whoever gets that name makes do
                self._trash.discard(name, self._sandboxes.fd)
        self._kept = KeptOutputs(
            directory / "outputs",
            self._trash.discard,
            limit_bytes=kept_bytes,
            limit_files=kept_files,
        )

        self._processes: dict[int, RunningProcess] = {}  # by attempt: from start to completion
        self._running: dict[int, RunningProcess] = {}  # those of which a program runs
        self._free_sandboxes: list[Sandbox] = []
        self._room_until = 0.0
        self._looking: set[asyncio.Task[None]] = set()
        self._output_stage = output_stage
        self._log_stage = log_stage
        self._sandbox_names = (n for n in map(str, itertools.count()) if n not in kept)
        if self._rung.hides_files:
            close_session_keyring()
        self._task_limits = task_limits or TaskLimits()
        self._limits = LimitEnforcer(
            self._loop, self._running, self._rung, self._launcher, output_limit_bytes
        )
        self._starter = Starter(self._launcher, self._rung, any_workdir=any_workdir)
        self._stages = StageRunner(self._loop, self, on_stage)
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = MOST_AHEAD

    # ---- asked from outside

    def start(self, command: CommandSpec) -> None:
        """Start a process, or do what is left of one that an earlier process of the worker ran.

        Raises:
            ValueError: the number is in use.
        """
        number = command.number
        if number in self._processes:
            raise ValueError(f"attempt {number} runs already")
        computed = self._computed.left.pop(number, None)
        if computed is not None:
            self._resume(computed)
            return
        sandbox = self._free_sandboxes.pop() if self._free_sandboxes else self._new_sandbox()
        process = self._processes[number] = RunningProcess(
            command, sandbox, self._limits_of(command), time.time()
        )
        if process.course is None:
            self.start_command(process)
        else:
            self._stages.go_on(process)

    def begin(self, number: int) -> None:
        """Start a command that waits. Nothing happens if it has started."""
        process = self._processes.get(number)
        if process is not None and process.waits:
            process.waits = False
            self._launcher.begin(number)

    def withdraw(self, number: int) -> None:
        """Forget a command that waits."""
        process = self._processes.get(number)
        if process is not None and process.waits:
            process.withdrawn = True
            self._launcher.withdraw(number)

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """End a task: its stop signal to its process group, SIGKILL after its grace.

        Returns:
            False if there is no such task (any more); then nothing happens.
        """
        process = self._processes.get(number)
        if process is None:
            self._drop(number)
            return False
        process.killed = process.killed or reason
        if process.staging is not None:
            self._stop_staging(process, reason)
        elif process.pause is not None:
            self._stages.kill(process)
        elif process.waits and process.lives:
            self._launcher.withdraw(number)
        elif process.lives:
            self._limits.terminate(process, reason)
        else:
            return False
        return True

    def left(self) -> list[CommandSpec]:
        """Commands whose scratch directories are kept: what they have computed is there."""
        return [each.command for each in self._computed.left.values()]

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Ask a task to stop that goes on elsewhere: once, and not when its command is over."""
        process = self._processes.get(number)
        if stop and process is not None and process.completion is None and not process.killed:
            self.kill(number, MOVED)

    def runs(self, number: int) -> bool:
        """Whether the command of a task runs, and not a stage of it, its cleanup, or nothing."""
        process = self._processes.get(number)
        if process is None or process.part != RUN or process.completion is not None:
            return False
        return process.lives

    def open_scratch(self, number: int) -> int:
        """The open scratch directory of a task. OSError if it put another one into its place."""
        return self._processes[number].sandbox.open_scratch()

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """What tasks use that run, from /proc; of their stages and cleanups, nothing."""
        found: dict[int, tuple[float, int]] = {}
        for number in numbers:
            process = self._running.get(number)
            if process is None or process.completion is not None or process.part != RUN:
                continue
            pids = [process.pid, *descendants(process.pid, process.limits.processes)]
            cpu_seconds, memory_bytes = used_now([*pids, *self._launcher.orphans_of(number)])
            memory_bytes += self._rung.memory_files_bytes(process.pid)
            found[number] = (process.cpu_seconds + cpu_seconds, memory_bytes)
        return found

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
        process = self._processes.get(number)
        if process is not None and (process.lives or process.ran) and stream in STREAMS:
            if not (process.pid or process.ran):
                return b""  # it is about to start
            with contextlib.suppress(OSError):
                return process.sandbox.read(stream, offset, limit)
        return self._kept.read(number, stream, offset, limit)

    async def close(self) -> None:
        """Kill every task, report none of them, and give everything back once they are gone."""
        if self._on_completion is _ignore:
            return
        self._on_completion = _ignore
        self._limits.close()
        await self._launcher.close()
        for process in self._processes.values():
            self._stop_staging(process, CANCELLED)
            if process.pause is not None:
                process.pause.cancel()
        if self._looking:
            await asyncio.wait(self._looking)
        if self._output_stage is not None:
            self._output_stage.close()
        await self._trash.close()
        self._kept.close()
        self._computed.close()
        self._sandboxes.close()
        self._directory.close()

    # ---- starting

    def start_command(self, process: RunningProcess) -> None:
        """Start the task's own program."""
        command = process.command
        process.begin_command(time.time())
        why_not = self._spawn(process, command.program.argv, command.program.time_limit_seconds)
        if why_not:
            self._loop.call_soon(self._never_ran, process, why_not)

    def _never_ran(self, process: RunningProcess, why: ReasonText) -> None:
        process.reason = why
        self.after_stages(process, process.never_ran())

    def start_stage(
        self, process: RunningProcess, argv: tuple[str, ...], limit_seconds: float | None
    ) -> ReasonText:
        """Start the program of a stage. Returns why that could not be done, or nothing."""
        return self._spawn(process, argv, limit_seconds)

    def _resume(self, computed: ComputedAttempt) -> None:
        """Do what is left of an attempt that an earlier process of the worker has computed."""
        command, completion = computed.command, computed.completion
        sandbox = self._new_sandbox(computed.sandbox)
        limits = self._limits_of(command)
        process = RunningProcess(command, sandbox, limits, completion.started_at)
        self._processes[command.number] = process
        process.furnished = process.ran = True
        process.left_something = True  # as far as this process can know
        process.completion = completion
        if process.course is not None:
            process.course.over = list(completion.stages)
        if not sandbox.take_over(computed.inode):
            process.completion = None
            gone = EndKind.NO_RESOURCES.text("the scratch directory has gone")
            completion = Completion(command.number, reason=gone, started_at=time.time())
            self._loop.call_soon(self._end, process, completion)
        elif computed.cleaned:
            self._loop.call_soon(self._complete, process, completion)
        elif process.course is not None and process.course.upcoming and not completion.reason:
            self._stages.go_on(process)
        else:
            self._loop.call_soon(self.after_stages, process, completion)

    def _drop(self, number: int) -> None:
        """Give up an attempt that an earlier process of the worker has computed."""
        computed = self._computed.left.get(number)
        if computed is not None:
            self._computed.forget(number)
            with contextlib.suppress(OSError):
                self._trash.discard(computed.sandbox, self._sandboxes.fd)

    def _make_launcher(self, native: Path | None, on_death: Callable[[str], None]) -> Launcher:
        if native is None:
            return PythonLauncher(self._sandboxes, self._rung.tree, self)
        return NativeLauncher(native, self._sandboxes, self._rung.tree, self, on_death)

    def _new_sandbox(self, *names: str) -> Sandbox:
        return Sandbox(
            self._sandboxes,
            itertools.chain(names, self._sandbox_names),
            self._trash.discard,
            reuses_files=not self._rung.hides_files,
        )

    def _limits_of(self, command: CommandSpec) -> TaskLimits:
        common = self._task_limits
        if not command.memory_bytes and not command.disk_bytes:
            return common
        return dataclasses.replace(
            common,
            memory_bytes=command.memory_bytes or common.memory_bytes,
            disk_bytes=command.disk_bytes or common.disk_bytes,
        )

    def _spawn(
        self, process: RunningProcess, argv: tuple[str, ...], time_limit_seconds: float | None
    ) -> ReasonText:
        """Start one of the programs of an attempt.

        Args:
            time_limit_seconds: None for no limit.

        Returns:
            Why that cannot be done; nothing if the launcher is to say what comes of it.
        """
        process.pid = 0
        process.limit_seconds = time_limit_seconds
        process.deadline = math.inf
        process.terminated = False
        why_not = self._starter.start(process, argv)
        process.lives = not why_not
        return why_not

    # ---- told by the launcher

    def on_begun(self, number: int, at: float) -> None:
        """A command that waited is being started."""
        process = self._processes[number]
        if not process.waits:
            return  # `begin` was called meanwhile
        process.waits = False
        self._on_begun(number, at)
        if process.killed:
            self._limits.terminate(process, process.killed)

    def on_started(self, started: Started) -> None:
        """A program of an attempt runs."""
        process = self._running[started.number] = self._processes[started.number]
        process.pid, process.since = started.pid, started.at
        if process.part == RUN:
            process.started_at = started.wall
        self.start_seconds.observe(started.took_seconds)
        self._limits.watch(process)

    def on_withdrawn(self, number: int) -> None:
        """A command that waited has not been started."""
        process = self._processes[number]
        process.lives = False
        if process.killed:
            self._never_ran(process, process.killed)
        else:
            del self._processes[number]
            self._free_sandboxes.append(process.sandbox)
            self._on_withdrawn(number)

    def on_not_started(self, failure: NotStarted) -> None:
        """A program of an attempt could not be started: perhaps it can be elsewhere."""
        process = self._processes[failure.number]
        if process.waits and process.withdrawn:
            self.on_withdrawn(failure.number)
            return
        why_not = process.killed or self._starter.retry(process, failure)
        if not why_not:
            return
        process.lives = False
        if process.part == RUN:
            self._never_ran(process, why_not)
        elif process.part == CLEANUP:
            assert process.completion is not None
            self._complete(process, _with_cleanup(process.completion, why_not))
        else:
            self._stages.not_started(process, why_not)

    def on_ended(self, ended: ProgramEnded) -> None:
        """A program of an attempt has ended, and nothing is left to be waited for."""
        process = self._running.pop(ended.number)
        process.lives = False
        process.add(ended)
        self._ended(process, ended)

    # ---- ending

    def _ended(self, process: RunningProcess, ended: ProgramEnded) -> None:
        asked = bool(process.reason)
        ending = self._rung.ended(process.sandbox.place, ended.code, asked=asked)
        process.reason = process.reason or ending.reason
        code = ending.code
        if process.part == CLEANUP:
            why = f"exit code {code}" if code > 0 else f"signal {-code}"
            why = ending.reason or (why if code else "")
            assert process.completion is not None
            self._complete(process, _with_cleanup(process.completion, why))
            return
        process.ran = process.ran or ending.ran
        if process.part != RUN:
            self._stages.ended(process, process.reason, code)
        elif not ending.ran:
            self.after_stages(process, process.never_ran())
        else:
            process.peak_bytes = max(process.peak_bytes, ending.peak_bytes)
            completion = process.completed(code, ended.at)
            if process.course is None:
                self.after_stages(process, completion)
            else:
                self._stages.computed(process, completion)

    def keep(
        self, process: RunningProcess, completion: Completion, *, cleaned: bool = False
    ) -> None:
        """Have what a task has computed outlive this process, until it has ended."""
        if process.command.held is not None and self._on_completion is not _ignore:
            sandbox = process.sandbox
            command = replace(process.command, checkpoints=None)  # it has nothing left to go on to
            self._computed.keep(
                ComputedAttempt(command, completion, sandbox.name, sandbox.inode, cleaned)
            )

    def after_stages(self, process: RunningProcess, completion: Completion) -> None:
        """Start the cleanup of a task, if it has one and anything of it ran."""
        if process.course is not None:
            process.course.end(time.monotonic())
            completion = replace(completion, stages=tuple(process.course.over))
            if completion.number in self._computed:
                self.keep(process, completion)
        cleanup = process.command.program.cleanup
        if cleanup and process.ran:
            process.completion = completion
            process.part = CLEANUP
            process.reason = NO_REASON
            why_not = self._spawn(process, cleanup, CLEANUP_SECONDS)
            if not why_not:
                return
            completion = _with_cleanup(completion, why_not)
        self._complete(process, completion)

    def _complete(self, process: RunningProcess, completion: Completion) -> None:
        """Have what the task left stored, if it succeeded and its job wants that; then end it."""
        command = process.command
        goes_on = process.ran and will_go_on(command, completion)
        stores = command.program.outputs and completion.is_success(command.program.success_exits)
        if not goes_on and not stores:
            self._end(process, completion)
            return
        if not goes_on:
            self.keep(process, completion, cleaned=True)
        process.completion = completion
        process.reason = NO_REASON
        process.staging = self._later(self._store_outputs(process, completion))

    async def _store_outputs(self, process: RunningProcess, completion: Completion) -> None:
        completion = await store_outputs(process, completion, self._output_stage)
        process.staging = None
        self._end(process, completion)

    def _stop_staging(self, process: RunningProcess, reason: ReasonText) -> None:
        if process.staging is not None and not process.reason:  # once: it tidies up meanwhile
            process.reason = reason
            self._loop.call_soon(process.staging.cancel)  # it has begun by then

    def _end(self, process: RunningProcess, completion: Completion) -> None:
        """Free the sandbox and hand the completion out."""
        sandbox = process.sandbox
        if self._on_completion is _ignore and completion.number in self._computed:
            return  # the next process does the rest
        self._computed.forget(completion.number)
        failed = process.ran and completion.exit_code != 0 and not completion.reason
        failed = failed and completion.left is None
        full = failed and self._is_full()
        try:
            if process.ran:
                sizes = sandbox.sizes()
                if sizes != (0, 0):
                    completion = self._with_outputs(completion, sandbox, sizes)
                if process.left_something or self._rung.hides_files:
                    sandbox.abandon_outputs()
            if process.ran or process.furnished:
                sandbox.empty_scratch()
        except OSError as error:
            log.warning("attempt %d: its files: %s", completion.number, error)
        if full:
            self._later(self._complete_full(process, completion))
        else:
            self._finish(process, completion)

    def _later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does something beside the rest; `close` waits for it."""
        later = self._loop.create_task(work)
        self._looking.add(later)
        later.add_done_callback(self._looking.discard)
        return later

    def _is_full(self) -> bool:
        """Whether the disk is full. It is not tried each time, so that failures cost little."""
        now = time.monotonic()
        if now < self._room_until:
            return False
        full = bool(why_unwritable(self._sandboxes.fd))
        self._room_until = 0.0 if full else now + ROOM_SECONDS
        return full

    async def _complete_full(self, process: RunningProcess, completion: Completion) -> None:
        """Hand out the completion of a task that failed on a full disk, with who is to blame.

        Who fills a disk must not have all workers blamed for it, one after the other. So the disk
        is tried again without what the task wrote.
        """
        await self._trash.wait(REMOVAL_SECONDS)
        if self._on_completion is not _ignore:
            reason = why_unwritable(self._sandboxes.fd) or ITS_OWN_FAULT
            self._finish(process, replace(completion, reason=reason))

    def _finish(self, process: RunningProcess, completion: Completion) -> None:
        """Have what the task printed stored, if its job wants that; then hand it out."""
        if (
            not process.command.program.keep_logs
            or self._log_stage is None
            or EndReason.of(completion.reason).kind is EndKind.CANCELLED
            or self._on_completion is _ignore
            or not long_streams(completion)
        ):
            self._hand_out(process, completion)
            return
        process.completion = completion
        process.reason = NO_REASON
        process.staging = self._later(self._store_logs(process, completion, self._log_stage))

    async def _store_logs(
        self, process: RunningProcess, completion: Completion, stage: LogStage
    ) -> None:
        """Whatever comes of it, the attempt has ended as it has."""
        try:
            completion = await stage.store(completion, self._kept)
        except asyncio.CancelledError:
            log.info("attempt %d is cancelled: what it printed stays here", completion.number)
        process.staging = None
        self._hand_out(process, completion)

    def _hand_out(self, process: RunningProcess, completion: Completion) -> None:
        self._free_sandboxes.append(process.sandbox)
        self._processes.pop(completion.number, None)
        try:
            self._on_completion(completion)
        except Exception:
            log.exception("attempt %d: its completion was not accepted", completion.number)

    def _with_outputs(
        self, completion: Completion, sandbox: Sandbox, sizes: tuple[int, int]
    ) -> Completion:
        stdout, stderr = sandbox.take_outputs(
            completion.number, sizes, self._kept, self._output_limit_bytes
        )
        return replace(
            completion, stdout=stdout, stderr=stderr, stdout_bytes=sizes[0], stderr_bytes=sizes[1]
        )


def _ignore(completion: Completion) -> None:
    """What `on_completion` is after `close`."""


def _with_cleanup(completion: Completion, why: str) -> Completion:
    if not why or completion.reason:
        return completion
    return replace(completion, reason=EndKind.CLEANUP_FAILED.text(why))
