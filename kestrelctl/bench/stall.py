"""Decides when a run is given up: not after a time, but after a time without progress."""

from __future__ import annotations

from kestrelctl.protocol.job_answers import JobView

#: A run hangs if no task has ended for this long beyond the length of the longest task. A slow or
#: busy machine needs no more between two ends, however long it needs for all tasks.
STALL_SECONDS = 300.0


class Stall:
    """Watches the progress of one run.

    Args:
        longest_seconds: the length of its longest task; no task has to end earlier.
        now: the time of a clock that never goes back, seconds.
    """

    def __init__(self, longest_seconds: float, now: float) -> None:
        self.patience_seconds = STALL_SECONDS + longest_seconds
        self._moved_at = now
        self._ended = 0
        self._last: JobView | None = None

    def seen(self, job: JobView, now: float) -> None:
        """Takes note of how the job stands now."""
        ended = job.done + job.failed + job.lost + job.cancelled
        if ended != self._ended:
            self._ended, self._moved_at = ended, now
        self._last = job

    def reason(self, now: float) -> str | None:
        """Says why the run is given up; None while there is still hope."""
        quiet = now - self._moved_at
        if quiet <= self.patience_seconds:
            return None
        if self._last is None:
            return f"no answer from the pool for {quiet:,.0f} s"
        return (
            f"no task ended for {quiet:,.0f} s: {self._ended:,} of {self._last.tasks:,} had ended, "
            f"{self._last.running:,} were running, {self._last.waiting:,} waiting"
        )
