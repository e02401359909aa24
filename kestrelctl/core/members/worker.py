"""A worker as the manager sees it."""

from __future__ import annotations

from collections import deque

from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.members.skew import Skew
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.assets import Amounts, amounts


class Worker:
    """One session's aggregate, its attempts, and what is known of its health.

    Attempts that run (as far as the manager can tell) are charged: their claim is taken out of
    `free`. Those that wait behind them are not; they are charged in order of arrival as room
    appears, which is what the worker itself does. Only `kestrelctl.core.attempts` writes `free`,
    `held`, `backlog`, `running` and `running_of`.

    Attributes:
        held: attempt number -> task whose attempt that is, oldest first.
        backlog: those that are not charged; it may name attempts that are over.
        running: how many are charged.
        running_of: the same for each job.
        synced: it has said what it holds since it was last asked.
        draining: an admin wants it; that outlasts restarts.
        leaving: it wants it itself; that lasts as long as its process.
        account: the address without the resource: one account may have many workers.
        streak: fast failures in a row.
        round_at: when something came back that had been handed out after the last such moment.
        heard_at: when it last said something.
        lapses: when it was lost though it had work, lately.
        quarantined_for: why it is in quarantine.
        quarantine_ended_at: when its last quarantine is or was over.
    """

    __slots__ = (
        "account",
        "ad",
        "away_until",
        "backlog",
        "cls",
        "draining",
        "free",
        "heard_at",
        "heartbeat_seconds",
        "held",
        "incarnation",
        "jid",
        "joined_at",
        "known_jobs",
        "lapses",
        "lease_until",
        "leaving",
        "offline_since",
        "online",
        "quarantine_ended_at",
        "quarantined_for",
        "quarantined_until",
        "quarantines",
        "recalling",
        "reported_at",
        "round_at",
        "running",
        "running_of",
        "skew",
        "streak",
        "synced",
        "tasks_done",
        "tasks_failed",
    )

    def __init__(self, jid: str, cls: WorkerClass, ad: WorkerAd, now: float) -> None:
        self.jid = jid
        self.account = jid.partition("/")[0]
        self.cls = cls
        self.ad = ad
        self.joined_at = now
        self.incarnation = ""
        self.free: Amounts = dict(cls.capacity)
        self.held: dict[int, Task] = {}
        self.backlog: deque[tuple[int, Task]] = deque()
        self.running = 0
        self.running_of: dict[Job, int] = {}
        self.known_jobs: set[int] = set()
        self.online = False
        self.synced = False
        self.draining = False
        self.leaving = False
        self.quarantined_until = 0.0
        self.quarantined_for = ""
        self.quarantine_ended_at = 0.0
        self.quarantines = 0
        self.streak = 0
        self.round_at = 0.0
        self.heard_at = now
        self.lapses: list[float] = []
        self.lease_until = 0.0
        self.offline_since = now
        self.away_until = 0.0
        self.heartbeat_seconds = 0.0
        self.reported_at = now
        self.recalling = False
        self.skew = Skew()
        self.tasks_done = 0
        self.tasks_failed = 0

    @property
    def queued(self) -> int:
        """Attempts that wait at the worker for others to end."""
        return len(self.held) - self.running

    @property
    def is_cut(self) -> bool:
        """Whether it offers more than counts."""
        return self.cls.capacity.get("cpus", 0) < amounts(self.ad.assets).get("cpus", 0)

    def queued_numbers(self) -> list[int]:
        """Their numbers, oldest first."""
        return [
            number
            for number, task in self.held.items()
            if task.attempt is not None and task.attempt.phase is Phase.QUEUED
        ]
