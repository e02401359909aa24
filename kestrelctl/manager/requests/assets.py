"""Serves what users ask about assets of the whole pool."""

from __future__ import annotations

from kestrelctl.core import events as ev
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq


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
