"""Prints what the tasks of a map wrote, in the order in which they end or in that of the inputs."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from typing import IO, Self

from kestrelctl.cli.map.halting import Halting
from kestrelctl.cli.map.replacement import MappedCommand, MappedInput
from kestrelctl.cli.map.run import EndedInput, MapRun
from kestrelctl.cli.show.command_output import CommandOutput
from kestrelctl.cli.show.screen import Screen
from kestrelctl.core.model.job.task_state import TaskState
from kestrelctl.grammar.quantities import short_address, size
from kestrelctl.protocol.job_answers import TaskView

#: The exit value of a task that has not come to its end.
_NO_END = -1
#: So much waits in memory; what comes beyond it waits in a temporary file, as GNU parallel does it.
WAITING_MEMORY_BYTES = 64 * 2**20


class MapOutput(CommandOutput):
    """The output of a map.

    Args:
        done: numbers of inputs that do not come, because an earlier run has had them.
        keeps_order: whether tasks come in the order of their inputs.
        has_tags: whether each line begins with the arguments.
        log: where a line is written about each task, once its output is printed.
    """

    many = True

    def __init__(
        self,
        run: MapRun,
        command: MappedCommand,
        halting: Halting,
        screen: Screen,
        *,
        done: Collection[int] = (),
        keeps_order: bool = False,
        has_tags: bool = False,
        log: IO[str] | None = None,
    ) -> None:
        self._run = run
        self._command = command
        self._halting = halting
        self._screen = screen
        self._done = done
        self._keeps_order = keeps_order
        self._has_tags = has_tags
        self._log = log

    async def entries(self) -> AsyncIterator[tuple[str, object]]:
        async for task, (view, stdout, stderr), _ in self._each():
            fields = {
                "number": task.number,
                "arguments": task.arguments,
                "task": view,
                "stdout": stdout.decode(errors="backslashreplace"),
                "stderr": stderr.decode(errors="backslashreplace"),
            }
            yield str(task.number), fields

    async def tabulate(self, screen: Screen) -> None:
        async for task, (_, stdout, stderr), _ in self._each():
            tag = "\t".join((" ".join(task.arguments), "")).encode() if self._has_tags else b""
            if stdout:
                data = tagged(stdout, tag)
                if screen.is_terminal:
                    screen.write(_for_terminal(data))
                    sys.stdout.flush()
                else:
                    screen.write_bytes(data)
            if stderr:
                data = tagged(stderr, tag)
                if sys.stderr.isatty():
                    data = _for_terminal(data).encode(errors="backslashreplace")
                screen.write_error_bytes(data)

    async def _each(self) -> AsyncIterator[EndedInput]:
        """Yields each task in the order in which it is printed; logs it when that is done."""
        following = 1
        with WaitingOutputs() as waiting:
            async for each in self._ends():
                task = each.input
                waiting.add(each)
                if self._keeps_order:
                    ready = []
                    while following in waiting or following in self._done:
                        if following not in self._done:
                            ready.append(following)
                        following += 1
                else:
                    ready = [task.number]
                for number in ready:
                    found = waiting.take(number)
                    yield found
                    self._note(found)
            for found in waiting.take_all():
                yield found
                self._note(found)

    async def _ends(self) -> AsyncIterator[EndedInput]:
        """Yields tasks as they end, and stops the run when that is to be."""
        is_halted = False
        async for each in self._run.ends():
            view = each.ended.task
            if is_halted and view.state is TaskState.CANCELLED:
                continue
            if self._halting.add(*exit_of(view)) and not is_halted:
                is_halted = True
                command = " ".join(self._filled(each.input))
                self._screen.say(f"no more is run, as --halt says, after: {command}")
                self._run.stop(now=self._halting.is_now)
            yield each

    def _filled(self, task: MappedInput) -> list[str]:
        return self._command.shape(len(task.arguments)).filled(task)

    def _tell_missing(self, found: EndedInput) -> None:
        """Says what of the output of a task did not come: not all of a long one is kept."""
        view, stdout, stderr = found.ended
        for wrote_bytes, came, name, option in (
            (view.stdout_bytes, stdout, "standard output", ""),
            (view.stderr_bytes, stderr, "standard error", " --stderr"),
        ):
            if len(came) < wrote_bytes:
                self._screen.warn(
                    f"of the {size(wrote_bytes)} of {name} of input {found.input.number}, "
                    f"{size(wrote_bytes - len(came))} did not come",
                    hint=f"kestrelctl job logs {found.job_id} {view.task_id}{option}",
                )

    def _note(self, found: EndedInput) -> None:
        """Says and logs what there is to say of a task whose output is printed."""
        self._tell_missing(found)
        if self._log is None:
            return
        from kestrelctl.cli.map.joblog import LogLine

        view = found.ended.task
        exit_value, signal = exit_of(view)
        line = LogLine(
            number=found.input.number,
            host=short_address(view.worker) if view.worker else ":",
            start=view.started_at or 0.0,
            run_seconds=view.wall_seconds or 0.0,
            output_bytes=view.stdout_bytes,
            exit_value=exit_value,
            signal=signal,
            command=shlex.join(self._filled(found.input)),
        )
        self._log.write(line.text())
        self._log.flush()


def exit_of(view: TaskView) -> tuple[int, int]:
    """Returns the exit value and the signal of a task; both are 0 for one that is done, alone."""
    exit_value = 0 if view.signal else view.exit_code or 0
    if view.state is not TaskState.DONE and not (exit_value or view.signal):
        exit_value = _NO_END
    return exit_value, view.signal


def tagged(data: bytes, tag: bytes) -> bytes:
    """Returns output with a tag at the beginning of each line."""
    return re.sub(rb"(?m)^(?!\Z)", lambda _: tag, data) if tag else data


def _for_terminal(data: bytes) -> str:
    from kestrelctl.cli.show.terminal_text import TerminalText

    text = TerminalText()
    return text.add(data) + text.end()


class WaitingOutputs:
    """Tasks that have ended and wait for their turn to be printed, by the number of their input.

    Leave it as a context.

    Args:
        memory_bytes: how much output waits in memory at most.

    Attributes:
        in_memory_bytes: how much does.
    """

    def __init__(self, memory_bytes: int = WAITING_MEMORY_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self.in_memory_bytes = 0
        self._waiting: dict[int, EndedInput] = {}
        self._places: dict[int, tuple[int, int, int]] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __contains__(self, number: object) -> bool:
        return number in self._waiting

    def add(self, each: EndedInput) -> None:
        """Keeps a task until it is taken."""
        size_bytes = len(each.ended.stdout) + len(each.ended.stderr)
        if size_bytes and self.in_memory_bytes + size_bytes > self._memory_bytes:
            # Where no file takes it, it waits in memory after all.
            with contextlib.suppress(OSError):
                each = self._in_file(each)
        self.in_memory_bytes += len(each.ended.stdout) + len(each.ended.stderr)
        self._waiting[each.input.number] = each

    def _in_file(self, each: EndedInput) -> EndedInput:
        """Writes the output of a task down; returns the task without it."""
        if self._file is None:
            import tempfile  # it costs a command milliseconds, and few come here

            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  closed at exit
        _, stdout, stderr = each.ended
        place = self._file.seek(0, os.SEEK_END)
        if self._file.write(stdout + stderr) < len(stdout) + len(stderr):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._places[each.input.number] = (place, len(stdout), len(stderr))
        return each._replace(ended=each.ended._replace(stdout=b"", stderr=b""))

    def take(self, number: int) -> EndedInput:
        """The task of an input, which waits no more."""
        each = self._waiting.pop(number)
        if number not in self._places:
            self.in_memory_bytes -= len(each.ended.stdout) + len(each.ended.stderr)
            return each
        assert self._file is not None
        place, stdout_bytes, stderr_bytes = self._places.pop(number)
        self._file.seek(place)
        stdout, stderr = self._file.read(stdout_bytes), self._file.read(stderr_bytes)
        return each._replace(ended=each.ended._replace(stdout=stdout, stderr=stderr))

    def take_all(self) -> Iterator[EndedInput]:
        """All that wait, in the order of their inputs."""
        for number in sorted(self._waiting):
            yield self.take(number)
