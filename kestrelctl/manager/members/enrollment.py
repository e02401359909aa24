"""Lets machines join, and takes workers' accounts away again.

`core.members.enrollment` decides who may join, and under which name.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine

from kestrelctl.clock import awake_or_asleep
from kestrelctl.core import events as ev
from kestrelctl.core.members.enrollment import admit, check_account, invite, parse_invitation, taken
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, Unreachable, UsageError
from kestrelctl.manager.access import Access, bare, host
from kestrelctl.manager.accounts import TemporaryAccounts, expires_at
from kestrelctl.manager.caller import Caller
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.workers import VERSION, Join, NewAccount, Refused, ToJoiner
from kestrelctl.timer import Timer
from kestrelctl.xmpp.accounts import Accounts

log = logging.getLogger(__name__)

#: Pause before another attempt to delete expired accounts that could not be deleted.
SWEEP_AGAIN_SECONDS = 60.0
#: The accounts that were taken away last: so many are remembered.
MOST_GONE = 10_000
_WORD_BYTES = 4
_PASSWORD_BYTES = 24


class EnrollmentRequests:
    """Serves those who enroll machines, join, and revoke accounts."""

    def __init__(
        self,
        service: Service,
        accounts: Accounts,
        access: Access,
        temporary_accounts: TemporaryAccounts,
    ) -> None:
        self._service = service
        self._accounts = accounts
        self._hosts = access.worker_hosts
        self._temporary_accounts = temporary_accounts
        #: Temporary accounts with which somebody joins or has joined: nobody else may, until they
        #: expire.
        self._used = set(temporary_accounts.used)
        #: Accounts that an earlier manager left behind; they are deleted as soon as possible.
        self._left_behind = set(temporary_accounts.used)
        #: Workers' accounts that are deleted or about to be -> who wants it. One that was just
        #: logging in may yet get a session: Prosody looks for the account when it sees the
        #: password, and not again.
        self._gone: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sweeping = Timer(self._sweep_soon)

    # -- admins ------------------------------------------------------------------------------------

    async def enroll(self, caller: Caller, request: rq.EnrollWorker) -> None:
        invited = await self.invite(request.name, request.valid_seconds)
        log.info("%s lets a machine join until %d, as %s", caller.jid, invited[2], invited[0])
        jid, password, expires_at = invited
        caller.reply(an.Enrolled(id=request.id, jid=jid, password=password, expires_at=expires_at))

    async def invite(self, name: str, valid_seconds: float) -> tuple[str, str, int]:
        """Makes a temporary account with which one machine may join.

        Args:
            name: the worker's; empty if the machine may choose.

        Returns:
            Its address, its password, and when it expires, in seconds since the epoch.

        Raises:
            UsageError: the name cannot be one of a worker, or it is taken.
            KestrelError: the server does not make it.
        """
        word = secrets.token_hex(_WORD_BYTES)
        invitation = invite(name, valid_seconds, awake_or_asleep(), word)
        home = self._hosts[0]
        if name and await self._accounts.exists(f"{name}@{home}"):
            raise taken(name)
        jid = f"{invitation.account}@{home}"
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        if not await self._accounts.create(jid, password):
            raise KestrelError(f"there is an account {jid} already", hint="try again")
        self._temporary_accounts.add(jid)
        self._sweep_soon()
        return jid, password, invitation.expires_at

    async def revoke(self, caller: Caller, request: rq.RevokeWorkers) -> None:
        workers = self._service.pool.workers
        jids = list(dict.fromkeys(jid for name in request.names for jid in self._called(name)))
        known = {bare(worker) for worker in workers}
        for jid in jids:
            if jid not in known and not await self._accounts.exists(jid):
                raise NotFound(
                    f"there is no worker with the account {jid}",
                    hint="whole names count, no parts; `kestrelctl worker list` shows all workers",
                )
        for jid in jids:
            await self.take_away(jid, caller.jid)
        caller.reply(an.Changed(id=request.id, what=jids))

    async def take_away(self, jid: str, by: str) -> None:
        """Deletes the account of a worker, or of a machine that has not joined, and ends it.

        Args:
            by: who wants it: an address.

        Raises:
            KestrelError: the server does not delete it.
        """
        is_temporary = parse_invitation(jid.partition("@")[0]) is not None
        if not is_temporary:
            # Before the server ends its session: that end is no failure then.
            self._gone[jid] = by
            if len(self._gone) > MOST_GONE:
                del self._gone[next(iter(self._gone))]
        try:
            await self._accounts.delete(jid)
        except KestrelError:
            self._gone.pop(jid, None)
            raise
        log.info("%s revoked %s", by, jid)
        if is_temporary:
            self._used.add(jid)
        self._temporary_accounts.discard(jid)
        for worker in [each for each in self._service.pool.workers if bare(each) == jid]:
            at = self._service.now()
            self._service.handle(ev.Revoked(at=at, cause=by, worker=worker, by=bare(by)))

    def _called(self, name: str) -> list[str]:
        """The workers' accounts of that name: those of known workers, or the one of that name."""
        account = bare(name)
        check_account(account.partition("@")[0])
        if "@" in account:
            if host(account) not in self._hosts:
                raise UsageError(f"{account} is no worker's account")
            return [account]
        known = {bare(jid) for jid in self._service.pool.workers}
        named = sorted(jid for jid in known if jid.partition("@")[0] == account)
        return named or [f"{account}@{self._hosts[0]}"]

    def revoked_by(self, worker: str) -> str:
        """Tells who had a worker's account deleted; empty if nobody, as far as is known."""
        return self._gone.get(bare(worker), "") if self._gone else ""

    def check(self, worker: str) -> None:
        """Makes such a worker log in again, which it can only if it has a new account."""
        self._spawn(self._check(bare(worker)))

    async def _check(self, account: str) -> None:
        try:
            await self._accounts.end_sessions(account)
            if await self._accounts.exists(account):
                self._gone.pop(account, None)
        except KestrelError as error:
            log.warning("%s is not checked: %s (%s)", account, error.message, error.cause)

    # -- machines ----------------------------------------------------------------------------------

    def join(self, sender: str, message: Join, reply: Callable[[ToJoiner], None]) -> None:
        """Answers a machine that has logged in with a temporary account."""
        self._spawn(self._join(sender, message, reply))

    async def _join(self, sender: str, message: Join, reply: Callable[[ToJoiner], None]) -> None:
        try:
            await self._admit(bare(sender), message, reply)
        except KestrelError as error:
            cause = f" ({error.cause})" if error.cause else ""
            log.warning("%s may not join: %s%s", sender, error.message, cause)
            reply(Refused(reason=error.message + cause, code=error.code, hint=error.hint or ""))
            self._sweep_soon()

    async def _admit(
        self, temporary: str, message: Join, reply: Callable[[ToJoiner], None]
    ) -> None:
        account, _, home = temporary.partition("@")
        invitation = parse_invitation(account)
        if invitation is None:
            raise NotAllowed(f"{temporary} was not made by this pool's manager")
        if temporary in self._used:
            raise NotAllowed("the token was used already, or withdrawn")
        if message.version != VERSION:
            raise UsageError(
                f"this pool speaks version {VERSION}, the machine {message.version}",
                hint="install the version that the pool's manager has",
            )
        self._temporary_accounts.add(temporary)
        name = admit(invitation, message.name, awake_or_asleep())
        self._temporary_accounts.note_use(temporary)
        self._used.add(temporary)
        jid = f"{name}@{home}"
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        try:
            if not await self._accounts.create(jid, password):
                raise taken(name)
        except KestrelError:
            self._used.discard(temporary)
            self._temporary_accounts.take_back_use(temporary)
            raise
        self._gone.pop(jid, None)
        log.info("%s has joined with %s", jid, temporary)
        # The answer goes first: deleting the temporary account ends its session.
        reply(NewAccount(jid=jid, password=password))
        await self._drop(temporary)

    # -- deleting temporary accounts ---------------------------------------------------------------

    def on_online(self) -> None:
        """Notes that the manager has a session, perhaps after a while without one."""
        self._sweep_soon()

    def _sweep_soon(self) -> None:
        self._spawn(self._sweep())

    async def _sweep(self) -> None:
        """Deletes temporary accounts that have expired or were used; plans when to look again."""
        for jid in {*self._temporary_accounts.expired(awake_or_asleep()), *self._left_behind}:
            await self._drop(jid)
        self._used = {jid for jid in self._used if expires_at(jid) > awake_or_asleep()}
        self._sweeping.stop()
        at = self._temporary_accounts.next_at()
        if at is not None:
            pause = at - awake_or_asleep()
            self._sweeping.set(pause if pause > 0 else SWEEP_AGAIN_SECONDS)

    async def _drop(self, temporary: str) -> None:
        try:
            await self._accounts.delete(temporary)
        except KestrelError as error:
            level = logging.DEBUG if isinstance(error, Unreachable) else logging.WARNING
            log.log(level, "%s is not deleted: %s (%s)", temporary, error.message, error.cause)
            return
        self._temporary_accounts.discard(temporary)
        self._left_behind.discard(temporary)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
