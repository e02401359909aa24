"""Serves what users ask about the flock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from kestrelctl.flock.rules.policy import Policy
from kestrelctl.flock.service.answered_flock import AnsweredFlock
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.rights import Handlers
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.views import LoanView

#: The most loans shown of each direction, and the most pools on a page: they fit into a stanza.
MOST_LOANS = 1_000
MOST_ON_PAGE = 200


class FlockAnswering:
    """Everybody may see how the flock is; admins change it."""

    def __init__(self, desk: AnsweredFlock) -> None:
        self._desk = desk

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.AskFlock: self.status,
            rq.ListNeighbours: self.pools,
            rq.JoinFlock: self.join,
            rq.ForgetPool: self.forget,
            rq.LeaveFlock: self.leave,
            rq.PingPool: self.ping,
            rq.ListFlockRules: self.rules,
        }

    async def status(self, caller: Caller, request: rq.AskFlock) -> None:
        found = self._desk.status()
        shown = replace(found, given=_largest(found.given), taken=_largest(found.taken))
        caller.reply(an.FlockStatus(id=request.id, flock=shown))

    async def pools(self, caller: Caller, request: rq.ListNeighbours) -> None:
        limit = min(max(1, request.limit), MOST_ON_PAGE)
        found = sorted(
            (view for view in self._desk.pools() if view.pool > request.after),
            key=lambda view: view.pool,
        )
        page = found[:limit]
        after = page[-1].pool if len(found) > limit else None
        caller.reply(an.Neighbours(id=request.id, pools=page, after=after))

    async def join(self, caller: Caller, request: rq.JoinFlock) -> None:
        await self._desk.join(request.domain.lower(), caller.jid)
        caller.reply(an.Changed(id=request.id, what=[request.domain.lower()]))

    async def forget(self, caller: Caller, request: rq.ForgetPool) -> None:
        await self._desk.forget(request.domain.lower(), caller.jid)
        caller.reply(an.Changed(id=request.id, what=[request.domain.lower()]))

    async def leave(self, caller: Caller, request: rq.LeaveFlock) -> None:
        through = list(self._desk.status().joined_through)
        await self._desk.leave(caller.jid)
        caller.reply(an.Changed(id=request.id, what=through))

    async def ping(self, caller: Caller, request: rq.PingPool) -> None:
        seconds = await self._desk.ping(request.domain.lower())
        caller.reply(an.FlockPong(id=request.id, pool=request.domain.lower(), seconds=seconds))

    async def rules(self, caller: Caller, request: rq.ListFlockRules) -> None:
        policy = Policy(self._desk.rules())
        caller.reply(
            an.FlockRules(
                id=request.id,
                rules=policy.rules(),
                rest={
                    "lend": policy.allows_the_rest("lend"),
                    "borrow": policy.allows_the_rest("borrow"),
                },
            )
        )


def _largest(loans: Sequence[LoanView]) -> list[LoanView]:
    """The loans with the most tasks first, as many as are shown."""
    return sorted(loans, key=lambda loan: (-loan.running, loan.pool, loan.loan))[:MOST_LOANS]
