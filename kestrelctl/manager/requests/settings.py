"""Serves what admins set for the whole pool, and who asks for it: policies and assets."""

from __future__ import annotations

from collections import Counter

from kestrelctl.core import events as ev
from kestrelctl.core.model.names import NAME_RULE, is_name
from kestrelctl.errors import UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.views import PolicyView


class PolicyRequests:
    """Set, remove, list."""

    def __init__(self, service: Service, pending: PendingAnswers) -> None:
        self._service = service
        self._pending = pending

    async def set(self, caller: Caller, request: rq.SetPolicy) -> None:
        if not is_name(request.name):
            raise UsageError(
                f"{request.name[:80]!r} cannot be the name of a policy",
                cause=NAME_RULE,
            )
        answer = await self._pending.answer_to(
            lambda token: ev.PutPolicy(
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                name=request.name,
                workers=request.workers,
                text=request.text,
            )
        )
        caller.reply(an.Changed(id=request.id, what=[request.name], tasks=answer.tasks))

    async def remove(self, caller: Caller, request: rq.RemovePolicy) -> None:
        await self._pending.answer_to(
            lambda token: ev.DropPolicy(
                at=self._service.now(), cause=caller.jid, request=token, name=request.name
            )
        )
        caller.reply(an.Changed(id=request.id, what=[request.name]))

    async def list(self, caller: Caller, request: rq.ListPolicies) -> None:
        pool = self._service.pool
        in_force = Counter(w.cls.policy.name for w in pool.workers.values() if w.cls.policy)
        caller.reply(
            an.Policies(
                id=request.id,
                policies=[
                    PolicyView(
                        name=record.name,
                        workers=record.workers,
                        text=record.text,
                        in_force=in_force[record.name],
                    )
                    for record in pool.policies
                ],
            )
        )


class AssetRequests:
    """Set, remove, list."""

    def __init__(self, service: Service, pending: PendingAnswers) -> None:
        self._service = service
        self._pending = pending

    async def set(self, caller: Caller, request: rq.SetAsset) -> None:
        await self._pending.answer_to(
            lambda number: ev.PutToken(
                at=self._service.now(),
                cause=caller.jid,
                request=number,
                name=request.name,
                total=request.total,
            )
        )
        caller.reply(an.Changed(id=request.id, what=[request.name]))

    async def remove(self, caller: Caller, request: rq.RemoveAsset) -> None:
        await self._pending.answer_to(
            lambda number: ev.DropToken(
                at=self._service.now(), cause=caller.jid, request=number, name=request.name
            )
        )
        caller.reply(an.Changed(id=request.id, what=[request.name]))

    async def list(self, caller: Caller, request: rq.ListAssets) -> None:
        caller.reply(an.Assets(id=request.id, assets=views.pool_assets(self._service.pool)))
