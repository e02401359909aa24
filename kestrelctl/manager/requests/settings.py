"""Serves admins who set and remove what the pool has by name, and users who list it."""

from __future__ import annotations

from collections import Counter

from kestrelctl.core import events as ev
from kestrelctl.core.model.records import PolicyRecord
from kestrelctl.core.settings.table import BY_WANTED
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.setting_requests import RemoveSetting, SetSetting
from kestrelctl.protocol.views import PolicyView


class SettingRequests:
    """Sets and removes settings of every kind; lists policies and assets."""

    def __init__(self, service: Service, pending: PendingAnswers) -> None:
        self._service = service
        self._pending = pending

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.SetPolicy: self.set,
            rq.RemovePolicy: self.remove,
            rq.ListPolicies: self.policies,
            rq.SetAsset: self.set,
            rq.RemoveAsset: self.remove,
            rq.ListAssets: self.assets,
            rq.ChangeGroup: self.set,
            rq.RemoveGroup: self.remove,
            rq.SetWorkerGroup: self.set,
            rq.RemoveWorkerGroup: self.remove,
        }

    async def set(self, caller: Caller, request: SetSetting) -> None:
        wanted = request.wanted()
        BY_WANTED[type(wanted)].must_make_sense(wanted)  # of nonsense no event is made
        answer = await self._pending.answer_to(
            lambda token: ev.PutSetting(
                at=self._service.now(), cause=caller.jid, request=token, setting=wanted
            )
        )
        caller.reply(an.Changed(id=request.id, what=[wanted.name], tasks=answer.tasks))

    async def remove(self, caller: Caller, request: RemoveSetting) -> None:
        await self._pending.answer_to(
            lambda token: ev.DropSetting(
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                kind=request.kind,
                name=request.name,
            )
        )
        caller.reply(an.Changed(id=request.id, what=[request.name]))

    async def policies(self, caller: Caller, request: rq.ListPolicies) -> None:
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
                    for record in pool.settings(PolicyRecord)
                ],
            )
        )

    async def assets(self, caller: Caller, request: rq.ListAssets) -> None:
        caller.reply(an.Assets(id=request.id, assets=views.pool_assets(self._service.pool)))
