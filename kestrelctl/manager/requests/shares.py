"""Serves what users ask about shares and bounds of users and of groups."""

from __future__ import annotations

import re
from collections import Counter

from kestrelctl.core import events as ev
from kestrelctl.core.jobs.fair_share import Sharer
from kestrelctl.core.model.names import is_called
from kestrelctl.core.model.records import GroupRecord
from kestrelctl.core.model.worker.assets import natural
from kestrelctl.errors import NotAllowed, NotFound, UsageError
from kestrelctl.manager import views
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.requests.pending_answers import PendingAnswers
from kestrelctl.manager.rights import Handlers
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.views import GroupView, UserView

#: The most members of a group that are named in an answer.
MAX_NAMED = 100
#: An account: what an XMPP address may be, without a resource (RFC 7622).
_ACCOUNT = re.compile(r"[^\s@/\"&'<>:]{1,1023}@[^\s@/]{1,1023}")


class ShareRequests:
    """Lists users and groups, and sets users."""

    def __init__(self, service: Service, pending: PendingAnswers) -> None:
        self._service = service
        self._pending = pending

    def handlers(self) -> Handlers:
        """The methods that serve each kind of request."""
        return {
            rq.ListUsers: self.list_users,
            rq.ChangeUser: self.set_user,
            rq.ListGroups: self.list_groups,
        }

    async def list_users(self, caller: Caller, request: rq.ListUsers) -> None:
        found = sorted(self._service.pool.sharers.users(), key=lambda sharer: sharer.name)
        if not caller.sees(""):
            found = [sharer for sharer in found if sharer.name == caller.user]
        if request.user:
            if not (caller.sees("") or is_called(caller.user, request.user)):
                raise NotAllowed(f"what is set for {request.user} is not yours to see")
            found = [sharer for sharer in found if is_called(sharer.name, request.user)]
        standing = _Standing(self._service)
        lines = [standing.user(sharer, caller) for sharer in found if sharer.name > request.after]
        page = views.first_that_fit(lines)
        after = page[-1].user if len(page) < len(lines) else None
        caller.reply(an.Users(id=request.id, users=page, after=after))

    async def set_user(self, caller: Caller, request: rq.ChangeUser) -> None:
        account = self._meant(caller, request)
        if request.mail and not self._service.sends_mail:
            raise UsageError(
                "this pool sends no mail",
                cause="its manager knows no server for mail",
                hint="an admin of the pool starts it with --smtp (docs/operations.md)",
            )
        await self._pending.answer_to(
            lambda token: ev.SetUser(
                at=self._service.now(),
                cause=caller.jid,
                request=token,
                name=account,
                change=request.change,
                group=request.group,
                reset_usage=request.reset_usage,
                mail=request.mail,
                max_stored_bytes=request.max_stored_bytes,
                max_queued_bytes=request.max_queued_bytes,
            )
        )
        caller.reply(an.Changed(id=request.id, what=[account]))

    def _meant(self, caller: Caller, request: rq.ChangeUser) -> str:
        """Returns the account that a caller changes.

        If he says where he himself is sent mail, nobody else is looked for: it would tell who there
        is.
        """
        if not request.user or not request.objection(caller.user):
            return caller.user
        return self._account(request.user)

    def _account(self, name: str) -> str:
        """Finds the account that is meant: one that is known, or one that was never seen.

        Raises:
            UsageError: several users are called so, or nobody can be.
            NotFound: it is only a part of an account, and nobody known is called so.
        """
        name = name.lower()  # as the server does with accounts (RFC 7622)
        users = self._service.pool.sharers.users()
        known = sorted(sharer.name for sharer in users if is_called(sharer.name, name))
        if name in known:
            return name
        if len(known) > 1:
            raise UsageError(f"{name} is any of {', '.join(known[:5])}", hint="name one of them")
        if known:
            return known[0]
        if "@" not in name:
            hint = f"write the whole account, such as {name}@users.{self._service.domain}"
            raise NotFound(f"nobody is called {name[:80]} whom the pool has seen", hint=hint)
        if not _ACCOUNT.fullmatch(name):
            raise UsageError(f"{name[:80]!r} is no account", hint="an account is NAME@DOMAIN")
        return name

    async def list_groups(self, caller: Caller, request: rq.ListGroups) -> None:
        sharers = self._service.pool.sharers
        found = sharers.groups()
        if not caller.sees(""):
            own = sharers.find(caller.user)
            found = [record for record in found if own and record.name == own.record.group]
        if request.group:
            found = [record for record in found if record.name == request.group]
            if not found and not caller.sees(""):
                raise NotAllowed(f"what is set for group {request.group} is not yours to see")
        standing = _Standing(self._service)
        lines = [standing.group(record, caller) for record in found if record.name > request.after]
        page = views.first_that_fit(lines)
        after = page[-1].group if len(page) < len(lines) else None
        caller.reply(an.Groups(id=request.id, groups=page, after=after))


class _Standing:
    """The present standing of users and groups: one walk over the active jobs for all of them."""

    def __init__(self, service: Service) -> None:
        self._now = service.now()
        self._sharers = service.pool.sharers
        self._queued_bytes = service.pool.queued_bytes
        self._unfinished: Counter[str] = Counter()
        for job in service.pool.jobs:
            self._unfinished[job.owner] += job.remaining
        users = self._sharers.users()
        self._shares = sum(sharer.share for sharer in users if sharer.is_active) or 1.0

    def user(self, sharer: Sharer, caller: Caller) -> UserView:
        record = sharer.record
        return UserView(
            user=sharer.name,
            group=record.group,
            weight=record.weight,
            share=self._share(sharer),
            running=sharer.running,
            waiting=self._waiting(sharer),
            usage_seconds=self._usage(sharer),
            max_running=record.max_running,
            max_queued=record.max_queued,
            limits=natural(record.limits),
            mail=record.mail if caller.owns(sharer.name) else "",
            stored_bytes=sharer.stored.total_bytes,
            max_stored_bytes=sharer.stored.limit_bytes,
            queued_bytes=self._queued_bytes.of(sharer.name),
            max_queued_bytes=self._sharers.max_queued_bytes(sharer.name),
        )

    def group(self, record: GroupRecord, caller: Caller) -> GroupView:
        members = self._sharers.members(record.name)
        return GroupView(
            group=record.name,
            members=len(members),
            weight=record.weight,
            share=sum(map(self._share, members)),
            running=sum(member.running for member in members),
            waiting=sum(map(self._waiting, members)),
            usage_seconds=sum(map(self._usage, members)),
            max_running=record.max_running,
            max_queued=record.max_queued,
            limits=natural(record.limits),
            names=sorted(m.name for m in members if caller.sees(m.name))[:MAX_NAMED],
        )

    def _share(self, sharer: Sharer) -> float:
        return sharer.share / self._shares if sharer.is_active else 0.0

    def _waiting(self, sharer: Sharer) -> int:
        return max(0, self._unfinished[sharer.name] - sharer.running)

    def _usage(self, sharer: Sharer) -> float:
        return sharer.usage(self._now, self._sharers.half_life_seconds)
