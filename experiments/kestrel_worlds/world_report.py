"""The report of a simulated world."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.job.task_state import Counts


class WorldReport(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a world.

    Attributes:
        problems: promises that were broken; empty if all is well.
        seconds: simulated time until all was quiet, acknowledgements included.
        busy_seconds: simulated time until the last job had ended.
        counts: tasks of all jobs by final state.
        executions: commands that were started.
        wasted: commands without an accepted result: repetitions, and those that died with their
            worker.
        actions: how much happened, in actions of the clock.
        story: what happened, if it was kept; `digest` is its fingerprint.
        decisions: which worker got which task, under which attempt, and how that ended.
        guests: attempts that other pools took over, in a world of several.
    """

    seed: int
    problems: list[str]
    seconds: float
    busy_seconds: float
    jobs: int
    counts: Counts
    executions: int
    wasted: int
    actions: int
    digest: str
    story: list[str]
    decisions: list[str]
    guests: int = 0

    def raise_problems(self, lines: int = 400) -> None:
        """Raises if a promise was broken.

        Raises:
            AssertionError: with the seed, the problems and the story up to the first of them.
        """
        if not self.problems:
            return
        first = next((i for i, line in enumerate(self.story) if " PROBLEM " in line), None)
        told = self.story if first is None else self.story[: first + 1]
        head = f"seed {self.seed} breaks promises (the same seed and settings do it again):"
        raise AssertionError("\n".join([head, *self.problems, "the story:", *told[-lines:]]))
