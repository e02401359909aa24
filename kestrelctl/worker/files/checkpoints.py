"""Stores the checkpoints of commands while they run, and has others go on from theirs."""

from __future__ import annotations

import asyncio
import logging
import os

from msgspec.structs import replace

from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.errors import KestrelError
from kestrelctl.worker.files.checkpoint_fetch import CheckpointFetch, CheckpointGone
from kestrelctl.worker.files.checkpoint_order import CheckpointOrder
from kestrelctl.worker.files.output_archive import Marks
from kestrelctl.worker.files.output_stage import OutputStage
from kestrelctl.worker.run.attempt_state import AttemptState
from kestrelctl.worker.run.executor import CommandSpec, Completion

log = logging.getLogger(__name__)


class _Watched:
    """An attempt whose checkpoints are stored."""

    def __init__(self, run: AttemptState, order: CheckpointOrder) -> None:
        self.run = run
        self.order = order
        self.n = order.given.n if order.given is not None else 0
        self.marks: Marks = ()  # of the files that the latest one has
        self.timer: asyncio.TimerHandle | None = None
        self.storing: asyncio.Task[None] | None = None
        self.again = False  # it is wanted once more when what is under way is stored


class Checkpoints:
    """The checkpoints of all commands of an executor.

    Files are stored beside the command, which may write to them meanwhile: what cannot be stored
    now is tried again the next time, and does not end it. Files that are as they were the last time
    are not sent.

    Args:
        stage: stores what commands leave.
        fetch: gets checkpoints.
    """

    def __init__(self, stage: OutputStage, fetch: CheckpointFetch) -> None:
        self._stage = stage
        self._fetch = fetch
        self._loop = asyncio.get_running_loop()
        self._watched: dict[int, _Watched] = {}

    # ---- before a command

    def goes_on(self, command: CommandSpec) -> bool:
        """Whether a command goes on from a checkpoint."""
        return command.checkpoints is not None and command.checkpoints.given is not None

    async def resumed(self, command: CommandSpec) -> CommandSpec:
        """Gives a command the files from which it goes on; `forget_fetched` when it has begun.

        Raises:
            CheckpointRefused: they cannot be had here.
        """
        order, number = command.checkpoints, command.number
        if order is None or order.given is None:
            return command
        try:
            place = await self._fetch.fetch(number, order.given.stored)
        except CheckpointGone as error:
            log.warning("attempt %d begins anew: %s", number, error.message)
            order.told(None, f"checkpoint {order.given.n}: {error.message}")
            return command
        env = command.env | {"KESTREL_CHECKPOINT": str(order.given.n)}
        return replace(command, env=env, resume_dir=str(place))

    def forget_fetched(self, number: int) -> None:
        """Removes what was fetched and not used."""
        self._fetch.forget(number)

    # ---- while it runs

    def watch(self, run: AttemptState) -> None:
        """Stores the checkpoints of an attempt that has begun, if it is to have some."""
        order = run.command.checkpoints
        if order is not None:
            watched = self._watched[run.command.number] = _Watched(run, order)
            self._plan(watched)

    def store_soon(self, number: int) -> None:
        """Stores the checkpoint of a command now; nothing happens if it has none."""
        watched = self._watched.get(number)
        if watched is not None:
            self._store_soon(watched)

    def _plan(self, watched: _Watched) -> None:
        seconds = watched.order.every_seconds
        watched.timer = self._loop.call_later(seconds, self._store_soon, watched)

    def _store_soon(self, watched: _Watched) -> None:
        if watched.timer is None:
            return  # It has ended.
        watched.timer.cancel()
        if watched.storing is not None:
            watched.again = True
            return
        watched.storing = self._loop.create_task(self._store(watched))

    async def _store(self, watched: _Watched) -> None:
        number = watched.run.command.number
        try:
            await self._store_changed(watched, number)
        except asyncio.CancelledError:
            return
        except (KestrelError, OSError) as error:
            log.warning("attempt %d: its checkpoint is not stored: %s", number, error)
        except Exception:
            log.exception("attempt %d: its checkpoint is not stored", number)
        watched.storing = None
        if watched.again:
            watched.again = False
            self._store_soon(watched)
        else:
            self._plan(watched)

    async def _store_changed(self, watched: _Watched, number: int) -> None:
        run = watched.run
        if not run.command_lives:
            return
        scratch = run.sandbox.open_scratch()
        try:
            globs = watched.order.globs
            marks = await self._stage.look(scratch, globs)
            if not marks or marks == watched.marks:
                return
            left = await self._stage.store(
                number, scratch, globs, inputs=run.command.links, every_glob=False
            )
            if left.left_out:
                log.warning("attempt %d: its checkpoint: %s", number, left.left_out)
        finally:
            os.close(scratch)
        if run.command.program.cleanup and not run.command_lives:
            return  # The cleanup may have come in between.
        watched.n += 1
        watched.marks = marks
        watched.order.told(MadeCheckpoint(watched.n, left.stored), "")

    # ---- after it

    def ended(self, completion: Completion) -> Completion:
        """Returns the end of an attempt with the count of the checkpoint that it left."""
        watched = self._watched.pop(completion.number, None)
        if watched is None:
            return completion
        self._let_go(watched)
        if completion.left is None:
            return completion
        made = MadeCheckpoint(watched.n + 1, completion.left)
        return replace(completion, checkpoint=made)

    def _let_go(self, watched: _Watched) -> list[asyncio.Task[None]]:
        if watched.timer is not None:
            watched.timer.cancel()
            watched.timer = None
        if watched.storing is None:
            return []
        watched.storing.cancel()
        return [watched.storing]

    async def close(self) -> None:
        """Stores nothing any more, and gives everything back."""
        under_way = [task for each in self._watched.values() for task in self._let_go(each)]
        if under_way:
            await asyncio.wait(under_way)
        await self._fetch.close()
