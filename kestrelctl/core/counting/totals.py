"""The counts of a pool since its manager started. Nothing here ever goes down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.stored_totals import StoredTotals
from kestrelctl.core.model.job.stage import STAGES, StageRun

#: From a job's submission to the first hand-out of a task, in seconds.
WAIT_BOUNDS = (0.01, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 7200.0)
#: The time that dispatch adds to a task, in seconds.
DISPATCH_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
#: Run time of an attempt, in seconds.
RUN_BOUNDS = (0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)

#: Why attempts that had begun were lost: the server said so, the lease ran out, a message came
#: back, the worker's process was another one, it did not come back in time (`on_worker_lost =
#: wait`), the machine could not start them, or its account was revoked.
LOSS_CAUSES = ("unavailable", "lease", "bounce", "restarted", "away", "unable", "revoked")

#: Why workers were put in quarantine: failures in a row, successes in no time, losses in a row, and
#: nothing could be started there.
QUARANTINE_CAUSES = ("failures", "speed", "losses", "unable")


class Totals:
    """Counters and histograms, shared by manager, simulator and tests.

    Tasks that a retry brought back count as submitted again, so that at any moment the tasks
    restored and submitted are as many as those that have ended and those that have not.
    """

    __slots__ = (
        "attempts_failed",
        "attempts_unproven",
        "dispatches",
        "jobs_expired",
        "jobs_finished",
        "jobs_submitted",
        "last_dispatch_at",
        "leases_expired",
        "losses",
        "losses_found_again",
        "quarantines",
        "reports_refused",
        "retries",
        "runs",
        "stage_failures",
        "stage_seconds",
        "stored",
        "tasks_cancelled",
        "tasks_done",
        "tasks_failed",
        "tasks_lost",
        "tasks_recalled",
        "tasks_restored",
        "tasks_sent",
        "tasks_submitted",
        "waits",
        "worker_joins",
    )

    def __init__(self) -> None:
        self.jobs_submitted = 0
        self.jobs_finished = Counter(done=0, failed=0, cancelled=0)
        self.jobs_expired = 0  #: forgotten because they had been kept for long enough
        self.tasks_restored = 0  #: found in the store without a final state
        self.tasks_submitted = 0
        self.tasks_done = 0
        self.tasks_failed = 0
        self.tasks_lost = 0
        self.tasks_cancelled = 0
        self.tasks_sent = 0  #: attempts handed out
        self.tasks_recalled = 0
        self.attempts_failed = 0
        self.retries = Counter(failure=0, loss=0, memory=0, refusal=0, service=0, checkpoint=0)
        self.losses = Counter(dict.fromkeys(LOSS_CAUSES, 0))
        self.losses_found_again = 0  #: the attempt had survived: only the way to it was gone
        self.attempts_unproven = 0  #: named by workers that could not show a seal for them
        self.reports_refused = 0  #: results of attempts that no longer count: duplicates
        self.leases_expired = 0
        self.worker_joins = 0
        self.quarantines = Counter(dict.fromkeys(QUARANTINE_CAUSES, 0))
        self.last_dispatch_at: float | None = None
        self.waits = Histogram(WAIT_BOUNDS)
        self.dispatches = Histogram(DISPATCH_BOUNDS)
        self.runs = Histogram(RUN_BOUNDS)
        self.stored = StoredTotals()
        self.stage_seconds = {name: Histogram(RUN_BOUNDS) for name in STAGES}
        self.stage_failures = Counter(dict.fromkeys(STAGES, 0))

    def count_stages(self, runs: Iterable[StageRun]) -> None:
        """Counts the stages of an attempt that has ended."""
        for run in runs:
            self.stage_seconds[run.name].observe(run.wall_seconds)

    @property
    def tasks_ended(self) -> int:
        """Tasks that reached a final state."""
        return self.tasks_done + self.tasks_failed + self.tasks_lost + self.tasks_cancelled

    @property
    def attempts_lost(self) -> int:
        """Losses that still stand."""
        return self.losses.total() - self.losses_found_again

    @property
    def workers_quarantined(self) -> int:
        """Times that a worker was put in quarantine."""
        return self.quarantines.total()

    def summary(self) -> dict[str, int]:
        """The most telling counters, for people."""
        names = (
            "attempts_failed",
            "attempts_lost",
            "leases_expired",
            "reports_refused",
            "tasks_ended",
            "tasks_sent",
            "tasks_recalled",
            "workers_quarantined",
        )
        return {name: getattr(self, name) for name in names}
