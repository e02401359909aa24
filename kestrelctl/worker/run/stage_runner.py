"""Runs the stages of attempts, each until it has succeeded or has no try left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import NO_REASON, EndReason, ReasonText, in_stage
from kestrelctl.core.model.job.stage import OUT, RUN
from kestrelctl.core.model.result import how_it_ended
from kestrelctl.worker.run.executor import Completion
from kestrelctl.worker.run.running_process import RunningProcess
from kestrelctl.worker.run.stage_state import StageState


class StageHost(Protocol):
    """Who starts the programs of attempts and sees them end."""

    def start_command(self, process: RunningProcess) -> None:
        """Starts the task's own; `StageRunner.computed` follows if it has run."""

    def start_stage(
        self, process: RunningProcess, argv: tuple[str, ...], limit_seconds: float | None
    ) -> ReasonText:
        """Starts that of a stage; `StageRunner.ended` follows. Returns why that could not be done,
        or nothing.
        """

    def keep(self, process: RunningProcess, completion: Completion) -> None:
        """What the task has computed is not to be computed again from now on."""

    def after_stages(self, process: RunningProcess, completion: Completion) -> None:
        """No stage follows any more."""


class StageRunner:
    """The stages of all attempts that have some.

    A try that fails is followed by another after a pause, in which nothing of the attempt runs. Who
    is killed is not tried again.

    Args:
        host: starts what is to run.
        on_stage: called with the number of an attempt and the name of each stage that it begins.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: StageHost,
        on_stage: Callable[[int, str], None],
    ) -> None:
        self._loop = loop
        self._host = host
        self._on_stage = on_stage

    def go_on(self, process: RunningProcess) -> None:
        """Begins the stage of an attempt that comes next."""
        course = _course(process)
        name = course.begin(time.monotonic())
        self._on_stage(process.command.number, name)
        if name == RUN:
            self._host.start_command(process)
        else:
            self._try(process)

    def ended(self, process: RunningProcess, reason: ReasonText, code: int) -> None:
        """A try of a stage is over.

        Args:
            reason: why, if it did not end by itself.
            code: exit code, or minus the signal.
        """
        if process.killed:
            self._stop(process)
        elif reason or code:
            self._failed(process, reason, how_it_ended(reason, max(0, -code), max(0, code)))
        else:
            course = _course(process)
            course.end(time.monotonic())
            if course.upcoming:
                self.go_on(process)
            else:
                self._over(process, NO_REASON)

    def computed(self, process: RunningProcess, completion: Completion) -> None:
        """The task's own command is over."""
        course = _course(process)
        course.end(time.monotonic())
        succeeded = completion.is_success(process.command.program.success_exits)
        if succeeded and course.upcoming == OUT:
            process.completion = replace(completion, stages=tuple(course.over))
            self._host.keep(process, process.completion)
            self.go_on(process)
        else:
            self._host.after_stages(process, completion)

    def kill(self, process: RunningProcess) -> None:
        """Ends an attempt that is between two tries."""
        assert process.pause is not None
        process.pause.cancel()
        process.pause = self._loop.call_soon(self._stop, process)

    def _try(self, process: RunningProcess) -> None:
        process.pause = None
        course = _course(process)
        stage = course.stage
        process.part = course.name
        process.reason = NO_REASON
        why_not = self._host.start_stage(process, stage.argv, stage.time_limit_seconds)
        if why_not:  # whoever starts an attempt is not told of its end at once
            process.pause = self._loop.call_soon(self._failed, process, why_not, why_not)

    def not_started(self, process: RunningProcess, why: ReasonText) -> None:
        """The program of a try could not be started."""
        if process.killed:
            self._stop(process)
        else:
            self._failed(process, why, why)

    def _failed(self, process: RunningProcess, reason: ReasonText, how: str) -> None:
        """Has a stage tried again, if it may be.

        Args:
            reason: what ended its last try but an exit.
            how: the same, or the exit in words.
        """
        pause_seconds = _course(process).try_again()
        if pause_seconds is not None:
            process.pause = self._loop.call_later(pause_seconds, self._try, process)
        elif EndReason.of(reason).kind.runs_elsewhere and process.completion is None:
            self._over(process, reason)
        else:
            self._over(process, in_stage(_course(process).name, how))

    def _stop(self, process: RunningProcess) -> None:
        self._over(process, process.killed)

    def _over(self, process: RunningProcess, reason: ReasonText) -> None:
        """Ends the stages of an attempt: it has failed in one, or there is none any more."""
        process.pause = None
        completion = process.completion
        if completion is None:
            number = process.command.number
            completion = Completion(number, reason=reason, started_at=process.started_at)
        else:
            completion = replace(completion, reason=reason)
        self._host.after_stages(process, completion)


def _course(process: RunningProcess) -> StageState:
    assert process.course is not None
    return process.course
