"""An attempt on this machine, from what it needs to what it leaves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import (
    CANCELLED,
    MOVED,
    NO_REASON,
    EndKind,
    EndReason,
    ReasonText,
    in_stage,
)
from kestrelctl.core.model.job.stage import OUT, RUN
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.errors import NO_SPACE
from kestrelctl.worker.files.checkpoint_ends import will_go_on
from kestrelctl.worker.files.checkpoints import Checkpoints
from kestrelctl.worker.files.log_stage import LogStage, long_streams
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.files.preparation import Preparation
from kestrelctl.worker.files.task_outputs import store_outputs
from kestrelctl.worker.isolation.rung import Rung, TaskLimits
from kestrelctl.worker.launch.launcher import Launcher, NotStarted, ProgramEnded, Started
from kestrelctl.worker.run.attempt_state import CLEANUP, AttemptState
from kestrelctl.worker.run.computed_attempts import ComputedAttempt, ComputedAttempts
from kestrelctl.worker.run.executor import AttemptRefused, CommandSpec, Completion
from kestrelctl.worker.run.limits import LimitEnforcer
from kestrelctl.worker.run.output import KeptOutputs
from kestrelctl.worker.run.sandbox import Sandbox, Sandboxes
from kestrelctl.worker.run.stage_state import StageState
from kestrelctl.worker.run.starter import Starter
from kestrelctl.worker.run.task_channels import TaskChannels
from kestrelctl.worker.trash import Trash

PROBE_BYTES = 64 << 10
"""A write that fails for want of space first fills what is left: less than this stays free."""

_PROBE = "probe"
_REASONS = {
    **dict.fromkeys(NO_SPACE, EndKind.NO_SPACE.text("the worker's disk is full")),
    errno.EROFS: EndKind.NO_RESOURCES.text("the worker's disk is mounted read-only"),
}


def why_unwritable(directory: int) -> ReasonText:
    """Tells why nothing can be written to an open directory of the worker; empty if something can.

    Takes about 0.1 ms, so it is asked only after a task has failed.

    Returns:
        A reason that blames the machine.
    """
    with contextlib.suppress(OSError):
        os.unlink(_PROBE, dir_fd=directory)
    try:
        file = os.open(_PROBE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
    except OSError as error:
        return _REASONS.get(error.errno or 0, NO_REASON)
    try:
        os.posix_fallocate(file, 0, PROBE_BYTES)
    except OSError as error:
        return _REASONS.get(error.errno or 0, NO_REASON)
    else:
        return NO_REASON
    finally:
        os.close(file)
        with contextlib.suppress(OSError):
            os.unlink(_PROBE, dir_fd=directory)


log = logging.getLogger(__name__)

CLEANUP_SECONDS = 60.0
"""Time limit of a cleanup command."""
ROOM_SECONDS = 0.05
"""A disk that had room is not tried again so soon."""
REMOVAL_SECONDS = 5.0
"""How long the result of a task that failed on a full disk waits for the removal of its files."""
ITS_OWN_FAULT = EndKind.DISK_FULL.text("there is room without what the task wrote")


@dataclass(slots=True, kw_only=True)
class RunContext:
    """The things that all attempts of an executor share.

    Attributes:
        preparation: fetches what commands need; None where they need nothing.
        checkpoints: stores those of commands while they run; None where there are none.
        output_stage, log_stage: store what commands leave, and print; None where that is not
            possible.
        on_over: called with each completion.
        on_stage: called with the number of an attempt and the name of each stage that it begins.
        on_begun, on_withdrawn: as of `ProcessExecutor`.
        channels: connects commands with the owners of their jobs.
        running: the attempts of which a program runs, by number.
        room_until: until when the disk need not be tried (monotonic).
        beside: what is done beside the rest.
        closed: nobody is told any more.
    """

    loop: asyncio.AbstractEventLoop
    rung: Rung
    launcher: Launcher
    starter: Starter
    limits: LimitEnforcer
    task_limits: TaskLimits
    sandboxes: Sandboxes
    trash: Trash
    kept: KeptOutputs
    computed: ComputedAttempts
    output_limit_bytes: int
    preparation: Preparation | None
    checkpoints: Checkpoints | None
    output_stage: OutputStage | None
    log_stage: LogStage | None
    on_over: Callable[[Completion], None]
    on_stage: Callable[[int, str], None]
    on_begun: Callable[[int, float], None]
    on_withdrawn: Callable[[int], None]
    channels: TaskChannels
    running: dict[int, AttemptRun]
    room_until: float = 0.0
    beside: set[asyncio.Task[None]] = field(default_factory=set)
    closed: bool = False

    def later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does something beside the rest; `close` waits for it."""
        later = self.loop.create_task(work)
        self.beside.add(later)
        later.add_done_callback(self.beside.discard)
        return later

    def disk_is_full(self) -> bool:
        """Whether the disk is full. It is not tried each time, so that failures cost little."""
        now = time.monotonic()
        if now < self.room_until:
            return False
        full = bool(why_unwritable(self.sandboxes.fd))
        self.room_until = 0.0 if full else now + ROOM_SECONDS
        return full


class AttemptRun(AttemptState):
    """One attempt: what it needs is fetched, its stages and its command run, then its cleanup, and
    what it leaves is stored.

    Each step calls the next, or something that waits does, so nothing of it runs twice. Its
    completion is handed out at the end, and never from inside `start` or `kill`.
    """

    __slots__ = ("_context", "_pause", "_preparing", "_storing")

    def __init__(self, command: CommandSpec, context: RunContext) -> None:
        super().__init__(command, _limits_of(command, context.task_limits))
        self._context = context
        self._preparing: asyncio.Task[None] | None = None
        self._pause: asyncio.Handle | None = None  # before the next try of a stage
        self._storing: asyncio.Task[None] | None = None

    # ---- asked from outside

    def start(self) -> None:
        """Begins at once, or soon if something is to be fetched first."""
        context, command = self._context, self.command
        needs = context.preparation is not None and context.preparation.serves(command)
        if needs or (context.checkpoints is not None and context.checkpoints.goes_on(command)):
            self._preparing = context.later(self._prepare())
        else:
            self._run(context.sandboxes.take())

    def resume(self, computed: ComputedAttempt) -> None:
        """Does what is left of an attempt that an earlier process of the worker has computed."""
        context, completion = self._context, computed.completion
        self.enter(context.sandboxes.named(computed.sandbox))
        self.started_at = completion.started_at
        self.furnished = self.ran = True
        self.left_something = True  # as far as this process can know
        self.completion = completion
        if self.stages is not None:
            self.stages.over = list(completion.stages)
        if not self.sandbox.take_over(computed.inode):
            self.completion = None
            gone = EndKind.NO_RESOURCES.text("the scratch directory has gone")
            completion = Completion(completion.number, reason=gone, started_at=time.time())
            context.loop.call_soon(self._collect, completion)
        elif computed.cleaned:
            context.loop.call_soon(self._store, completion)
        elif self.stages is not None and self.stages.upcoming and not completion.reason:
            self._next_stage(self.stages)
        else:
            context.loop.call_soon(self._clean_up, completion)

    def begin(self) -> None:
        """Starts, if it waits."""
        if self.waits:
            self.waits = False
            self._context.launcher.begin(self.command.number)

    def withdraw(self) -> None:
        """Forgets it, if it waits."""
        if self.waits:
            self.withdrawn = True
            self._context.launcher.withdraw(self.command.number)

    def kill(self, reason: ReasonText) -> bool:
        """Ends what runs: by its stop signal, and SIGKILL after its grace.

        Returns:
            Whether there is anything that can be ended.
        """
        context = self._context
        self.killed = self.killed or reason
        if self._preparing is not None:
            context.loop.call_soon(self._preparing.cancel)  # it has begun by then
        elif self._storing is not None:
            self._stop_storing(reason)
        elif self._pause is not None:
            self._pause.cancel()
            self._pause = context.loop.call_soon(self._end_stages, self.killed)
        elif self.waits and self.lives:
            context.launcher.withdraw(self.command.number)
        elif self.lives:
            context.limits.terminate(self, reason)
        else:
            return False
        return True

    def move(self) -> None:
        """Asks it to stop, to go on elsewhere: once, and not when its command is over."""
        if self.completion is None and not self.killed:
            self.kill(MOVED)

    def close(self) -> None:
        """Stops all work for it, except that of its launcher."""
        if self._preparing is not None:
            self._preparing.cancel()
        self._stop_storing(CANCELLED)
        if self._pause is not None:
            self._pause.cancel()

    # ---- before it runs

    async def _prepare(self) -> None:
        """Has what it needs fetched, and the checkpoint that it goes on from."""
        context, number = self._context, self.command.number
        why_not = NO_REASON
        try:
            if context.preparation is not None:
                self.command = await context.preparation.prepare(self.command)
            if context.checkpoints is not None:
                self.command = await context.checkpoints.resumed(self.command)
        except asyncio.CancelledError:
            why_not = self.killed or CANCELLED
        except AttemptRefused as error:
            why_not = error.reason
        except Exception as error:
            log.exception("attempt %d: what it needs", number)
            why_not = EndKind.NO_RESOURCES.text(repr(error))
        self._preparing = None
        why_not = why_not or self.killed
        if not why_not:
            try:
                self._run(context.sandboxes.take())
            except Exception as error:
                log.exception("attempt %d: its start", number)
                why_not = EndKind.NO_RESOURCES.text(repr(error))
        if context.checkpoints is not None:
            context.checkpoints.forget_fetched(number)
        if why_not:
            self._over(Completion(number, reason=why_not, started_at=time.time()))

    def _run(self, sandbox: Sandbox) -> None:
        self.enter(sandbox)
        if self.stages is None:
            self._start_command()
        else:
            self._next_stage(self.stages)
        if self._context.checkpoints is not None:
            self._context.checkpoints.watch(self)

    # ---- programs

    def _start_command(self) -> None:
        """Starts the task's own program. What is measured from now on is its own."""
        program = self.command.program
        self.part = RUN
        self.reason = NO_REASON
        self.started_at = time.time()
        self.cpu_seconds = self.seen_cpu_seconds = 0.0
        self.kernel_peak_bytes = self.peak_bytes = self.summed_bytes = 0
        why_not = self._spawn(program.argv, program.time_limit_seconds)
        if why_not:
            self._context.loop.call_soon(self._never_ran, why_not)

    def _spawn(self, argv: tuple[str, ...], limit_seconds: float | None) -> ReasonText:
        """Starts a program.

        Args:
            limit_seconds: None for no limit.

        Returns:
            The reason why that cannot be done; nothing if the launcher is to say what comes of it.
        """
        self.pid = 0
        self.limit_seconds = limit_seconds
        self.deadline = math.inf
        self.terminated = False
        why_not = self._context.starter.start(self, argv)
        self.lives = not why_not
        return why_not

    def on_begun(self, at: float) -> None:
        """Notes that it waited, and is being started."""
        if not self.waits:
            return  # `begin` was called meanwhile
        self.waits = False
        self._context.on_begun(self.command.number, at)
        if self.killed:
            self._context.limits.terminate(self, self.killed)

    def on_started(self, started: Started) -> None:
        """Notes that a program of it runs."""
        self._context.running[started.number] = self
        self.pid, self.since = started.pid, started.at
        if self.part == RUN:
            self.started_at = started.wall
            if self.command.program.channel:
                self._open_channel()
        self._context.limits.watch(self)

    def _open_channel(self) -> None:
        try:
            scratch = self.sandbox.open_scratch()
        except OSError as error:  # the task put something else in its place
            log.warning("attempt %d: it has no channel: %s", self.command.number, error)
            return
        self._context.channels.open(self.command.number, scratch)
        os.close(scratch)

    def on_withdrawn(self) -> bool:
        """Notes that it waited, and has not been started. Returns whether it is forgotten."""
        self.lives = False
        if self.killed:
            self._never_ran(self.killed)
            return False
        self._context.sandboxes.give_back(self.sandbox)
        return True

    def on_not_started(self, failure: NotStarted) -> None:
        """Tries a program again that could not be started: perhaps it can be elsewhere."""
        why_not = self.killed or self._context.starter.retry(self, failure)
        if not why_not:
            return
        self.lives = False
        if self.part == RUN:
            self._never_ran(why_not)
        elif self.part == CLEANUP:
            assert self.completion is not None
            self._store(_with_cleanup(self.completion, why_not))
        elif self.killed:
            self._end_stages(self.killed)
        else:
            self._stage_failed(why_not, why_not)

    def on_ended(self, ended: ProgramEnded) -> None:
        """Goes on when a program of it has ended, and nothing is left to be waited for."""
        self.lives = False
        self._context.channels.close(self.command.number)
        # The kernel adds nothing of children that their parent had no time to wait for (wait4(2)).
        self.cpu_seconds = max(self.cpu_seconds + ended.cpu_seconds, self.seen_cpu_seconds)
        self.kernel_peak_bytes = max(self.kernel_peak_bytes, ended.peak_bytes)
        self.left_something |= ended.left_something
        asked = bool(self.reason)
        ending = self._context.rung.ended(self.sandbox.place, ended.code, asked=asked)
        self.reason = self.reason or ending.reason
        code = ending.code
        if self.part == CLEANUP:
            why = f"exit code {code}" if code > 0 else f"signal {-code}"
            why = ending.reason or (why if code else "")
            assert self.completion is not None
            self._store(_with_cleanup(self.completion, why))
            return
        self.ran = self.ran or ending.ran
        if self.part != RUN:
            self._stage_ended(self.reason, code)
        elif not ending.ran:
            self._never_ran(self.reason)
        else:
            self.peak_bytes = max(self.peak_bytes, ending.peak_bytes)
            self._command_ended(code, ended.at)

    def _command_ended(self, code: int, now: float) -> None:
        completion = Completion(
            self.command.number,
            code if code >= 0 else None,
            -code if code < 0 else None,
            self.reason,
            self.started_at,
            now - self.since,
            self.cpu_seconds,
            self.kernel_peak_bytes or self.peak_bytes,
        )
        stages = self.stages
        if stages is not None:
            stages.end(time.monotonic())
            succeeded = completion.is_success(self.command.program.success_exits)
            if succeeded and stages.upcoming == OUT:
                self.completion = replace(completion, stages=tuple(stages.over))
                self._keep(self.completion)
                self._next_stage(stages)
                return
        self._clean_up(completion)

    def _never_ran(self, why: ReasonText) -> None:
        self.reason = why
        self._clean_up(Completion(self.command.number, reason=why, started_at=self.started_at))

    # ---- stages: a try that fails is followed by another after a pause, in which nothing runs

    def _next_stage(self, stages: StageState) -> None:
        name = stages.begin(time.monotonic())
        self._context.on_stage(self.command.number, name)
        if name == RUN:
            self._start_command()
        else:
            self._try_stage(stages)

    def _try_stage(self, stages: StageState) -> None:
        self._pause = None
        stage = stages.stage
        self.part = stages.name
        self.reason = NO_REASON
        why_not = self._spawn(stage.argv, stage.time_limit_seconds)
        if why_not:  # whoever starts an attempt is not told of its end at once
            self._pause = self._context.loop.call_soon(self._stage_failed, why_not, why_not)

    def _stage_ended(self, reason: ReasonText, code: int) -> None:
        """Goes on when a stage has ended.

        Args:
            reason: why, if it did not end by itself.
            code: exit code, or minus the signal.
        """
        if self.killed:
            self._end_stages(self.killed)
        elif reason or code:
            self._stage_failed(reason, how_it_ended(reason, max(0, -code), max(0, code)))
        else:
            assert self.stages is not None
            self.stages.end(time.monotonic())
            if self.stages.upcoming:
                self._next_stage(self.stages)
            else:
                self._end_stages(NO_REASON)

    def _stage_failed(self, reason: ReasonText, how: str) -> None:
        """Has a stage tried again, if it may be.

        Args:
            reason: what ended its last try other than an exit.
            how: the same, or the exit in words.
        """
        assert self.stages is not None
        pause_seconds = self.stages.try_again()
        if pause_seconds is not None:
            loop = self._context.loop
            self._pause = loop.call_later(pause_seconds, self._try_stage, self.stages)
        elif EndReason.of(reason).kind.runs_elsewhere and self.completion is None:
            self._end_stages(reason)
        else:
            self._end_stages(in_stage(self.stages.name, how))

    def _end_stages(self, reason: ReasonText) -> None:
        """Ends the stages: it has failed in one, or there is none any more."""
        self._pause = None
        if self.completion is None:
            number = self.command.number
            completion = Completion(number, reason=reason, started_at=self.started_at)
        else:
            completion = replace(self.completion, reason=reason)
        self._clean_up(completion)

    # ---- after it has run

    def _clean_up(self, completion: Completion) -> None:
        """Starts the cleanup of a task, if it has one and anything of it ran."""
        if self._context.closed:
            return
        if self.stages is not None:
            self.stages.end(time.monotonic())
            completion = replace(completion, stages=tuple(self.stages.over))
            if completion.number in self._context.computed:
                self._keep(completion)
        cleanup = self.command.program.cleanup
        if cleanup and self.ran:
            self.completion = completion
            self.part = CLEANUP
            self.reason = NO_REASON
            why_not = self._spawn(cleanup, CLEANUP_SECONDS)
            if not why_not:
                return
            completion = _with_cleanup(completion, why_not)
        self._store(completion)

    def _keep(self, completion: Completion, *, cleaned: bool = False) -> None:
        """Has what the task has computed outlive this process, until it has ended."""
        if self.command.held is not None:
            command = replace(self.command, checkpoints=None)  # it has nothing left to go on to
            sandbox = self.sandbox
            self._context.computed.keep(
                ComputedAttempt(command, completion, sandbox.name, sandbox.inode, cleaned)
            )

    def _store(self, completion: Completion) -> None:
        """Has what the task left stored, if it succeeded and its job wants that."""
        if self._context.closed:
            return
        command = self.command
        goes_on = self.ran and will_go_on(command, completion)
        stores = command.program.outputs and completion.is_success(command.program.success_exits)
        if not goes_on and not stores:
            self._collect(completion)
            return
        if not goes_on:
            self._keep(completion, cleaned=True)
        self.completion = completion
        self.reason = NO_REASON
        self._storing = self._context.later(self._store_outputs(completion))

    async def _store_outputs(self, completion: Completion) -> None:
        completion = await store_outputs(self, completion, self._context.output_stage)
        self._storing = None
        self._collect(completion)

    def _stop_storing(self, reason: ReasonText) -> None:
        if self._storing is not None and not self.reason:  # once: it tidies up meanwhile
            self.reason = reason
            self._context.loop.call_soon(self._storing.cancel)  # it has begun by then

    def _collect(self, completion: Completion) -> None:
        """Takes what the task has printed, and empties its scratch directory."""
        context, sandbox = self._context, self.sandbox
        if context.closed and completion.number in context.computed:
            return  # the next process does the rest
        context.computed.forget(completion.number)
        failed = self.ran and completion.exit_code != 0 and not completion.reason
        full = failed and completion.left is None and context.disk_is_full()
        try:
            if self.ran:
                sizes = sandbox.sizes()
                if sizes != (0, 0):
                    completion = self._with_outputs(completion, sizes)
                if self.left_something or context.rung.hides_files:
                    sandbox.abandon_outputs()
            if self.ran or self.furnished:
                sandbox.empty_scratch()
        except OSError as error:
            log.warning("attempt %d: its files: %s", completion.number, error)
        if full:
            context.later(self._collect_full(completion))
        else:
            self._store_logs(completion)

    def _with_outputs(self, completion: Completion, sizes: tuple[int, int]) -> Completion:
        context = self._context
        stdout, stderr = self.sandbox.take_outputs(
            completion.number, sizes, context.kept, context.output_limit_bytes
        )
        return replace(
            completion, stdout=stdout, stderr=stderr, stdout_bytes=sizes[0], stderr_bytes=sizes[1]
        )

    async def _collect_full(self, completion: Completion) -> None:
        """Says who is to blame for a task that failed on a full disk.

        A task that fills a disk must not have all workers blamed for it, one after the other. So
        the disk is tried again without what the task wrote.
        """
        context = self._context
        await context.trash.wait(REMOVAL_SECONDS)
        if not context.closed:
            reason = why_unwritable(context.sandboxes.fd) or ITS_OWN_FAULT
            self._store_logs(replace(completion, reason=reason))

    def _store_logs(self, completion: Completion) -> None:
        """Has what the task printed stored, if its job wants that."""
        context = self._context
        if (
            not self.command.program.keep_logs
            or context.log_stage is None
            or EndReason.of(completion.reason).kind is EndKind.CANCELLED
            or context.closed
            or not long_streams(completion)
        ):
            self._leave(completion)
            return
        self.completion = completion
        self.reason = NO_REASON
        self._storing = context.later(self._store_long_logs(completion, context.log_stage))

    async def _store_long_logs(self, completion: Completion, stage: LogStage) -> None:
        """Stores long outputs; whatever comes of it, the attempt has ended as it has."""
        try:
            completion = await stage.store(completion, self._context.kept)
        except asyncio.CancelledError:
            log.info("attempt %d is cancelled: what it printed stays here", completion.number)
        self._storing = None
        self._leave(completion)

    def _leave(self, completion: Completion) -> None:
        self._context.sandboxes.give_back(self.sandbox)
        self._over(completion)

    def _over(self, completion: Completion) -> None:
        """Hands the completion out, and gives back what was taken for the attempt."""
        context = self._context
        if context.preparation is not None:
            context.preparation.give_back(completion.number)
        if context.checkpoints is not None:
            completion = context.checkpoints.ended(completion)
        context.on_over(completion)


def _limits_of(command: CommandSpec, common: TaskLimits) -> TaskLimits:
    if not command.memory_bytes and not command.disk_bytes:
        return common
    return TaskLimits(
        memory_bytes=command.memory_bytes or common.memory_bytes,
        disk_bytes=command.disk_bytes or common.disk_bytes,
        files=common.files,
        processes=common.processes,
    )


def _with_cleanup(completion: Completion, why: str) -> Completion:
    if not why or completion.reason:
        return completion
    return replace(completion, reason=EndKind.CLEANUP_FAILED.text(why))
