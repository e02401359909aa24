"""Serves what users ask about members of the pool: events and groups."""

from __future__ import annotations

import msgspec

from kestrelctl.core.membership.event import must_be_kind
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.selection import check_glob
from kestrelctl.manager.service import Service
from kestrelctl.manager.views import first_that_fit
from kestrelctl.protocol.answers import EventPage, WorkerGroupList, WorkerGroupView
from kestrelctl.protocol.requests import ListEvents, ListWorkerGroups

#: The most events looked at for one answer: some milliseconds of the manager's time.
MOST_LOOKED_AT = 1_000


class MemberService:
    """Serves events and groups of workers."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            ListEvents: self.events,
            ListWorkerGroups: self.list_groups,
        }

    async def events(self, caller: Caller, request: ListEvents) -> None:
        since = self._service.wall.steady(request.query.since)
        query = msgspec.structs.replace(request.query, since=since)
        if query.kind:
            must_be_kind(query.kind)
        check_glob(query.worker)
        if request.after < 0:
            last = await self._service.store.ask(lambda read: read.last_member_event())
            caller.reply(EventPage(id=request.id, events=[], after=last))
            return
        looked_at = await self._service.store.ask(
            lambda read: read.member_events(
                after=request.after, since=query.since, limit=MOST_LOOKED_AT
            )
        )
        meant = [event for event in looked_at if query.means(event)]
        page = first_that_fit(meant[: max(1, request.limit)])
        whole = len(page) == len(meant)
        after = request.after
        if looked_at:
            after = looked_at[-1].number if whole else page[-1].number
        more = not whole or len(looked_at) == MOST_LOOKED_AT
        caller.reply(EventPage(id=request.id, events=page, after=after, more=more))

    async def list_groups(self, caller: Caller, request: ListWorkerGroups) -> None:
        groups = self._service.pool.worker_groups
        counts = dict.fromkeys((group.name for group in groups.all), 0)
        for worker in self._service.pool.workers.values():
            if worker.online:
                for name in groups.of(worker.jid, worker.ad):
                    counts[name] += 1
        caller.reply(
            WorkerGroupList(
                id=request.id,
                groups=[
                    WorkerGroupView(group=group, workers=counts[group.name]) for group in groups.all
                ],
            )
        )
