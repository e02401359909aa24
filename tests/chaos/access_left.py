"""What somebody who leaves may still hold beside an account: tokens, workers, places for files.

They were an admin, or had one do it for them: machines have joined by their tokens, and a token
is unused. Whoever runs the pool takes both back by `worker revoke`, as the operators' page says.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

from attacked import Attacked
from half_login import Refused, log_in_by_half
from puppet import Puppet

from kestrelctl.core.model.share_change import ShareChange
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import KestrelError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import codec, workers
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.upload_slots import Slot
from kestrelctl.protocol.workers import Join
from kestrelctl.xmpp.slots import request_slot

#: The server takes an upload that begins within this time after its place was given.
SLOT_SECONDS = 300.0
#: Of places that are tried after that time, so many are remembered.
MOST_SLOTS = 50
_SLOTS = 3
_BYTES = b"after the end"
#: What nobody but an admin may ask.
FOR_ADMINS: tuple[rq.AnyRequest, ...] = (
    rq.EnrollWorker(),
    rq.RevokeWorkers(names=["w1"]),
    rq.ChangeUser(user="abel", change=ShareChange(weight=0.001)),
    rq.ChangeUser(user="", change=ShareChange(weight=1000.0)),
    rq.ChangeUser(user="", group="chosen"),
    rq.ChangeGroup(name="chosen", change=ShareChange(weight=1000.0)),
    rq.RemoveGroup(name="chosen"),
    rq.SetAsset(name="matlab", total=0),
)


@dataclass(frozen=True)
class Key:
    """What opens an account of a worker, or lets a machine join.

    Attributes:
        jid: of the account.
    """

    jid: str
    password: str


class AccessLeft:
    """What one person has, and what must not open anything when it was taken back."""

    def __init__(self, attacked: Attacked) -> None:
        self._attacked = attacked
        self._number = 0
        self._keys: list[Key] = []
        #: Places that were asked for, and when; those of which something was sent are gone.
        self._slots: list[tuple[float, Slot]] = []
        self._fresh: list[Slot] = []
        self.worker: Puppet

    @property
    def _domain(self) -> str:
        return self._attacked.pool.state.domain

    async def gather(self, person: Puppet) -> None:
        """A worker joins for a person, a token is left over, and places for files are given."""
        self._number += 1
        used, unused = await self._token(), await self._token()
        own = await self._join(used)
        self._keys = [used, unused, own]
        self.worker = self._as_worker(own)
        await self.worker.__aenter__()
        hello = workers.Hello(version=workers.VERSION, incarnation="i", greeting=1, ad=WorkerAd())
        self.worker.session.send(codec.encode(hello), f"pool@{self._domain}")
        self._fresh = [
            await request_slot(person.session, self._domain, len(_BYTES), "late")
            for _ in range(_SLOTS)
        ]
        self._slots += [(time.monotonic(), slot) for slot in self._fresh[1:]]
        del self._slots[:-MOST_SLOTS]

    async def take_back(self) -> None:
        """Revokes the worker and the unused token, as an admin."""
        _, unused, own = self._keys
        words = ("worker", "revoke", own.jid, unused.jid, "--pool", "asking")
        status, told = await self._attacked.command(*words)
        if status:
            self._attacked.found(f"{own.jid} and {unused.jid} are not revoked: {told}")
        self._attacked.counts["workers revoked"] += 1

    async def try_all(self) -> None:
        """Nothing of it opens anything any more."""
        try:
            await asyncio.wait_for(self.worker.offline.get(), self._attacked.patience_seconds)
        except TimeoutError:
            self._attacked.found(f"the session of {self._keys[2].jid} goes on after its end")
        await self.worker.__aexit__()
        for key in self._keys:
            await self._is_shut(key)
        await self._sends_once(self._fresh[0])
        over = time.monotonic() - 1.1 * SLOT_SECONDS
        for given_at, slot in list(self._slots):
            if given_at < over:
                self._slots.remove((given_at, slot))
                if await asyncio.to_thread(_sent, slot):
                    self._attacked.found(f"a place is used {SLOT_SECONDS} s later: {slot.put_url}")
                self._attacked.counts["old places refused"] += 1

    async def _sends_once(self, slot: Slot) -> None:
        """A place that was given before the end takes one file, and never another."""
        if await asyncio.to_thread(_sent, slot):
            self._attacked.counts["places used after the end"] += 1
        if await asyncio.to_thread(_sent, slot):
            self._attacked.found(f"a place takes two files: {slot.put_url}")

    async def _is_shut(self, key: Key) -> None:
        try:
            login = await log_in_by_half(self._attacked.pool.state.port, key.jid, key.password)
        except Refused:
            self._attacked.counts["workers' passwords refused"] += 1
        else:
            login.close()
            self._attacked.found(f"{key.jid} can be used after it was revoked")

    async def _token(self) -> Key:
        made = await self._attacked.ask(rq.EnrollWorker(), an.Enrolled)
        return Key(made.jid, made.password)

    async def _join(self, token: Key) -> Key:
        async with self._as_worker(token) as machine:
            join = Join(version=workers.VERSION, name=f"own{self._number}")
            machine.session.send(codec.encode(join), f"pool@{self._domain}")
            told = await machine.answer(self._attacked.patience_seconds)
        if told.get("type") != "joined":
            raise AssertionError(f"a machine may not join: {told}")
        return Key(told["jid"], told["password"])

    def _as_worker(self, key: Key) -> Puppet:
        name = key.jid.partition("@")[0]
        return Puppet(self._attacked.pool.state, name, "workers", password=key.password)


async def gets_a_place(person: Puppet, domain: str) -> bool:
    """Whether a session is given a place for a file."""
    try:
        await request_slot(person.session, domain, len(_BYTES), "late")
    except KestrelError:
        return False
    return True


def _sent(slot: Slot) -> bool:
    """Whether the share takes a file at a place."""
    request = urllib.request.Request(
        slot.put_url, data=_BYTES, headers=dict(slot.headers), method="PUT"
    )
    try:
        with urllib.request.urlopen(request, timeout=60.0) as answer:
            return bool(answer.status < 300)
    except urllib.error.HTTPError:
        return False
