"""Commands of a simulated machine: what becomes of them is drawn, and the audit sees them run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.result import Outcome
from kestrelctl.errors import NotFound
from kestrelctl.simulate.audit import Audit
from kestrelctl.simulate.loop import Loop
from kestrelctl.simulate.simulated_steps import SimulatedSteps
from kestrelctl.simulate.simulation_clock import SimulationClock
from kestrelctl.simulate.truth import Fate
from kestrelctl.simulate.workload import MOST_WANTED_BYTES
from kestrelctl.worker.executor import START_BOUNDS, CommandSpec, Completion

#: Seconds from the signal to the end of a command.
DIES_AFTER_SECONDS = (0.0005, 0.01)
#: Seconds until a command knows that there is no more of an asset for it.
REFUSED_AFTER_SECONDS = 0.005


class SimulatedExecutor:
    """An `Executor` without processes.

    Args:
        worker: the address of the worker whose commands they are.
        fate: what becomes of an execution of (kind, index) here.
        unknown: with which status commands end for which there is no more of an asset.
        loop: in whose turns exits are told.
        fatal: called when a command ends its worker.
    """

    def __init__(
        self,
        worker: str,
        clock: SimulationClock,
        random: Random,
        audit: Audit,
        fate: Callable[[str, int], Fate],
        unknown: Mapping[str, int],
        loop: Loop,
        on_completion: Callable[[Completion], None],
        fatal: Callable[[], None],
    ) -> None:
        self.start_seconds = Histogram(START_BOUNDS)
        self._worker = worker
        self._clock = clock
        self._random = random
        self._audit = audit
        self._fate = fate
        self._unknown = unknown
        self._loop = loop
        self._on_completion = on_completion
        self._fatal = fatal
        self._began_at: dict[int, float] = {}
        self._steps: dict[int, SimulatedSteps] = {}

    def start(self, command: CommandSpec) -> None:
        number = command.number
        if number in self._began_at:
            raise ValueError(f"attempt {number} runs already")
        env = command.env
        index = int(env["KESTREL_TASK_INDEX"])
        lacking = self._audit.began(
            number,
            int(env["KESTREL_JOB_ID"]),
            index,
            self._worker,
            env.get("KESTREL_ITEM"),
            tuple(env["KESTREL_GPUS"].split(",")) if "KESTREL_GPUS" in env else (),
        )
        self._began_at[number] = self._clock.now
        fate = self._fate(env["KESTREL_JOB_NAME"], index)
        if lacking:
            status = self._unknown[lacking]
            self._clock.after(REFUSED_AFTER_SECONDS, self._ends, number, Outcome.FAILED, "", status)
        elif fate.kills_worker:
            self._clock.after(fate.seconds, self._takes_the_worker_along, number)
        elif command.checkpoints is not None and fate.outcome == Outcome.DONE:
            self._steps[number] = SimulatedSteps(
                command,
                command.checkpoints,
                self._clock,
                self._random,
                self._loop,
                self._audit.checkpoints,
                self._ended,
            )
        else:
            runs_out = 0 < command.memory_bytes < MOST_WANTED_BYTES
            why = "memory-limit: used all" if runs_out and fate.outcome == Outcome.FAILED else ""
            self._clock.after(fate.seconds, self._ends, number, fate.outcome, why)

    def kill(self, number: int, reason: str = "cancelled") -> bool:
        if number not in self._began_at:
            return False
        seconds = self._random.uniform(*DIES_AFTER_SECONDS)
        steps = self._steps.get(number)
        if steps is not None:
            self._clock.after(seconds, steps.end, Outcome.KILLED, reason)
        else:
            self._clock.after(seconds, self._ends, number, Outcome.KILLED)
        return True

    def take_checkpoint(self, number: int, *, stop: bool) -> None:
        steps = self._steps.get(number)
        if steps is not None:
            steps.stop() if stop else steps.store()

    def used(self, numbers: Sequence[int]) -> dict[int, tuple[float, int]]:
        began_at = ((number, self._began_at.get(number)) for number in numbers)
        return {n: ((self._clock.now - at) / 2, 1 << 20) for n, at in began_at if at is not None}

    def read_output(self, number: int, stream: str, offset: int, limit: int) -> bytes:
        raise NotFound(f"the {stream} of attempt {number} is not kept")

    async def close(self) -> None:
        self.vanish()

    def vanish(self) -> None:
        """The worker dies, and its commands with it."""
        for steps in self._steps.values():
            steps.vanish()
        self._steps.clear()
        for number in sorted(self._began_at):
            self._audit.ended(number, None)
        self._began_at.clear()

    def _takes_the_worker_along(self, number: int) -> None:
        if number in self._began_at:
            self._fatal()

    def _ended(self, completion: Completion, outcome: int) -> None:
        """A command that runs in steps has ended."""
        del self._steps[completion.number], self._began_at[completion.number]
        self._audit.ended(completion.number, outcome)
        self._loop.call_soon(self._on_completion, completion)

    def _ends(self, number: int, outcome: int, why: str = "", exit_code: int | None = None) -> None:
        """The machine's own event: it happens whether or not the worker is stopped."""
        began_at = self._began_at.pop(number, None)
        if began_at is None:
            return
        self._audit.ended(number, outcome)
        self._loop.call_soon(
            self._on_completion,
            Completion(
                number,
                exit_code=_EXIT_CODES.get(outcome) if exit_code is None else exit_code,
                signal=9 if outcome == Outcome.KILLED else None,
                reason=why or _REASONS.get(outcome, ""),
                started_at=began_at,
                wall_seconds=self._clock.now - began_at,
            ),
        )


_EXIT_CODES = {Outcome.DONE: 0, Outcome.FAILED: 1}
_REASONS = {Outcome.KILLED: "cancelled", Outcome.UNABLE: "no-space: the disk is full"}
