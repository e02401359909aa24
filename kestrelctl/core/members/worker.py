"""A worker as the manager sees it."""

from __future__ import annotations

from collections import deque

from kestrelctl.core.jobs.attempt import Phase
from kestrelctl.core.jobs.job import Job, Task
from kestrelctl.core.members.outline import Outline
from kestrelctl.core.members.silence import Silence
from kestrelctl.core.members.skew import Skew
from kestrelctl.core.members.worker_class import WorkerClass
from kestrelctl.core.model.worker.ad import WorkerAd, unit_ids, with_cpus
from kestrelctl.core.model.worker.assets import MILLI, Amounts, amounts, describe, with_units
from kestrelctl.core.model.worker.use import Use


class Worker:
    """One session's aggregate, its attempts, and what is known of its health.

    Attempts that run (as far as the manager can tell) are charged: their claim is taken out of
    `free`. Those that wait behind them are not; they are charged in order of arrival as room
    appears, which is what the worker itself does. Only `kestrelctl.core.attempts` writes `free`,
    `held`, `backlog`, `running` and `running_of`.

    Attributes:
        held: attempt number -> task whose attempt that is, oldest first.
        backlog: those that are not charged; it may name attempts that are over. None while there
            are none: an empty deque takes as much memory as all else of a worker.
        running: how many are charged.
        running_of: the same for each job.
        stored: whether it is durable that the pool has it: the next manager asks it what it holds.
        synced: whether it has said what it holds since it was last asked.
        draining: whether an admin wants it to get nothing new; that outlasts restarts.
        leaving: whether it wants that itself; that lasts as long as its process.
        wants: how many more attempts it asks for; None if it takes what it is sent.
        account: the address without the resource: one account may have many workers.
        streak: fast failures in a row.
        recalls: for each time that it was asked for attempts that have not begun, and has not
            answered: whether it was asked because others came, and not for a fault of its own.
        kept_for: a job that starves: the worker takes nothing new but tasks of that shape.
        round_at: when something came back that had been handed out after the last such moment.
        heard_at: when it last said something.
        uses: attempt number -> (when it was said, what the attempt had used), of those that have
            run for a while; it may name attempts that are over.
        lapses: when it was lost though it had work, lately.
        outlines: of its assets of unknown capacity; `attempts.estimates` alone changes them.
        overdrawn: whether more was charged than it had when its capacity, or an estimate, last
            changed.
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
        "kept_for",
        "known_jobs",
        "lapses",
        "lease_until",
        "leaving",
        "offline_since",
        "online",
        "outlines",
        "overdrawn",
        "quarantine_ended_at",
        "quarantined_for",
        "quarantined_until",
        "quarantines",
        "recalls",
        "round_at",
        "running",
        "running_of",
        "silence",
        "skew",
        "stored",
        "streak",
        "synced",
        "tasks_done",
        "tasks_failed",
        "uses",
        "wants",
    )

    def __init__(self, jid: str, cls: WorkerClass, ad: WorkerAd, now: float) -> None:
        self.jid = jid
        self.account = jid.partition("/")[0]
        self.cls = cls
        self.ad = ad
        self.joined_at = now
        self.incarnation = ""
        self.outlines = {asset: Outline() for asset in ad.unknown}
        self.free: Amounts = self.capacity()
        self.overdrawn = False
        self.held: dict[int, Task] = {}
        self.backlog: deque[tuple[int, Task]] | None = None
        self.running = 0
        self.running_of: dict[Job, int] = {}
        self.known_jobs: set[int] = set()
        self.online = False
        self.stored = False
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
        self.uses: dict[int, tuple[float, Use]] = {}
        self.lapses: list[float] = []
        self.kept_for: Job | None = None
        self.lease_until = 0.0
        self.offline_since = now
        self.away_until = 0.0
        self.heartbeat_seconds = 0.0
        self.silence = Silence(now)
        self.recalls: tuple[bool, ...] = ()
        self.skew = Skew()
        self.tasks_done = 0
        self.tasks_failed = 0
        self.wants: int | None = None

    @property
    def assets(self) -> Amounts:
        """Its assets as far as they count; the estimate for those of unknown capacity."""
        if not self.outlines:
            return self.cls.capacity
        estimates = {asset: outline.estimate for asset, outline in self.outlines.items()}
        return self.cls.capacity | estimates

    def capacity(self) -> Amounts:
        """The same, each unit beside its asset."""
        return with_units(self.assets, unit_ids(self.ad))

    def free_of(self, asset: str) -> str:
        """Tells what is free of an asset, as people write it: `2 cpus free of 8 cpus`."""
        free, whole = max(0, self.free.get(asset, 0)), self.assets[asset]
        about = "~" if asset in self.outlines else ""
        return f"{describe(asset, free)} free of {about}{describe(asset, whole)}"

    @property
    def queued(self) -> int:
        """Attempts that wait at the worker for others to end."""
        return len(self.held) - self.running

    @property
    def counted_ad(self) -> WorkerAd:
        """Its ad as far as it counts."""
        return with_cpus(self.ad, self.cls.capacity.get("cpus", 0) / MILLI)

    @property
    def is_cut(self) -> bool:
        """Whether it offers more than counts."""
        return self.cls.capacity.get("cpus", 0) < amounts(self.ad.assets).get("cpus", 0)

    def remaining_seconds(self, now: float) -> float | None:
        """The time for which it stays; None if it does not say that it leaves.

        Args:
            now: by the pool's clock; the worker's clock is off as far as its hello has said.
        """
        ends_at = self.ad.ends_at
        return None if ends_at is None else ends_at - self.skew.greeted_seconds - now

    def queued_numbers(self) -> list[int]:
        """The numbers of the attempts that wait there, oldest first."""
        return [
            number
            for number, task in self.held.items()
            if task.attempt is not None and task.attempt.phase is Phase.QUEUED
        ]
