"""When a run is given up: not after a time, but after a time without progress."""

from __future__ import annotations

from kestrelctl.protocol.answers import JobView

#: No end of a task for this long, beyond the length of the longest one, means that the run hangs.
#: A slow or a busy machine needs no more between two ends, however long it needs for all of them.
STALL_SECONDS = 300.0


class Stall:
    """Watches the progress of one run.

    Args:
        longest_seconds: of its tasks; before that time nothing can have ended.
        now: of a clock that never goes back, seconds.
    """

    def __init__(self, longest_seconds: float, now: float) -> None:
        self.patience_seconds = STALL_SECONDS + longest_seconds
        self._moved_at = now
        self._ended = 0
        self._last: JobView | None = None

    def seen(self, job: JobView, now: float) -> None:
        """How the job stands now."""
        ended = job.done + job.failed + job.lost + job.cancelled
        if ended != self._ended:
            self._ended, self._moved_at = ended, now
        self._last = job

    def reason(self, now: float) -> str | None:
        """Why the run is given up, or None while there is still hope."""
        quiet = now - self._moved_at
        if quiet <= self.patience_seconds:
            return None
        if self._last is None:
            return f"no answer from the pool for {quiet:,.0f} s"
        return (
            f"no task ended for {quiet:,.0f} s: {self._ended:,} of {self._last.tasks:,} had ended, "
            f"{self._last.running:,} were running, {self._last.waiting:,} waiting"
        )
