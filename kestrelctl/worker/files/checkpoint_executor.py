"""Stores the checkpoints of commands while they run, and has others go on from theirs."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kestrelctl.core.model.end_reason import CANCELLED, MOVED, EndKind, ReasonText
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.errors import KestrelError
from kestrelctl.worker.files.checkpoint_fetch import (
    CheckpointFetch,
    CheckpointGone,
    CheckpointRefused,
)
from kestrelctl.worker.files.checkpoint_order import CheckpointOrder
from kestrelctl.worker.files.output_archive import Marks
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.run.executor import CommandSpec, Completion
from kestrelctl.worker.run.process_executor import ProcessExecutor

log = logging.getLogger(__name__)


class _Kept:
    """A command with checkpoints."""

    def __init__(self, command: CommandSpec, order: CheckpointOrder) -> None:
        self.command = command
        self.order = order
        self.n = order.given.n if order.given is not None else 0
        self.marks: Marks = ()  # of the files that the latest one has
        self.fetching: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.storing: asyncio.Task[None] | None = None
        self.again = False  # it is wanted once more when what is under way is stored


class CheckpointExecutor:
    """An `Executor` around another one that runs commands.

    Files are stored beside the command, which may write to them meanwhile: what cannot be stored
    now is tried again the next time, and does not end it. Nothing is sent of files that are as they
    were the last time.

    Args:
        on_completion: called on the event loop with each `Completion`.
        inner: makes the executor that runs commands, given what it is to call.
        stage: stores what commands leave.
        fetch: makes what gets checkpoints; after the inner executor, which wants to be there before
            this process has threads.
    """

    def __init__(
        self,
        on_completion: Callable[[Completion], None],
        inner: Callable[[Callable[[Completion], None]], ProcessExecutor],
        stage: OutputStage,
        fetch: Callable[[], CheckpointFetch],
    ) -> None:
        self._on_completion = on_completion
        self._inner = inner(self._ended)
        self._stage = stage
        self._fetch = fetch()
        self.start_seconds = self._inner.start_seconds
        self.most_ahead = self._inner.most_ahead
        self._loop = asyncio.get_running_loop()
        self._kept: dict[int, _Kept] = {}

    # ---- asked from outside

    def start(self, command: CommandSpec) -> None:
        """Start a command, soon if it goes on from a checkpoint.

        Raises:
            ValueError: the number is in use.
        """
        order, number = command.checkpoints, command.number
        if order is None:
            self._inner.start(command)
            return
        if number in self._kept:
            raise ValueError(f"attempt {number} runs already")
        kept = self._kept[number] = _Kept(command, order)
        if order.given is None:
            self._begin(kept, command)
        else:
            kept.fetching = self._loop.create_task(self._go_on(kept, order.given))

    def begin(self, number: int) -> None:
        """Start a command that waits."""
        self._inner.begin(number)

    def withdraw(self, number: int) -> None:
        """Forget a command that waits."""
        self._inner.withdraw(number)

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        """End a command, also one whose checkpoint is under way."""
        kept = self._kept.get(number)
        if kept is None or kept.fetching is None:
            return self._inner.kill(number, reason)
        kept.fetching.cancel()
        kept.fetching = None
        self._loop.call_soon(self._end, number, reason)
        return True

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        """Store the checkpoint of a command now; or have it stop, and store it then."""
        kept = self._kept.get(number)
        if kept is None:
            return
        if not stop:
            self._store_soon(kept)
        elif kept.fetching is not None:
            self.kill(number, MOVED)
        else:
            self._inner.take_checkpoint(number, stop=True)

    def left(self) -> list[CommandSpec]:
        """Commands of an earlier process that are to go on."""
        return self._inner.left()

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        """What commands use that run; those whose checkpoint is under way use nothing."""
        return self._inner.used(numbers)

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        """Part of the output of a command. NotFound if it is not here."""
        return self._inner.read_output(number, stream, offset, limit)

    async def close(self) -> None:
        """Kill every command, report none of them, and give everything back."""
        under_way = [task for kept in self._kept.values() for task in self._let_go(kept)]
        if under_way:
            await asyncio.wait(under_way)
        await self._inner.close()
        await self._fetch.close()

    # ---- starting

    async def _go_on(self, kept: _Kept, given: MadeCheckpoint) -> None:
        command = kept.command
        number = command.number
        try:
            place = await self._fetch.fetch(number, given.stored)
            env = command.env | {"KESTREL_CHECKPOINT": str(given.n)}
            command = replace(command, env=env, resume_dir=str(place))
        except CheckpointGone as error:
            log.warning("attempt %d begins anew: %s", number, error.message)
            kept.order.told(None, f"checkpoint {given.n}: {error.message}")
        except CheckpointRefused as error:
            self._end(number, error.reason)
            return
        except Exception as error:
            log.exception("attempt %d: its checkpoint", number)
            self._end(number, EndKind.NO_RESOURCES.text(repr(error)))
            return
        kept.fetching = None
        self._begin(kept, command)

    def _begin(self, kept: _Kept, command: CommandSpec) -> None:
        number = command.number
        try:
            self._inner.start(command)
        except Exception as error:
            self._loop.call_soon(self._end, number, EndKind.NO_RESOURCES.text(repr(error)))
            return
        finally:
            self._fetch.forget(number)
        self._plan(kept)

    # ---- while it runs

    def _plan(self, kept: _Kept) -> None:
        seconds = kept.order.every_seconds
        kept.timer = self._loop.call_later(seconds, self._store_soon, kept)

    def _store_soon(self, kept: _Kept) -> None:
        if kept.timer is None:
            return  # It has not begun, or has ended.
        kept.timer.cancel()
        if kept.storing is not None:
            kept.again = True
            return
        kept.storing = self._loop.create_task(self._store(kept))

    async def _store(self, kept: _Kept) -> None:
        number = kept.command.number
        try:
            await self._store_changed(kept, number)
        except asyncio.CancelledError:
            return
        except (KestrelError, OSError) as error:
            log.warning("attempt %d: its checkpoint is not stored: %s", number, error)
        except Exception:
            log.exception("attempt %d: its checkpoint is not stored", number)
        kept.storing = None
        if kept.again:
            kept.again = False
            self._store_soon(kept)
        else:
            self._plan(kept)

    async def _store_changed(self, kept: _Kept, number: int) -> None:
        if not self._inner.runs(number):
            return
        scratch = self._inner.open_scratch(number)
        try:
            globs = kept.order.globs
            marks = await self._stage.look(scratch, globs)
            if not marks or marks == kept.marks:
                return
            left = await self._stage.store(
                number, scratch, globs, inputs=kept.command.links, every_glob=False
            )
            if left.left_out:
                log.warning("attempt %d: its checkpoint: %s", number, left.left_out)
        finally:
            os.close(scratch)
        if kept.command.program.cleanup and not self._inner.runs(number):
            return  # The cleanup may have come in between.
        kept.n += 1
        kept.marks = marks
        kept.order.told(MadeCheckpoint(kept.n, left.stored), "")

    # ---- ending

    def _ended(self, completion: Completion) -> None:
        kept = self._kept.pop(completion.number, None)
        if kept is not None:
            self._let_go(kept)
            if completion.left is not None:
                made = MadeCheckpoint(kept.n + 1, completion.left)
                completion = replace(completion, checkpoint=made)
        self._on_completion(completion)

    def _end(self, number: int, reason: ReasonText) -> None:
        self._fetch.forget(number)
        self._ended(Completion(number, reason=reason, started_at=time.time()))

    def _let_go(self, kept: _Kept) -> list[asyncio.Task[None]]:
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        tasks = [task for task in (kept.fetching, kept.storing) if task is not None]
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        return tasks
