"""Runs commands as processes of this machine, accounts for them, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import CANCELLED, ReasonText
from kestrelctl.worker.files.checkpoints import Checkpoints
from kestrelctl.worker.files.input_cache import InputCache
from kestrelctl.worker.files.log_stage import LogStage
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.files.preparation import Preparation
from kestrelctl.worker.isolation.keyring import close_session_keyring
from kestrelctl.worker.isolation.plain import Plain
from kestrelctl.worker.isolation.rung import Rung, TaskLimits
from kestrelctl.worker.launch.launcher import (
    Events,
    Launcher,
    NotStarted,
    ProgramEnded,
    Started,
    Tree,
)
from kestrelctl.worker.launch.python_launcher import PythonLauncher
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.run.attempt_run import AttemptRun, RunContext
from kestrelctl.worker.run.computed_attempts import ComputedAttempts
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion
from kestrelctl.worker.run.limits import LimitEnforcer
from kestrelctl.worker.run.output import STREAMS, KeptOutputs
from kestrelctl.worker.run.process_tree import descendants
from kestrelctl.worker.run.sandbox import Sandboxes
from kestrelctl.worker.run.starter import (
    Starter,
    raise_descriptor_limit,
    seal_descriptors,
    switch_core_dumps_off,
)
from kestrelctl.worker.run.task_channels import TaskChannels
from kestrelctl.worker.run.usage import used_now
from kestrelctl.worker.trash import Trash

log = logging.getLogger(__name__)

MOST_AHEAD = 20
"""Commands that wait to be started when another has ended, without this process."""


class ProcessExecutor:
    """An `Executor` that runs commands as processes of this machine.

    A command finds a scratch directory of its own, which KESTREL_SCRATCH in its environment names;
    KESTREL_ATTEMPT_ID is there, too. Nothing it does raises here: what cannot be started ends with
    a `Completion` that says why.

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
        launch: makes the launcher, which must be there before this process has threads.
        preparation: makes what gets commands what they need; None where they need nothing.
        checkpoints: makes what stores those of commands while they run; None for no checkpoints.
        output_stage: stores what commands leave; None where that is not possible.
        log_stage: the same of what they print.
        channels: connects commands with the owners of their jobs; None for one of its own.
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
        launch: Callable[[OwnDirectory, Tree, Events], Launcher] = PythonLauncher,
        preparation: Callable[[], Preparation] | None = None,
        checkpoints: Callable[[], Checkpoints] | None = None,
        output_stage: OutputStage | None = None,
        log_stage: LogStage | None = None,
        channels: TaskChannels | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._on_completion = on_completion
        directory = directory.absolute()
        self._directory = OwnDirectory(directory)
        self._sandboxes_directory = OwnDirectory(directory / "sandboxes")
        rung = rung or Plain()
        for prepare in (raise_descriptor_limit, switch_core_dumps_off, seal_descriptors):
            prepare()  # for tasks, which inherit it
        launcher = launch(self._sandboxes_directory, rung.tree, self)
        trash = Trash(directory / "trash")
        computed = ComputedAttempts(directory / "computed")
        kept = {each.sandbox for each in computed.left.values()}
        for name in set(os.listdir(self._sandboxes_directory.fd)) - kept:
            with contextlib.suppress(OSError):  # the sandbox that gets that name makes do
                trash.discard(name, self._sandboxes_directory.fd)
        if rung.hides_files:
            close_session_keyring()
        self._runs: dict[int, AttemptRun] = {}  # by attempt: from start to completion
        running: dict[int, AttemptRun] = {}
        self._context = RunContext(
            loop=loop,
            rung=rung,
            launcher=launcher,
            starter=Starter(launcher, rung, any_workdir=any_workdir),
            limits=LimitEnforcer(loop, running, rung, launcher, output_limit_bytes),
            task_limits=task_limits or TaskLimits(),
            sandboxes=Sandboxes(
                self._sandboxes_directory, trash.discard, kept, reuses_files=not rung.hides_files
            ),
            trash=trash,
            kept=KeptOutputs(
                directory / "outputs",
                trash.discard,
                limit_bytes=kept_bytes,
                limit_files=kept_files,
            ),
            computed=computed,
            output_limit_bytes=output_limit_bytes,
            preparation=preparation() if preparation is not None else None,
            checkpoints=checkpoints() if checkpoints is not None else None,
            output_stage=output_stage,
            log_stage=log_stage,
            on_over=self._over,
            on_stage=on_stage,
            on_begun=on_begun,
            on_withdrawn=on_withdrawn,
            channels=channels or TaskChannels(loop),
            running=running,
        )
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = MOST_AHEAD

    @property
    def inputs(self) -> InputCache | None:
        """The cache of what was fetched for commands; None if nothing is."""
        preparation = self._context.preparation
        return None if preparation is None else preparation.cache

    # ---- asked from outside

    def start(self, command: CommandSpec) -> None:
        """Starts a command, soon if something has to be fetched; or does what is left of one that
        an earlier process of the worker ran.

        Raises:
            ValueError: the number is in use.
        """
        number = command.number
        if number in self._runs:
            raise ValueError(f"attempt {number} runs already")
        computed = self._context.computed.left.pop(number, None)
        if computed is not None:
            run = self._runs[number] = AttemptRun(computed.command, self._context)
            run.resume(computed)
            return
        run = self._runs[number] = AttemptRun(command, self._context)
        try:
            run.start()
        except Exception:
            del self._runs[number]
            raise

    def begin(self, number: int) -> None:
        """Starts a command that waits. Nothing happens if it has started."""
        run = self._runs.get(number)
        if run is not None:
            run.begin()

    def withdraw(self, number: int) -> None:
        """Forgets a command that waits."""
        run = self._runs.get(number)
        if run is not None:
            run.withdraw()

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """Ends a task: its stop signal to its process group, SIGKILL after its grace.

        Returns:
            False if there is no such task (any more); then nothing happens.
        """
        run = self._runs.get(number)
        if run is None:
            self._drop(number)
            return False
        return run.kill(reason)

    def _drop(self, number: int) -> None:
        """Gives up an attempt that an earlier process of the worker has computed."""
        context = self._context
        computed = context.computed.left.get(number)
        if computed is not None:
            context.computed.forget(number)
            with contextlib.suppress(OSError):
                context.trash.discard(computed.sandbox, context.sandboxes.fd)

    def left(self) -> list[CommandSpec]:
        """Commands whose scratch directories are kept: what they have computed is there."""
        return [each.command for each in self._context.computed.left.values()]

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Stores the checkpoint of a command now; or has it stop, and stores it then."""
        run = self._runs.get(number)
        if run is None:
            return
        if stop:
            run.move()
        elif self._context.checkpoints is not None:
            self._context.checkpoints.store_soon(number)

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """Returns what running tasks use, from /proc; nothing of their stages and cleanups."""
        context, found = self._context, {}
        for number in numbers:
            run = context.running.get(number)
            if run is None or not run.command_lives:
                continue
            pids = [run.pid, *descendants(run.pid, run.limits.processes)]
            cpu_seconds, memory_bytes = used_now([*pids, *context.launcher.orphans_of(number)])
            memory_bytes += context.rung.memory_files_bytes(run.pid)
            run.seen_cpu_seconds = max(run.seen_cpu_seconds, run.cpu_seconds + cpu_seconds)
            found[number] = (run.seen_cpu_seconds, memory_bytes)
        return found

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Reads the output of a running task, or of one that ended and wrote more than its tail.

        Args:
            number: of the attempt.
            stream: stdout or stderr.
            offset: first byte.
            limit: most bytes returned.

        Raises:
            NotFound: that output is not here.
        """
        run = self._runs.get(number)
        if run is not None and run.has_output and stream in STREAMS:
            if not (run.pid or run.ran):
                return b""  # it is about to start
            with contextlib.suppress(OSError):
                return run.sandbox.read(stream, offset, limit)
        return self._context.kept.read(number, stream, offset, limit)

    async def close(self) -> None:
        """Kills every task, reports none of them, and gives everything back once they are gone."""
        context = self._context
        if context.closed:
            return
        context.closed = True
        context.limits.close()
        for run in self._runs.values():
            run.close()
        context.channels.close_all()
        await context.launcher.close()
        if context.beside:
            await asyncio.wait(context.beside)
        for each in (context.checkpoints, context.preparation):
            if each is not None:
                await each.close()
        if context.output_stage is not None:
            context.output_stage.close()
        await context.trash.close()
        context.kept.close()
        context.computed.close()
        self._sandboxes_directory.close()
        self._directory.close()

    # ---- told by the launcher

    def on_begun(self, number: int, at: float) -> None:
        """Passes on that a command that waited is being started."""
        self._runs[number].on_begun(at)

    def on_started(self, started: Started) -> None:
        """Passes on that a program of an attempt runs."""
        self.start_seconds.observe(started.took_seconds)
        self._runs[started.number].on_started(started)

    def on_withdrawn(self, number: int) -> None:
        """Passes on that a command that waited has not been started."""
        if self._runs[number].on_withdrawn():
            del self._runs[number]
            self._context.on_withdrawn(number)

    def on_not_started(self, failure: NotStarted) -> None:
        """Passes on that a program of an attempt could not be started."""
        run = self._runs[failure.number]
        if run.waits and run.withdrawn:
            self.on_withdrawn(failure.number)
        else:
            run.on_not_started(failure)

    def on_ended(self, ended: ProgramEnded) -> None:
        """Passes on that a program of an attempt has ended, and nothing is left to wait for."""
        self._context.running.pop(ended.number).on_ended(ended)

    # ---- told by attempts

    def _over(self, completion: Completion) -> None:
        self._runs.pop(completion.number, None)
        if self._context.closed:
            return
        try:
            self._on_completion(completion)
        except Exception:
            log.exception("attempt %d: its completion was not accepted", completion.number)
