"""The room that a worker still has while a plan fills it."""

from __future__ import annotations

from math import ceil

from kestrelctl.core.jobs.job import Job
from kestrelctl.core.members.availability import startable
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.worker.claim import Claim
from kestrelctl.core.scheduling.demand import is_short
from kestrelctl.core.scheduling.match import Terms


class Offer:
    """A worker as it would be after what the plan has given it so far.

    Args:
        ahead_per_slot: how many short tasks may wait there for each that runs, at the most.
    """

    __slots__ = (
        "_ahead_per_slot",
        "_config",
        "_given",
        "_now",
        "free",
        "queued",
        "wants",
        "worker",
    )

    def __init__(self, worker: Worker, config: Config, now: float, ahead_per_slot: int = 0) -> None:
        self.worker = worker
        self._ahead_per_slot = ahead_per_slot
        self._config = config
        self._now = now
        self.free = worker.free
        self.queued = worker.queued
        self.wants = worker.wants
        self._given: dict[Job, int] | None = None

    def room_for(
        self, job: Job, waiting: int, members: int, terms: Terms, *, ahead: bool, alone: bool = True
    ) -> int:
        """Tells how many more tasks of a job the worker should get.

        It gets those that run at once and, if tasks are short, enough behind them to bridge
        `ahead_seconds`: then it never waits for the network. Tasks wait for short tasks only,
        whosever these are. The worker is topped up only when half of that is gone, so that messages
        carry several tasks. A worker that reported nothing for a while is stuck in a long task:
        nothing is put behind that. Nor is anything if only this worker says that the tasks are
        short: others run them and have ended none, or the last that others ended was not short.

        Args:
            waiting: tasks of the job that the plan has not given away.
            members: online workers that could run them.
            ahead: whether any may wait there; others may have a better claim to the room.
            alone: whether no other short tasks wait for room there. Those would keep a worker full,
                and a job with few tasks would never find it as empty as these few want it.
        """
        remaining = self.worker.remaining_seconds(self._now)
        if remaining is not None and job.shape.time_request_seconds > remaining:
            return 0
        queued = self.queued
        free = startable(terms.claim, self.free, queued)
        mean, config = job.expected_seconds, self._config
        if mean is None or not (ahead and is_short(job, config)) or self._is_stuck:
            return free
        if not terms.may_queue:
            return free
        elsewhere = job.seconds_elsewhere(self.worker.account)
        if elsewhere is None:
            if job.running > len(self.worker.held):
                return free
        elif elsewhere >= config.short_seconds:
            return free
        side_by_side = min(terms.side_by_side, free + self._short_tasks())
        if not side_by_side:
            return 0
        per_slot = self._ahead_per_slot
        if mean * per_slot > config.ahead_seconds:
            behind = ceil(config.ahead_seconds / mean * side_by_side)
        else:
            behind = per_slot * side_by_side
        # Not more than a worker's share of what is left, so that the last tasks are spread evenly;
        # but a quarter of a short queue is not worth more messages.
        short_queue = min(behind, config.shared_ahead_per_slot * side_by_side)
        most = max(waiting // members, short_queue // 4)
        if alone:
            behind = min(behind, most)
        if not free and queued > behind // 2:
            return 0
        return max(0, free + min(behind - queued, most))

    @property
    def _is_stuck(self) -> bool:
        worker = self.worker
        return bool(worker.held) and worker.silence.is_stuck(self._now, self._config.stuck_seconds)

    def _short_tasks(self) -> int:
        """Counts the short tasks that run there, or would with what the plan has given."""
        return sum(
            n
            for running in (self.worker.running_of, self._given or {})
            for job, n in running.items()
            if is_short(job, self._config)
        )

    def give(self, job: Job, n: int, claim: Claim) -> None:
        """Counts n tasks as given to the worker: as many as fit run, the others wait there."""
        if self.wants is not None:
            self.wants -= n
        running = min(n, startable(claim, self.free, self.queued))
        self.queued += n - running
        if running:
            if self.free is self.worker.free:
                self.free = dict(self.free)
            claim.charge(self.free, running)
            if self._given is None:
                self._given = {}
            self._given[job] = self._given.get(job, 0) + running
