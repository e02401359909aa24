"""Tells which stage of an attempt is next, when to try it again, how those before went. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kestrelctl.core.model.job.stage import RUN, STAGES, Stage, StageRun
from kestrelctl.core.pacing.backoff import doubled_seconds

#: Pause before a stage is tried for the second time; doubled each time.
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0


class StageState:
    """The stages of one attempt, `run` included.

    Args:
        stages: those beside the command.
        over: the stages that are over already; they are not begun again.

    Attributes:
        over: how stages went, in their order.
        name: of the one under way; empty between two.
    """

    def __init__(self, stages: Iterable[Stage], over: Iterable[StageRun] = ()) -> None:
        self._stages = {stage.name: stage for stage in stages}
        self.over = list(over)
        self.name = ""
        self._began_at = 0.0
        self._tries = 0

    @property
    def upcoming(self) -> str:
        """The stage that comes after those that are over; empty if there is none."""
        after = STAGES.index(self.over[-1].name) + 1 if self.over else 0
        return next((name for name in STAGES[after:] if name == RUN or name in self._stages), "")

    @property
    def stage(self) -> Stage:
        """The one under way, unless that is `run`. KeyError if it is."""
        return self._stages[self.name]

    def begin(self, now: float) -> str:
        """Begins the upcoming stage, with its first try, and returns its name.

        Args:
            now: monotonic seconds.
        """
        self.name = self.upcoming
        self._began_at = now
        self._tries = 1
        return self.name

    def try_again(self) -> float | None:
        """Notes a failed try of the stage under way; returns the seconds to pause before the next.

        Returns:
            None if it has no try left.
        """
        if self._tries >= self.stage.tries:
            return None
        self._tries += 1
        return doubled_seconds(FIRST_PAUSE_SECONDS, self._tries - 2, LONGEST_PAUSE_SECONDS)

    def end(self, now: float) -> None:
        """Ends the stage under way, however it went; nothing happens if none is."""
        if self.name:
            self.over.append(StageRun(self.name, now - self._began_at, self._tries))
            self.name = ""
