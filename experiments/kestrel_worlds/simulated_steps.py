"""Commands of a simulated machine that run in steps, and go on from checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kestrel_worlds.checkpoint_audit import CheckpointAudit
from kestrel_worlds.loop import Loop
from kestrel_worlds.simulation_clock import SimulationClock
from kestrelctl.core.model.end_reason import MOVED, NO_REASON, ReasonText
from kestrelctl.core.model.files.stored_file import Piece, StoredFile
from kestrelctl.core.model.job.checkpoint import MadeCheckpoint
from kestrelctl.core.model.result import Outcome
from kestrelctl.worker.files.checkpoint_order import CheckpointOrder
from kestrelctl.worker.run.executor import CommandSpec, Completion

#: The number of steps of a task, and the seconds of each.
STEPS = 12
STEP_SECONDS = 0.5
#: One in four tasks asks to go on elsewhere by itself, at this step.
LEAVES_AT = 6
#: Seconds that files take to the share and back.
TRAVEL_SECONDS = (0.01, 0.8)
#: How often the share has lost a checkpoint, and how often one cannot be stored.
CHANCE_OF_LOSS = 0.05
CHANCE_OF_FAILURE = 0.1


class SimulatedSteps:
    """One command, from its start to its end.

    Args:
        ended: called with the outcome, in the world's time, before the worker hears of it.
    """

    def __init__(
        self,
        command: CommandSpec,
        order: CheckpointOrder,
        clock: SimulationClock,
        random: Random,
        loop: Loop,
        audit: CheckpointAudit,
        ended: Callable[[Completion, int], None],
    ) -> None:
        self._number = command.number
        self._task = (int(command.env["KESTREL_JOB_ID"]), int(command.env["KESTREL_TASK_INDEX"]))
        self._order = order
        self._clock = clock
        self._random = random
        self._loop = loop
        self._audit = audit
        self._ended = ended
        self._began_at = clock.now
        self._over = self._stopping = False
        self._step = 0
        self._n = order.given.n if order.given is not None else 0
        self._begin(order.given)

    def _begin(self, given: MadeCheckpoint | None) -> None:
        lost = given is not None and self._random.random() < CHANCE_OF_LOSS
        if lost:
            self._loop.call_soon(self._order.told, None, "the share has lost it")
        self._step = self._audit.began(self._task, self._number, given, lost=lost)
        self._clock.after(STEP_SECONDS, self._go_on)
        self._clock.after(self._order.every_seconds, self._store, True)

    def _go_on(self) -> None:
        if self._over:
            return
        self._step += 1
        self._audit.stepped(self._task)
        if self._step >= STEPS:
            self._end(Outcome.DONE, exit_code=0)
        elif self._step == LEAVES_AT and self._task[1] % 4 == 1:
            self._leave(NO_REASON)
        else:
            self._clock.after(STEP_SECONDS, self._go_on)

    def store(self) -> None:
        """Stores a checkpoint now."""
        self._store(again=False)

    def _store(self, again: bool) -> None:
        if self._over:
            return
        if again:
            self._clock.after(self._order.every_seconds, self._store, True)
        if self._random.random() >= CHANCE_OF_FAILURE and self._step:
            stored = self._file()
            seconds = self._random.uniform(*TRAVEL_SECONDS)
            self._clock.after(seconds, self._stored, stored)

    def _stored(self, stored: StoredFile) -> None:
        if self._over:
            return
        self._n += 1
        self._loop.call_soon(self._order.told, MadeCheckpoint(self._n, stored), "")

    def _file(self) -> StoredFile:
        job_id, index = self._task
        sha256 = f"{job_id:016x}{index:016x}{self._number:024x}{self._step:08x}"
        self._audit.made(sha256, self._task, self._number, self._step)
        piece = Piece(sha256=sha256, size_bytes=1, url=f"https://share/{sha256}")
        return StoredFile(sha256=sha256, size_bytes=1, pieces=(piece,))

    def stop(self) -> None:
        """Asks it to stop, to go on elsewhere."""
        if not self._stopping:
            self._stopping = True
            self._clock.after(self._random.uniform(0.0005, 0.3), self._leave, MOVED)

    def _leave(self, reason: ReasonText) -> None:
        if self._over:
            return
        fails = self._random.random() < CHANCE_OF_FAILURE
        if fails and reason:
            self._end(Outcome.KILLED, signal=15, reason=reason)
            return
        made = MadeCheckpoint(self._n + 1, self._file())
        self._end(Outcome.GOES_ON, exit_code=85, reason=reason, checkpoint=made)

    def end(self, outcome: int, reason: ReasonText) -> None:
        """Ends it, as it is killed."""
        self._end(outcome, signal=9, reason=reason)

    def vanish(self) -> None:
        """Ends it without a word, as its worker dies."""
        self._over = True

    def _end(
        self,
        outcome: int,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        reason: ReasonText = NO_REASON,
        checkpoint: MadeCheckpoint | None = None,
    ) -> None:
        if self._over:
            return
        self._over = True
        completion = Completion(
            self._number,
            exit_code=exit_code,
            signal=signal,
            reason=reason,
            started_at=self._began_at,
            wall_seconds=self._clock.now - self._began_at,
            checkpoint=checkpoint,
        )
        self._ended(completion, outcome)
