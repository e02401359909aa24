"""A worker as the manager sees it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kestrelctl.core.assets import Amounts, amounts, give_back, take, times_fitting
from kestrelctl.core.matching import Refusal, Shape, match, slots
from kestrelctl.core.model import WorkerAd
from kestrelctl.core.skew import Skew

if TYPE_CHECKING:
    from kestrelctl.core.job import Job, Task


class WorkerClass:
    """Workers that match alike: same tags, same capacity."""

    __slots__ = ("answers", "capacity", "hungry", "members", "parked", "tags")

    def __init__(self, tags: frozenset[str], capacity: Amounts) -> None:
        self.tags = tags
        self.capacity = capacity
        self.answers: dict[Shape, tuple[Refusal | None, int]] = {}
        #: Workers that may be able to take tasks, longest waiting first.
        self.hungry: dict[str, Worker] = {}
        #: Workers that could take nothing of what waited; looked at again when something else
        #: waits.
        self.parked: dict[str, Worker] = {}
        self.members = 0  #: online ones

    def answer(self, shape: Shape) -> tuple[Refusal | None, int]:
        """Why tasks of the shape cannot run here (or None), and how many could at once."""
        known = self.answers.get(shape)
        if known is None:
            refusal = match(shape, self.capacity, self.tags)
            known = (refusal, 0 if refusal else slots(shape, self.capacity))
            self.answers[shape] = known
        return known


class Worker:
    """One session's aggregate, its attempts, and what is known of its health.

    Attempts that run (as far as the manager can tell) are *charged*: their request is taken out of
    `free`. Those that wait behind them are not; they are charged in order of arrival as room
    appears, which is what the worker itself does.
    """

    __slots__ = (
        "ad",
        "away_until",
        "backlog",
        "beat_seconds",
        "charged",
        "cls",
        "draining",
        "free",
        "held",
        "incarnation",
        "jid",
        "joined_at",
        "known_jobs",
        "lease_until",
        "leaving",
        "offline_since",
        "online",
        "quarantined_until",
        "quarantines",
        "reported_at",
        "running_of",
        "skew",
        "streak",
        "synced",
        "taking_back",
        "tasks_done",
        "tasks_failed",
    )

    def __init__(self, jid: str, cls: WorkerClass, ad: WorkerAd, now: float) -> None:
        self.jid = jid
        self.cls = cls
        self.ad = ad
        self.joined_at = now
        self.incarnation = ""
        self.free: Amounts = dict(cls.capacity)
        self.held: dict[int, Task] = {}  #: attempt number -> task
        self.backlog: deque[tuple[int, Task]] = deque()  #: uncharged ones; may name ended attempts
        self.charged = 0
        self.running_of: dict[Job, int] = {}  #: charged attempts of each job
        self.known_jobs: set[int] = set()
        self.online = False
        self.synced = False  #: it has said what it holds since it was last asked
        self.draining = False  #: an admin's wish; it outlasts restarts
        self.leaving = False  #: its own; it lasts as long as the process
        self.quarantined_until = 0.0
        self.quarantines = 0
        self.streak = 0  #: fast failures in a row
        self.lease_until = 0.0
        self.offline_since = now
        self.away_until = 0.0
        self.beat_seconds = 0.0
        self.reported_at = now
        self.taking_back = False
        self.skew = Skew()
        self.tasks_done = 0
        self.tasks_failed = 0

    @property
    def behind(self) -> int:
        """Attempts that wait at the worker for others to end."""
        return len(self.held) - self.charged

    def may_take(self, now: float) -> bool:
        """Whether new attempts may be sent to it at all."""
        return (
            self.online
            and self.synced
            and not (self.draining or self.leaving)
            and self.quarantined_until <= now
        )

    def hold(self, number: int, task: Task) -> None:
        """Adds an attempt, charged if there is room and nothing waits before it."""
        self.held[number] = task
        task.worker = self
        task.number = number
        task.charged = False
        if self.behind == 1 and times_fitting(task.job.shape.request, self.free):
            self._charge(task)
        else:
            self.backlog.append((number, task))

    def release(self, number: int) -> Task | None:
        """Removes an attempt and returns its task, or None if the worker does not hold it."""
        task = self.held.pop(number, None)
        if task is None:
            return None
        if task.charged:
            task.charged = False
            self.charged -= 1
            job = task.job
            give_back(self.free, job.shape.request)
            left = self.running_of[job] - 1
            if left:
                self.running_of[job] = left
            else:
                del self.running_of[job]
        task.worker = None
        return task

    def promote(self) -> None:
        """Charges waiting attempts, in order, as far as there is room."""
        backlog = self.backlog
        while backlog:
            number, task = backlog[0]
            if self.held.get(number) is task and not task.charged:
                if not times_fitting(task.job.shape.request, self.free):
                    return
                self._charge(task)
            backlog.popleft()

    def _charge(self, task: Task) -> None:
        job = task.job
        take(self.free, job.shape.request)
        task.charged = True
        self.charged += 1
        self.running_of[job] = self.running_of.get(job, 0) + 1

    def wake(self) -> None:
        """Puts it among those that may be able to take tasks."""
        self.cls.parked.pop(self.jid, None)
        self.cls.hungry[self.jid] = self

    def park(self) -> None:
        """It can take nothing of what waits now."""
        if self.cls.hungry.pop(self.jid, None) is not None:
            self.cls.parked[self.jid] = self

    def hide(self) -> None:
        """It may take nothing at all."""
        self.cls.hungry.pop(self.jid, None)
        self.cls.parked.pop(self.jid, None)


def class_key(ad: WorkerAd) -> tuple[frozenset[str], Amounts]:
    """What an ad's workers have in common: tags (upper case, as in the original) and capacity."""
    return frozenset(tag.upper() for tag in ad.tags), amounts(ad.cpus, ad.memory_bytes)


WORKER_STATES = ("idle", "busy", "draining", "quarantined", "offline", "unheard")


def worker_state(worker: Worker, now: float) -> str:
    """One word for how a worker is: one of `WORKER_STATES`."""
    if not worker.online:
        return "offline" if worker.incarnation else "unheard"
    if worker.draining or worker.leaving:
        return "draining"
    if worker.quarantined_until > now:
        return "quarantined"
    if not worker.synced:
        return "unheard"
    return "busy" if worker.held else "idle"
