"""Serves what users ask about workers and the pool as a whole, and resizes workers."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec

from kestrelctl.checkout import own_version
from kestrelctl.core import events as ev
from kestrelctl.core.members.availability import worker_state
from kestrelctl.core.members.worker import Worker
from kestrelctl.core.model.neighbour import is_neighbour
from kestrelctl.core.model.wording import plural
from kestrelctl.core.model.worker.ad import AssetChange
from kestrelctl.core.model.worker.assets import natural, without_units
from kestrelctl.core.properties.readings import Readings
from kestrelctl.errors import Busy, KestrelError, SteppedBack, UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.overview import Overviews, as_seen
from kestrelctl.manager.requests.where import MOST_LOOKED_AT, listed_worker, where_workers
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import Selection, workers_named
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol import workers
from kestrelctl.protocol.views import QuarantineView

#: The time that a worker may take to answer.
ANSWER_SECONDS = 10.0


class Resizes:
    """Requests for another capacity that workers have yet to answer."""

    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._pending: dict[str, tuple[str, asyncio.Future[workers.Resized]]] = {}

    def ask(
        self, worker: str, change: AssetChange
    ) -> tuple[workers.Resize, asyncio.Future[workers.Resized]]:
        """Makes a message for the worker, and the future of its answer."""
        request = str(next(self._ids))
        future: asyncio.Future[workers.Resized] = asyncio.get_running_loop().create_future()
        self._pending[request] = (worker, future)
        future.add_done_callback(lambda _: self._pending.pop(request, None))
        return workers.Resize(request=request, change=change), future

    def on_resized(self, sender: str, message: workers.Resized) -> None:
        """Takes in what a worker has; an answer from anybody but who was asked is dropped."""
        worker, future = self._pending.get(message.request, ("", None))
        if future is not None and worker == sender and not future.done():
            future.set_result(message)


#: The most workers in one answer; fewer if their tags take much room.
MAX_WORKERS = 500
#: The most names of workers in one request of any user: each may be looked for in all addresses.
MOST_NAMES = 1_000
#: The most workers of which the summary of the pool says why they are in quarantine.
MOST_QUARANTINED = 20


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The use that the manager's process makes of its machine."""

    cpu_seconds: float  #: since its start, user and system
    rss_bytes: int


class PoolRequests:
    """Serves requests to list, drain, resume and resize workers, for status and overview."""

    def __init__(
        self,
        service: Service,
        selection: Selection,
        resizes: Resizes,
        usage: Callable[[], Usage],
        properties: Readings,
    ) -> None:
        self._properties = properties
        self._service = service
        self._resizes = resizes
        self._selection = selection
        self._overviews = Overviews(service)
        self._usage = usage

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.ListWorkers: self.list_workers,
            rq.DrainWorkers: self.drain,
            rq.ResumeWorkers: self.resume,
            rq.ResizeWorker: self.resize,
            rq.PoolStatus: self.status,
            rq.PoolTraffic: self.traffic,
            rq.HandOver: self.hand_over,
            rq.PoolOverview: self.overview,
        }

    async def list_workers(self, caller: Caller, request: rq.ListWorkers) -> None:
        moment = self._service.now()
        limit = max(1, min(request.limit, MAX_WORKERS))
        workers = self._service.pool.workers
        if len(request.names) > MOST_NAMES:
            raise UsageError(
                f"{plural(len(request.names), 'name')} are too many at once",
                hint=f"name at most {MOST_NAMES:,}, or a part that their addresses have in common",
            )
        meant: Iterable[str] = workers
        if request.names:
            meant = {jid for _, named in workers_named(request.names, workers) for jid in named}
        found = sorted(jid for jid in meant if jid > request.after)
        if request.where:
            where = where_workers(request.where, workers)
            looked_at = found[:MOST_LOOKED_AT]
            every = [views.worker_view(workers[jid], moment) for jid in looked_at]
            fitting = where.those_that_fit(
                every,
                lambda view: (view.worker, listed_worker(workers[view.worker], view)),
                is_first=not request.after,
            )
            page = views.first_that_fit(fitting[:limit])
            after = looked_at[-1] if len(found) > len(looked_at) else None
            if len(page) < len(fitting):
                after = page[-1].worker
            caller.reply(an.Workers(id=request.id, workers=page, after=after))
            return
        page = views.first_that_fit(
            [
                views.worker_view(
                    workers[jid],
                    moment,
                    with_tasks=bool(request.names),
                    groups=self._groups_of(workers[jid]) if request.names else (),
                    properties=self._properties.of(jid) if request.names else {},
                )
                for jid in found[:limit]
            ]
        )
        after = page[-1].worker if len(found) > len(page) else None
        caller.reply(an.Workers(id=request.id, workers=page, after=after))

    def _groups_of(self, worker: Worker) -> tuple[str, ...]:
        return self._service.pool.worker_groups.of(worker.jid, worker.ad)

    async def drain(self, caller: Caller, request: rq.DrainWorkers) -> None:
        jids = self._selection.workers(request.names)
        for jid in jids:
            self._service.handle(
                ev.Drain(at=self._service.now(), cause=caller.jid, worker=jid, by=caller.user)
            )
        caller.reply(an.Changed(id=request.id, what=jids))

    async def resume(self, caller: Caller, request: rq.ResumeWorkers) -> None:
        jids = self._selection.workers(request.names)
        for jid in jids:
            self._service.handle(ev.Resume(at=self._service.now(), cause=caller.jid, worker=jid))
        caller.reply(an.Changed(id=request.id, what=jids))

    async def resize(self, caller: Caller, request: rq.ResizeWorker) -> None:
        jids = self._selection.workers([request.name])
        if len(jids) > 1:
            raise UsageError(
                f"{len(jids):,} workers are called so",
                hint=f"kestrelctl worker list {request.name}",
            )
        [jid] = jids
        service = self._service
        if jid in service.profiles:
            raise UsageError(
                f"worker {jid} cannot be asked for that",
                cause="it speaks the messages of profiles, and says itself what it has",
            )
        if is_neighbour(jid):
            raise UsageError(
                f"worker {jid} cannot be asked for that",
                cause="another pool lends it, and decides how much that is",
                hint="kestrelctl flock status",
            )
        if not service.pool.workers[jid].online:
            raise KestrelError(
                f"worker {jid} is away",
                hint="kestrelctl worker list",
            )
        change = request.change
        named = {*change.amounts, *change.units, *change.shared, *change.unknown}
        for asset in service.pool.tokens():
            if asset.name in named:
                raise UsageError(
                    f"{asset.name} is an asset of the whole pool, not of a worker",
                    hint=f"kestrelctl pool asset set {asset.name} COUNT",
                )
        message, future = self._resizes.ask(jid, change)
        service.send_to_worker(jid, message)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answer = await future
        except TimeoutError:
            raise Busy(
                f"worker {jid} does not answer", hint=f"kestrelctl worker info {request.name}"
            ) from None
        if answer.problem:
            raise UsageError(f"worker {jid} cannot offer that", cause=answer.problem)
        known = service.pool.workers.get(jid)
        views_found = [] if known is None else [views.worker_view(known, service.now())]
        caller.reply(an.Workers(id=request.id, workers=views_found))

    async def status(self, caller: Caller, request: rq.PoolStatus) -> None:
        service, pool = self._service, self._service.pool
        moment = self._service.now()
        workers: dict[str, int] = {}
        running = 0  # and what waits at a worker for these waits
        capacity: Counter[str] = Counter()
        free: Counter[str] = Counter()
        for worker in pool.workers.values():
            word = worker_state(worker, moment)
            workers[word] = workers.get(word, 0) + 1
            running += worker.running
            if worker.online:
                capacity.update(worker.assets)
                free.update(without_units(worker.free))
        quarantined = [
            QuarantineView(worker.jid, worker.quarantined_until, worker.quarantined_for)
            for worker in pool.workers.values()
            if worker_state(worker, moment) == "quarantined"
        ]
        usage = self._usage()
        statistics = service.store.statistics()
        unmet, saturated = views.lacking(pool)
        caller.reply(
            an.PoolSummary(
                id=request.id,
                version=own_version(),
                epoch=pool.epoch,
                up_seconds=moment - service.started_at,
                workers=workers,
                capacity=natural(capacity),
                free=natural({name: free[name] for name in capacity}),
                jobs_active=len(pool.jobs),
                tasks_waiting=sum(job.remaining for job in pool.jobs) - running,
                tasks_running=running,
                totals=pool.totals.summary(),
                manager_cpu_seconds=usage.cpu_seconds,
                manager_rss_bytes=usage.rss_bytes,
                commits=statistics.commits,
                commit_seconds_mean=statistics.commit_seconds / max(1, statistics.commits),
                store_error=service.store_error,
                store_notes=service.store.notes(),
                store_error_since=service.store_error_since,
                quarantined=quarantined[:MOST_QUARANTINED],
                unmet=unmet,
                saturated=saturated,
                assets=views.pool_assets(pool),
                managers=service.managers(),
            )
        )

    async def hand_over(self, caller: Caller, request: rq.HandOver) -> None:
        managers = self._service.managers()
        if not managers:
            raise UsageError(
                "this pool has one manager, and nobody to hand it over to",
                cause="its store is in SQLite, which one machine has",
                hint="docs/operations.md: several managers",
            )
        ready = [each for each in managers if each.could_lead]
        if not ready:
            raise Busy(
                "no manager stands by that could lead this pool",
                hint="kestrelctl pool status",
            )
        caller.reply(an.Changed(id=request.id, what=[ready[0].host]))
        self._service.give_up(
            SteppedBack("the pool was handed over", cause=f"{caller.user} asked for it")
        )

    async def traffic(self, caller: Caller, request: rq.PoolTraffic) -> None:
        service = self._service
        caller.reply(
            an.Traffic(
                id=request.id,
                at=self._service.now(),
                epoch=service.pool.epoch,
                workers=service.pool.online,
                running=sum(worker.running for worker in service.pool.workers.values()),
                usage_seconds=service.pool.config.usage_seconds,
                messages=list(service.stanzas.counted()),
            )
        )

    async def overview(self, caller: Caller, request: rq.PoolOverview) -> None:
        now = self._service.now()
        found = self._overviews.latest(now)
        caller.reply(
            msgspec.structs.replace(
                found,
                id=request.id,
                jobs=as_seen(found.jobs[: max(0, request.jobs)], caller),
                ended=await self._overviews.ended_lately(caller, now),
            )
        )
