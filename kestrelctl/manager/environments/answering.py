"""Serves what users ask about environments."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from kestrelctl.core.environments.environment_class import EnvironmentClass
from kestrelctl.core.environments.on_demand import HostRoom, amounts_of
from kestrelctl.core.environments.started import Environment
from kestrelctl.core.model.worker.assets import describe_all, natural, without_units
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.environments.service import EnvironmentService
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.views import first_that_fit
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import (
    EnvironmentClassView,
    EnvironmentHostView,
    EnvironmentList,
    EnvironmentView,
    StartFailureView,
)

#: The most hosts, and the most failed starts, that one answer tells, of all its classes together.
MOST_HOSTS = 500
MOST_FAILURES = 100


class EnvironmentRequests:
    """Lists, starts and stops environments."""

    def __init__(self, desk: EnvironmentService) -> None:
        self._desk = desk

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.ListEnvironments: self.list,
            rq.StartOneEnvironment: self.start,
            rq.StopEnvironments: self.stop,
        }

    async def list(self, caller: Caller, request: rq.ListEnvironments) -> None:
        desk, of = self._desk, request.of
        meant = [desk.class_named(of)] if of else list(desk.classes.values())
        answer = EnvironmentList(id=request.id, classes=[])
        if meant and not request.after:
            hosts = desk.hosts()
            views = [self._class_view(cls, hosts, 1 / len(meant)) for cls in meant]
            answer = replace(answer, classes=views)
        there = sorted(
            (
                each
                for each in desk.there()
                if each.number > request.after and of in ("", each.of, each.makes_room_for)
            ),
            key=lambda each: each.number,
        )
        now = desk.now()
        page = first_that_fit((_view(each, now) for each in there), beside=answer)
        after = page[-1].number if len(page) < len(there) else None
        caller.reply(replace(answer, environments=page, after=after))

    async def start(self, caller: Caller, request: rq.StartOneEnvironment) -> None:
        started = self._desk.start(request.of, request.host)
        caller.reply(an.Changed(id=request.id, what=[str(started.number)]))

    async def stop(self, caller: Caller, request: rq.StopEnvironments) -> None:
        numbers = dict.fromkeys(request.numbers)
        for number in numbers:
            self._desk.environment(number)  # all or none
        for number in numbers:
            self._desk.stop(number)
        caller.reply(an.Changed(id=request.id, what=[str(number) for number in numbers]))

    def _class_view(
        self, cls: EnvironmentClass, hosts: Sequence[HostRoom], part: float
    ) -> EnvironmentClassView:
        """Makes the view of a class.

        Args:
            part: of the most hosts and failures in an answer, those of this class.
        """
        desk = self._desk
        most_hosts, most_failures = (
            max(1, int(MOST_HOSTS * part)),
            max(1, int(MOST_FAILURES * part)),
        )
        latest_first = sorted(desk.failures.of_class(cls.name), key=lambda each: -each[1].at)
        failures = [
            StartFailureView(
                host=host, times=f.times, at=f.at, next_try_at=f.next_try_at, why=f.why
            )
            for host, f in latest_first[:most_failures]
        ]
        views = [
            EnvironmentHostView(
                host=host.name,
                free=natural(without_units(host.free)),
                why_not=self._why_not(cls, host),
            )
            for host in hosts
        ]
        views.sort(key=lambda view: view.why_not != "")
        return EnvironmentClassView(
            name=cls.name,
            kind=cls.kind,
            tags=cls.tags,
            assets=natural(amounts_of(cls)),
            minimum=cls.minimum,
            maximum=cls.maximum,
            start_seconds=cls.start_seconds,
            idle_seconds=cls.idle_seconds,
            waiting=desk.demand.needed[cls.name],
            obstacle=desk.obstacles[cls.name].value,
            hosts=views[:most_hosts],
            more_hosts=len(views[most_hosts:]),
            failures=failures,
            runs=shlex.join(cls.runs),
        )

    def _why_not(self, cls: EnvironmentClass, host: HostRoom) -> str:
        if cls.kind not in self._desk.book.kinds[host.name]:
            return f"it makes none of kind {cls.kind}"
        if cls.name not in host.classes:
            return f"it is not among {cls.hosts}"
        if not self._desk.failures.may_start(cls.name, host.name, self._desk.now()):
            return "a start has failed there of late"
        lacking = {
            asset: amount - host.free.get(asset, 0)
            for asset, amount in amounts_of(cls).items()
            if host.free.get(asset, 0) < amount
        }
        return f"it lacks {describe_all(lacking)}" if lacking else ""


def _view(found: Environment, now: float) -> EnvironmentView:
    idle = None if found.idle_since is None else max(0.0, now - found.idle_since)
    return EnvironmentView(
        number=found.number,
        of=found.of,
        host=found.host,
        phase=found.phase.value,
        since=found.since,
        idle_seconds=idle,
        worker=found.worker,
        asked_for=found.asked_for,
        draining=found.draining,
        makes_room_for=found.makes_room_for,
    )
