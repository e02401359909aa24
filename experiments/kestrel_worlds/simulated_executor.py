"""Commands of a simulated machine: their fate is drawn, and the audit sees them run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from kestrel_worlds.audit import Audit
from kestrel_worlds.loop import Loop
from kestrel_worlds.simulated_steps import SimulatedSteps
from kestrel_worlds.simulation_clock import SimulationClock
from kestrel_worlds.truth import Fate, StageFate
from kestrel_worlds.workload import MOST_WANTED_BYTES
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.model.end_reason import CANCELLED, NO_REASON, EndKind, ReasonText, in_stage
from kestrelctl.core.model.job.stage import OUT, RUN, Stage, StageRun
from kestrelctl.core.model.result import Outcome
from kestrelctl.errors import NotFound
from kestrelctl.worker.run.executor import START_BOUNDS, CommandSpec, Completion

#: Seconds from the signal to the end of a command.
DIES_AFTER_SECONDS = (0.0005, 0.01)
#: Seconds until a command knows that there is no more of an asset for it.
REFUSED_AFTER_SECONDS = 0.005


class SimulatedExecutor:
    """An `Executor` without processes.

    Args:
        worker: the address of the worker that has the commands.
        fate: draws the fate of an execution of (kind, index) here.
        stage_fate: draws the fate of a stage of one.
        unknown: for each asset, the exit status of commands for which there is no more of it.
        loop: the loop in whose turns exits are told.
        on_stage: called with an attempt's number and the stage that it begins.
        fatal: called when a command ends its worker.
        guest_job: returns the job of an attempt, if that is a guest of another pool.
        on_begun: called when a command that waited here has begun, with the moment.
        on_withdrawn: called when one that waited is forgotten.
    """

    def __init__(
        self,
        worker: str,
        clock: SimulationClock,
        random: Random,
        audit: Audit,
        fate: Callable[[str, int], Fate],
        stage_fate: Callable[[Stage], StageFate],
        unknown: Mapping[str, int],
        loop: Loop,
        on_completion: Callable[[Completion], None],
        on_stage: Callable[[int, str], None],
        fatal: Callable[[], None],
        guest_job: Callable[[int], int | None],
        on_begun: Callable[[int, float], None],
        on_withdrawn: Callable[[int], None],
    ) -> None:
        self.start_seconds = Histogram(START_BOUNDS)
        self.most_ahead = MOST_AHEAD
        self._worker = worker
        self._clock = clock
        self._random = random
        self._audit = audit
        self._fate = fate
        self._stage_fate = stage_fate
        self._unknown = unknown
        self._loop = loop
        self._on_completion = on_completion
        self._on_stage = on_stage
        self._fatal = fatal
        self._guest_job = guest_job
        self._on_begun = on_begun
        self._on_withdrawn = on_withdrawn
        self._waiting: dict[int, CommandSpec] = {}
        self._starting: dict[int, CommandSpec] = {}  # in the place of another
        self._lanes: dict[int, int] = {}  # of what runs
        self._began_at: dict[int, float] = {}
        #: For attempts with stages: the stages to come, and how those before went.
        self._to_come: dict[int, Iterator[Stage | None]] = {}
        self._stage_runs: dict[int, list[StageRun]] = {}
        self._steps: dict[int, SimulatedSteps] = {}

    def start(self, command: CommandSpec) -> None:
        number = command.number
        if number in self._began_at or number in self._waiting:
            raise ValueError(f"attempt {number} runs already")
        if command.waits:
            self._waiting[number] = command
        else:
            self._begins(command)

    def _begins(self, command: CommandSpec) -> None:
        number = command.number
        if command.lane:
            self._lanes[number] = command.lane
        env = command.env
        index = int(env["KESTREL_TASK_INDEX"])
        job_id, here, item = int(env["KESTREL_JOB_ID"]), index, env.get("KESTREL_ITEM")
        guest_job = self._guest_job(number)
        if guest_job is not None:  # It has the environment that its home has made.
            job_id, here, item = guest_job, 0, None
        gpus = tuple(env["KESTREL_GPUS"].split(",")) if "KESTREL_GPUS" in env else ()
        lacking = self._audit.began(number, job_id, here, self._worker, item, gpus)
        self._began_at[number] = self._clock.now
        fate = self._fate(env["KESTREL_JOB_NAME"], index)
        if command.program.stages:
            before = [stage for stage in command.program.stages if stage.name != OUT]
            after = [stage for stage in command.program.stages if stage.name == OUT]
            self._to_come[number] = iter([*before, None, *after])
            self._stage_runs[number] = []
            self._next_stage(number, lambda: self._runs(command, fate, lacking))
        else:
            self._runs(command, fate, lacking)

    def _runs(self, command: CommandSpec, fate: Fate, lacking: str) -> None:
        """Begins the command itself."""
        number = command.number
        if lacking:
            status = self._unknown[lacking]
            self._run_ends(REFUSED_AFTER_SECONDS, number, Outcome.FAILED, NO_REASON, status)
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
            is_over = runs_out and fate.outcome == Outcome.FAILED
            why = EndKind.MEMORY_LIMIT.text("used all") if is_over else NO_REASON
            self._run_ends(fate.seconds, number, fate.outcome, why)

    def _run_ends(
        self,
        seconds: float,
        number: int,
        outcome: int,
        why: ReasonText,
        exit_code: int | None = None,
    ) -> None:
        """Ends the command in this many seconds; then its attempt ends, or goes on."""
        runs = self._stage_runs.get(number)
        if runs is None:
            self._clock.after(seconds, self._ends, number, outcome, why, exit_code)
            return
        runs.append(StageRun(RUN, seconds))
        if outcome == Outcome.DONE:
            self._clock.after(seconds, self._next_stage, number)
        else:
            self._clock.after(seconds, self._ends, number, outcome, why, exit_code)

    def _next_stage(self, number: int, runs: Callable[[], None] | None = None) -> None:
        """Begins the next stage of an attempt, or ends the attempt well.

        Args:
            runs: begins its command.
        """
        if number not in self._began_at:
            return
        stage = next(self._to_come[number], _NONE)
        if stage is _NONE:
            self._ends(number, Outcome.DONE)
            return
        self._loop.call_soon(self._on_stage, number, RUN if stage is None else stage.name)
        if stage is not None:
            fate = self._stage_fate(stage)
            self._clock.after(fate.seconds, self._stage_over, number, stage, fate, runs)
        elif runs is not None:
            runs()

    def _stage_over(
        self, number: int, stage: Stage, fate: StageFate, runs: Callable[[], None] | None
    ) -> None:
        if number not in self._began_at:
            return
        self._stage_runs[number].append(StageRun(stage.name, fate.seconds, fate.tries))
        if fate.is_good:
            self._next_stage(number, runs)
            return
        if stage.name == OUT:
            self._audit.stages.only_out_failed(number)
        self._ends(number, Outcome.FAILED, in_stage(stage.name, "exit code 3"), 0)

    def begin(self, number: int) -> None:
        command = self._waiting.pop(number, None)
        if command is not None:
            self._begins(command)

    def withdraw(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self._loop.call_soon(self._on_withdrawn, number)

    def _give_place(self, lane: int) -> None:
        """Begins the next command of a lane, before the end of another is told."""
        command = next((each for each in self._waiting.values() if each.lane == lane), None)
        if command is not None:
            del self._waiting[command.number]
            self._starting[command.number] = command
            self._loop.call_soon(self._on_begun, command.number, self._loop.now())
            self._clock.after(LAUNCH_SECONDS, self._begins_in_place, command.number)

    def _begins_in_place(self, number: int) -> None:
        command = self._starting.pop(number, None)
        if command is not None:
            self._begins(command)

    def kill(self, number: int, reason: ReasonText = CANCELLED) -> bool:
        waited = self._waiting.pop(number, None) or self._starting.pop(number, None)
        if waited is not None:
            never_ran = Completion(number, reason=reason, started_at=self._clock.now)
            self._loop.call_soon(self._on_completion, never_ran)
            return True
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

    def left(self) -> list[CommandSpec]:
        return []

    async def close(self) -> None:
        self.vanish()

    def vanish(self) -> None:
        """Ends all commands, as their worker dies."""
        for steps in self._steps.values():
            steps.vanish()
        self._steps.clear()
        for number in sorted(self._began_at):
            self._audit.ended(number, None)
        self._began_at.clear()
        self._waiting.clear()
        self._starting.clear()
        self._lanes.clear()
        self._to_come.clear()
        self._stage_runs.clear()

    def _takes_the_worker_along(self, number: int) -> None:
        if number in self._began_at:
            self._fatal()

    def _ended(self, completion: Completion, outcome: int) -> None:
        """Ends a command that runs in steps."""
        del self._steps[completion.number], self._began_at[completion.number]
        self._audit.ended(completion.number, outcome)
        self._loop.call_soon(self._on_completion, completion)

    def _ends(
        self, number: int, outcome: int, why: ReasonText = NO_REASON, exit_code: int | None = None
    ) -> None:
        """Ends an attempt; this happens on the machine even if the worker is stopped."""
        began_at = self._began_at.pop(number, None)
        if began_at is None:
            return
        self._audit.ended(number, outcome)
        lane = self._lanes.pop(number, 0)
        if lane:
            self._give_place(lane)
        self._to_come.pop(number, None)
        stages = self._stage_runs.pop(number, [])
        self._loop.call_soon(
            self._on_completion,
            Completion(
                number,
                exit_code=_EXIT_CODES.get(outcome) if exit_code is None else exit_code,
                signal=9 if outcome == Outcome.KILLED else None,
                reason=why or _REASONS.get(outcome, NO_REASON),
                started_at=began_at,
                wall_seconds=_of_run(stages) if stages else self._clock.now - began_at,
                stages=tuple(stages),
            ),
        )


#: The most commands that wait at an executor: few, so that the worlds' short jobs do not all wait
#: there.
MOST_AHEAD = 3
#: Time from the end of a command to the start of the next in its place: with it a worker runs about
#: as many empty tasks a second for each processor as a real one (docs/performance.md).
LAUNCH_SECONDS = 0.001
#: No stage is left.
_NONE = Stage(name="", argv=())


def _of_run(stages: Sequence[StageRun]) -> float:
    return next((run.wall_seconds for run in stages if run.name == RUN), 0.0)


_EXIT_CODES = {Outcome.DONE: 0, Outcome.FAILED: 1}
_REASONS = {
    Outcome.KILLED: CANCELLED,
    Outcome.UNABLE: EndKind.NO_SPACE.text("the disk is full"),
}
