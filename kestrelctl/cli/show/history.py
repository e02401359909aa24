"""Keeps what was seen of a pool so far: its latest overview, and its rates."""

from __future__ import annotations

from kestrelctl.cli.show.series import Series
from kestrelctl.protocol.answers import Overview
from kestrelctl.protocol.job_answers import JobLine, JobView

#: Cancelled tasks do not count as work: a big job would show as millions of tasks a second.
_FINISHED = ("tasks_done", "tasks_failed", "tasks_lost")
#: It is short: people want to see what a pool does now, but when a job will be done.
_POOL_WINDOW_SECONDS = 3.0


class History:
    """Overviews in the order in which they came.

    Attributes:
        latest: the latest overview.
        finished, sent: tasks that ended but were not cancelled, and attempts that were handed out.
    """

    def __init__(self, first: Overview) -> None:
        self.latest = first
        self._begin()
        self._count(anew=False)

    def _begin(self) -> None:
        self.finished = Series(_POOL_WINDOW_SECONDS, 1)
        self.sent = Series(_POOL_WINDOW_SECONDS, 1)
        self._jobs: dict[int, Series] = {}

    def add(self, overview: Overview) -> None:
        """Adds an overview. Rates outlast a restart of the manager, unless its clock went back."""
        before, self.latest = self.latest, overview
        if overview.at < before.at:
            self._begin()
        self._count(anew=overview.epoch != before.epoch)

    def _count(self, *, anew: bool) -> None:
        found = self.latest
        finished = sum(found.totals.get(name, 0) for name in _FINISHED)
        self.finished.add(found.at, finished, anew=anew)
        self.sent.add(found.at, found.totals.get("tasks_sent", 0), anew=anew)
        self._jobs = {job.job_id: self._jobs.get(job.job_id) or Series() for job in found.jobs}
        for job in found.jobs:
            self._jobs[job.job_id].add(found.at, finished_tasks(job))

    def job(self, job: JobLine) -> Series | None:
        """The tasks of an active job that ended but were not cancelled."""
        return self._jobs.get(job.job_id)


def finished_tasks(job: JobLine | JobView) -> int:
    """Counts the tasks of a job that ended by themselves; rates count these."""
    return job.done + job.failed + job.lost


def ended_tasks(job: JobLine | JobView) -> int:
    """Counts the tasks of a job that have a final state."""
    return finished_tasks(job) + job.cancelled
