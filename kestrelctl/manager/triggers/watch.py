"""Makes what triggers see of the pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kestrelctl.core.environments.started import EnvironmentPhase
from kestrelctl.core.members.availability import worker_state
from kestrelctl.core.properties.readings import Readings
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.core.scheduling.shortage import shape_words
from kestrelctl.core.triggers.expression import WORKERS_IN_A_STEP, TableView
from kestrelctl.core.triggers.pool_views import (
    NAMES,
    PoolSnapshot,
    WatchedEnvironments,
    WatchedGroup,
    WatchedJob,
    WatchedQueue,
    WatchedUnmet,
    WatchedWorker,
)
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.service import Service

_NO_QUEUE = WatchedQueue(jobs=[], waiting=0, running=0)
_NO_UNMET = WatchedUnmet(tasks=0, shapes={})


class PoolWatch:
    """Looks at the pool.

    Attributes:
        environments: None if the pool has no classes of any.
    """

    def __init__(self, service: Service, book: Readings) -> None:
        self._service = service
        self._book = book
        self.environments: EnvironmentService | None = None

    def look(self, wanted: Collection[str] = NAMES) -> PoolSnapshot:
        """Describes how the pool is now.

        Args:
            wanted: names of expressions; for others nothing is looked up that costs time.
        """
        workers = self._workers(with_groups="groups" in wanted)
        jids = [each.name for each in workers]
        names = self._book.names(jids) if "properties" in wanted else []
        return PoolSnapshot(
            at=self._service.now(),
            workers=workers,
            groups=self._groups(workers, names),
            properties=self._sums(names, jids),
            queue=self._queue() if "queue" in wanted else _NO_QUEUE,
            unmet=self._unmet() if "unmet" in wanted else _NO_UNMET,
            environments=self._environments(),
        )

    def _workers(self, *, with_groups: bool) -> list[WatchedWorker]:
        now, groups = self._service.now(), self._service.pool.worker_groups
        return [
            WatchedWorker(
                name=jid,
                host=worker.ad.host,
                state=worker_state(worker, now),
                tags=worker.ad.tags,
                groups=groups.of(jid, worker.ad) if with_groups else (),
                cpus=worker.ad.assets.get("cpus", 0.0),
                memory=worker.ad.assets.get("memory", 0.0),
                running=worker.running,
                queued=worker.queued,
                properties=worker.ad.properties,
            )
            for jid, worker in self._service.pool.workers.items()
            if worker.online
        ]

    def _groups(
        self, workers: list[WatchedWorker], properties: list[str]
    ) -> TableView[WatchedGroup]:
        def group(name: str) -> WatchedGroup:
            members = [each for each in workers if name in each.groups]
            table = self._sums(properties, [each.name for each in members])
            return WatchedGroup(workers=members, properties=table)

        groups = [each.name for each in self._service.pool.worker_groups.all]
        return TableView(groups, group, len(workers) // WORKERS_IN_A_STEP)

    def _sums(self, properties: list[str], jids: list[str]) -> TableView[PropertySummary]:
        def summary(name: str) -> PropertySummary:
            return self._book.summary(name, jids)

        return TableView(properties, summary, len(jids) // WORKERS_IN_A_STEP)

    def _queue(self) -> WatchedQueue:
        jobs = [
            WatchedJob(
                id=job.id,
                name=job.spec.name,
                owner=job.owner,
                priority=job.spec.priority,
                held=job.hold is not None,
                waiting=max(0, job.remaining - job.running),
                running=job.running,
            )
            for job in self._service.pool.jobs
        ]
        return WatchedQueue(
            jobs=jobs,
            waiting=sum(each.waiting for each in jobs),
            running=sum(each.running for each in jobs),
        )

    def _unmet(self) -> WatchedUnmet:
        pool = self._service.pool
        tags, shapes = pool.known_tags(), Counter[str]()
        for shape, tasks in pool.shortage().unmet.items():
            shapes[shape_words(shape, tags)] += tasks
        return WatchedUnmet(tasks=shapes.total(), shapes=dict(shapes))

    def _environments(self) -> dict[str, WatchedEnvironments]:
        desk = self.environments
        if desk is None:
            return {}
        phases = Counter((each.of, each.phase) for each in desk.there())
        return {
            name: WatchedEnvironments(
                starting=phases[name, EnvironmentPhase.STARTING],
                ready=phases[name, EnvironmentPhase.READY],
                stopping=phases[name, EnvironmentPhase.STOPPING],
                waiting=desk.demand.needed[name],
            )
            for name in desk.classes
        }
