"""A manager with all of its parts but the server, the disk and the clock: callers are played."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kestrel_worlds.memory_store import MemoryStore
from kestrelctl.core.pool import Pool
from kestrelctl.manager.access import Access
from kestrelctl.manager.accounts import TemporaryAccounts
from kestrelctl.manager.chat.disco import Disco
from kestrelctl.manager.chat.iq_requests import Answering, IqRequests
from kestrelctl.manager.listener import ManagerListener
from kestrelctl.manager.members.enrollment import EnrollmentRequests
from kestrelctl.manager.options import ManagerOptions
from kestrelctl.manager.requests.dispatch import RequestDispatcher
from kestrelctl.manager.requests.pool import Usage
from kestrelctl.manager.service import Service
from kestrelctl.protocol import answers, codec, directions, requests, workers
from kestrelctl.store.kept_text import TextFile
from kestrelctl.store.port import CoreStore, Reads

NOW = 1_795_190_000.0
#: What a store is to be asked for; the rest of `Reads` is at hand.
_READS = {name for name in dir(Reads) if name[0] != "_"} - {"damaged", "notes", "statistics"}
#: Turns of the loop after which everything that was said has been answered.
TURNS = 200


class AccountsThatWork:
    """The twin of `xmpp.accounts.Accounts` on a server that does what it is told."""

    def __init__(self) -> None:
        #: Hears which account is deleted, before it is.
        self.on_delete: Callable[[str], None] = lambda jid: None

    async def create(self, jid: str, password: str) -> bool:
        return True

    async def delete(self, jid: str) -> None:
        """It is gone, and so are its sessions."""
        self.on_delete(jid)

    async def exists(self, jid: str) -> bool:
        return False

    async def end_sessions(self, jid: str) -> None:
        """They are over."""


class FarStore:
    """A store as if it were behind a network.

    Attributes:
        is_far: set it to have reads fail that are not asked for, as these would block the loop.
        answers: clear it to have what is asked wait.
        trouble: the error with which every question ends; None if they are answered.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.is_far = False
        self.answers = asyncio.Event()
        self.answers.set()
        self.trouble: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        assert not (self.is_far and name in _READS), f"{name} blocks the event loop"
        return getattr(self._store, name)

    async def ask(self, question: Callable[[Any], Any]) -> Any:
        await self.answers.wait()
        if self.trouble is not None:
            raise self.trouble
        return await self._store.ask(question)


class PlayedManager:
    """A manager on a domain `pool`, whose admin is root.

    Args:
        store: a `QuickStore` where the test is about what people are shown; None for one in memory.

    Attributes:
        sent: (receiver, payload) of all that it has sent.
        chats: those of them that are chat messages.
        chat_senders: the addresses that these come from.
        now: seconds since the epoch, by the steady clock.
        wall_ahead_seconds: how far the machine's clock is set ahead of it.
    """

    def __init__(
        self, directory: Path, *, store: CoreStore | FarStore | None = None, **options: Any
    ) -> None:
        self.store: Any = store or MemoryStore()
        self.sent: list[tuple[str, str]] = []
        self.chats: list[tuple[str, str]] = []
        self.chat_senders: list[str | None] = []
        #: (to, kind, sender, show, status)
        self.presences: list[tuple[str, ...]] = []
        found = ManagerOptions(
            domain="pool",
            secret_file=Path("secret"),
            data_dir=directory,
            admins=("root@users.pool",),
            **options,
        )
        access = self.access = Access(found)
        self.now = NOW
        self.wall_ahead_seconds = 0.0
        clock: Any = SimpleNamespace(
            now=lambda: self.now, wall=lambda: self.now + self.wall_ahead_seconds
        )
        self.service = Service(Pool(self.store.open(), found.config()), self.store, "pool", clock)
        self.accounts = AccountsThatWork()
        accounts: Any = self.accounts
        enrollment = EnrollmentRequests(
            self.service, accounts, access, TemporaryAccounts(TextFile(directory / "invited"))
        )
        dispatcher = self.dispatcher = RequestDispatcher(
            self.service, enrollment, lambda: Usage(cpu_seconds=0.0, rss_bytes=0)
        )
        self.listener = ManagerListener(self.service, dispatcher, access, "pool")
        session: Any = SimpleNamespace(
            online=True,
            send=self._send,
            send_body=self._chat,
            send_presence=self._send_presence,
            backlog_bytes=lambda: 0,
            when_taken=lambda done: asyncio.get_running_loop().call_soon(done),
            refused=None,
        )
        self.service.session = self.listener.session = session
        self.listener.on_online()

    def _chat(self, text: str, to: str, sender: str | None = None) -> None:
        self.chats.append((to, text))
        self.chat_senders.append(sender)
        self._send(text, to, sender)

    def _send_presence(
        self, to: str, kind: str | None, sender: str, show: str = "", status: str = ""
    ) -> None:
        self.presences.append((to, kind or "", sender, show, status))

    def iqs(self, session: Answering) -> IqRequests:
        """What takes IQs, to be answered by that session."""
        found = Disco(self.service, self.listener.desk, self.listener.addresses)
        return IqRequests(self.service, self.dispatcher, self.access, found, session)

    def _send(self, text: str, to: str, _sender: str | None = None) -> None:
        self.sent.append((to, text))

    async def work(self, sender: str, message: workers.Message) -> None:
        """A worker says something."""
        self.listener.on_payload(sender, "pool@pool", codec.encode(message))
        await self.settled()

    async def ask(self, sender: str, request: requests.Request) -> str:
        """What exactly the sender is answered, as JSON."""
        before = len(self.sent)
        self.listener.on_payload(sender, "jobs@pool", codec.encode(request))
        await self.settled()
        found = [text for to, text in self.sent[before:] if to == sender]
        assert found, f"no answer to {request}"
        return found[-1]

    async def settled(self) -> None:
        """Whatever was said, has been answered and is durable.

        Twenty commits may follow each other at once. Those after them wait for each other.
        """
        await settled()
        while not (self.service.commits.idle or self.service.store_error):
            await settled()

    def told(self, whom: str) -> list[answers.AnyAnswer]:
        """All that a user was told, in order."""
        return [directions.answers.decode(text) for to, text in self.sent if to == whom]


async def settled() -> None:
    """Whatever was said, has been answered: nothing here takes time."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
