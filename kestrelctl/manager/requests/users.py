"""Serves what users ask about users."""

from __future__ import annotations

import msgspec

from kestrelctl.core.model.names import is_called
from kestrelctl.core.model.wording import plural
from kestrelctl.errors import NotAllowed, UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.store.sums import DAY_SECONDS, Used, day_of


class UserRequests:
    """Serves those who ask what users have used."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {rq.UserUsage: self.usage}

    async def usage(self, caller: Caller, request: rq.UserUsage) -> None:
        now = self._service.now()
        if request.since > now:
            raise UsageError(
                f"usage since a time that is {plural(round(request.since - now), 'second')} ahead",
                hint="name a time in the past, such as `--since 7d`",
            )
        day = day_of(max(0.0, request.since))
        everybody = caller.sees("")
        if request.by == "group" and not everybody:
            raise NotAllowed("what groups have used is not yours to see")
        whose = None if everybody else caller.user
        found = await self._service.store.ask(lambda read: read.used_by_owner(day, whose))
        for account in self._service.pool.queued_bytes.by_account:
            if everybody or account == caller.user:  # also of whom nothing has run yet
                found.setdefault(account, Used())
        if request.by == "group":
            found = self._by_group(found)
            found = {who: used for who, used in found.items() if request.user in ("", who)}
        elif request.user:
            found = {who: used for who, used in found.items() if is_called(who, request.user)}
            if not found and not (everybody or is_called(caller.user, request.user)):
                raise NotAllowed(f"what {request.user} has used is not yours to see")
        lines = [
            self._line(who, used, request.by)
            for who, used in sorted(found.items())
            if not request.after or who > request.after
        ]
        page = views.first_that_fit(lines)
        after = page[-1].user if len(page) < len(lines) else None
        caller.reply(
            an.UsedByUsers(id=request.id, since=day * DAY_SECONDS, users=page, after=after)
        )

    def _line(self, who: str, used: Used, by: rq.UsageBy) -> an.UserLine:
        sharers, queued = self._service.pool.sharers, self._service.pool.queued_bytes
        if by == "group":
            members = sharers.members(who)
            return msgspec.structs.replace(
                views.user_line(who, used),
                stored_bytes=sum(member.stored.total_bytes for member in members),
                queued_bytes=sum(queued.of(member.name) for member in members),
            )
        sharer = sharers.find(who)
        return msgspec.structs.replace(
            views.user_line(who, used),
            stored_bytes=sharer.stored.total_bytes if sharer else 0,
            max_stored_bytes=sharer.stored.limit_bytes if sharer else None,
            queued_bytes=queued.of(who),
            max_queued_bytes=sharers.max_queued_bytes(who),
        )

    def _by_group(self, found: dict[str, Used]) -> dict[str, Used]:
        """Adds up what the present members of each group have used; those in none are under ""."""
        sharers = self._service.pool.sharers
        groups: dict[str, Used] = {}
        for who, used in found.items():
            sharer = sharers.find(who)
            group = sharer.record.group if sharer is not None else ""
            groups[group] = groups.get(group, Used()).plus(used)
        return groups
