"""Keeps what workers tell of their hosts, tells the core, and serves what users ask of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kestrelctl.core import events as ev
from kestrelctl.core.model.worker.matching_ads import MAX_VALUE_CHARACTERS
from kestrelctl.core.properties.readings import Readings
from kestrelctl.core.properties.summary import PropertySummary
from kestrelctl.errors import NotFound
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.members.log import MemberEvents
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.service import Service
from kestrelctl.protocol.properties import (
    ListProperties,
    PropertiesHere,
    PropertyList,
    PropertyView,
)

_GONE = ("leave", "failed")


class PropertyService:
    """Properties of workers.

    Attributes:
        book: the properties that are known of each worker.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self.book = Readings()
        #: Called with the names of properties that have new values at a worker.
        self.on_changed: Callable[[frozenset[str]], None] = lambda names: None
        service.listen(MemberEvents, self._on_members)

    def on_here(self, worker: str, said: PropertiesHere) -> None:
        """Takes in what a worker tells of its properties."""
        service = self._service
        known = service.pool.workers.get(worker)
        if known is None or not known.synced:
            # It is asked for a hello, and tells all anew after its welcome.
            service.handle(ev.Heard(at=service.now(), cause=worker, worker=worker))
            return
        readings = [(each.name, each.reading()) for each in said.readings]
        changed = self.book.take(worker, readings, anew=said.anew)
        if not changed:
            service.handle(ev.Heard(at=service.now(), cause=worker, worker=worker))
            return
        values = self.book.values_of(worker)
        service.handle(
            ev.PropertiesRead(
                at=service.now(),
                cause=worker,
                worker=worker,
                properties={
                    # Longer texts are for people.
                    name: value
                    for name, value in values.items()
                    if not isinstance(value, str) or len(value) <= MAX_VALUE_CHARACTERS
                },
                changed=changed,
            )
        )
        self.on_changed(changed)

    def summaries(self, names: Sequence[str]) -> list[tuple[str, str, PropertySummary]]:
        """Sums properties up: (property, group, sum), of all workers and of each group.

        The group of all is the empty text.
        """
        if not names:
            return []
        groups = self._service.pool.worker_groups
        members: dict[str, list[str]] = {"": [], **{each.name: [] for each in groups.all}}
        for worker in self._service.pool.workers.values():
            if worker.online:
                for group in ("", *groups.of(worker.jid, worker.ad)):
                    members[group].append(worker.jid)
        return [
            (name, group, self.book.summary(name, workers))
            for name in dict.fromkeys(names)
            for group, workers in members.items()
        ]

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {ListProperties: self.list_properties}

    async def list_properties(self, caller: Caller, request: ListProperties) -> None:
        """Serves users who ask for properties."""
        groups = self._service.pool.worker_groups
        if request.group and all(each.name != request.group for each in groups.all):
            raise NotFound(
                f"there is no group of workers {request.group!r}",
                hint="kestrelctl worker group list",
            )
        workers = self._workers_of(request.group)
        known = self.book.names(workers)
        names = known if not request.names else dict.fromkeys(request.names)
        for name in names:
            if name not in known:
                raise NotFound(
                    f"no worker tells of a property {name}",
                    hint="kestrelctl worker properties lists those that there are",
                )
        caller.reply(
            PropertyList(
                id=request.id,
                workers=len(workers),
                properties=[
                    PropertyView(name=name, summary=self.book.summary(name, workers))
                    for name in names
                ],
            )
        )

    def _workers_of(self, group: str) -> Sequence[str]:
        groups = self._service.pool.worker_groups
        return [
            worker.jid
            for worker in self._service.pool.workers.values()
            if worker.online and (not group or group in groups.of(worker.jid, worker.ad))
        ]

    def _on_members(self, told: MemberEvents) -> None:
        for event in told.events:
            known = self._service.pool.workers.get(event.worker)
            if event.kind in _GONE and (known is None or not known.online):
                self.book.forget(event.worker)
