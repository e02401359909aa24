"""Serves what users ask about workers and the pool as a whole."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kestrelctl import __version__
from kestrelctl.core import events as ev
from kestrelctl.core.members.availability import worker_state
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.overview import Overviews, as_seen
from kestrelctl.manager.selection import Selection, workers_named
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

#: The most workers in one answer; fewer if their tags take much room.
MAX_WORKERS = 500


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the manager's process takes of its machine."""

    cpu_seconds: float  #: since its start, user and system
    rss_bytes: int


class PoolRequests:
    """Workers, drain, resume, status, overview."""

    def __init__(self, service: Service, selection: Selection, usage: Callable[[], Usage]) -> None:
        self._service = service
        self._selection = selection
        self._overviews = Overviews(service)
        self._usage = usage

    async def list_workers(self, caller: Caller, request: rq.ListWorkers) -> None:
        moment = self._service.now()
        limit = max(1, min(request.limit, MAX_WORKERS))
        workers = self._service.pool.workers
        named = [jid for name in request.names for jid in workers_named(name, workers)]
        found = sorted(jid for jid in (named if request.names else workers) if jid > request.after)
        page = views.first_that_fit(
            [views.worker_view(workers[jid], moment) for jid in found[:limit]]
        )
        after = page[-1].worker if len(found) > len(page) else None
        caller.reply(an.Workers(id=request.id, workers=page, after=after))

    async def drain(self, caller: Caller, request: rq.DrainWorkers) -> None:
        jids = self._selection.workers(caller, request.names)
        for jid in jids:
            self._service.handle(
                ev.Drain(at=self._service.now(), cause=caller.jid, worker=jid, by=caller.user)
            )
        caller.reply(an.Changed(id=request.id, what=jids))

    async def resume(self, caller: Caller, request: rq.ResumeWorkers) -> None:
        jids = self._selection.workers(caller, request.names)
        for jid in jids:
            self._service.handle(ev.Resume(at=self._service.now(), cause=caller.jid, worker=jid))
        caller.reply(an.Changed(id=request.id, what=jids))

    async def status(self, caller: Caller, request: rq.PoolStatus) -> None:
        service, pool = self._service, self._service.pool
        moment = self._service.now()
        workers: dict[str, int] = {}
        for worker in pool.workers.values():
            word = worker_state(worker, moment)
            workers[word] = workers.get(word, 0) + 1
        usage = self._usage()
        statistics = service.store.statistics()
        caller.reply(
            an.PoolSummary(
                id=request.id,
                version=__version__,
                epoch=pool.epoch,
                up_seconds=moment - service.started_at,
                workers=workers,
                jobs_active=len(pool.jobs),
                tasks_waiting=sum(job.remaining - job.running for job in pool.jobs),
                tasks_running=sum(job.running for job in pool.jobs),
                totals=pool.totals.summary(),
                manager_cpu_seconds=usage.cpu_seconds,
                manager_rss_bytes=usage.rss_bytes,
                commits=statistics.commits,
                commit_seconds_mean=statistics.commit_seconds / max(1, statistics.commits),
                store_error=service.store_error,
                store_notes=service.store.notes(),
                store_error_since=service.store_error_since,
            )
        )

    async def traffic(self, caller: Caller, request: rq.PoolTraffic) -> None:
        service = self._service
        caller.reply(
            an.Traffic(
                id=request.id,
                at=self._service.now(),
                epoch=service.pool.epoch,
                workers=service.pool.online,
                messages=list(service.stanzas.counted()),
            )
        )

    async def overview(self, caller: Caller, request: rq.PoolOverview) -> None:
        found = self._overviews.latest(self._service.now())
        caller.reply(
            msgspec.structs.replace(
                found,
                id=request.id,
                jobs=as_seen(found.jobs[: max(0, request.jobs)], caller),
                ended=as_seen(found.ended, caller),
            )
        )
