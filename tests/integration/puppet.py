"""Somebody who talks to a real pool: as it should be done, or in any other way."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers, requests
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.protocol.codec import JSON_NAMESPACE
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection

#: How long a login may take on a machine that does something else, too.
LOGIN_SECONDS = 60.0


class Puppet:
    """A bare session that sends whatever it is told and keeps what comes back.

    Args:
        password: of an account that is there; empty for a new one.
    """

    def __init__(
        self,
        state: PoolState,
        name: str,
        host: str,
        ca_file: Path | None = None,
        password: str = "",
    ) -> None:
        directory = Path(state.password_file).parent
        server = PrivateServer(directory / "server", state.domain, state.port, 0, "")
        self.jid = f"{name}@{host}.{state.domain}"
        self._online = asyncio.Event()
        self.received: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self.chat: asyncio.Queue[str] = asyncio.Queue()
        self.offline: asyncio.Queue[str] = asyncio.Queue()
        self.session = xmpp_session.client(
            self.jid,
            password or server.add_account(self.jid),
            state.host,
            state.port,
            self,
            tls=ca_file is not None,
            ca_file=ca_file,
        )

    def on_online(self) -> None:
        self._online.set()

    def on_offline(self, why: str) -> None:
        self.offline.put_nowait(why)

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        self.received.put_nowait((sender, json.loads(payload)))

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        self.chat.put_nowait(body)

    def on_bounce(self, sender: str, condition: str) -> None:
        self.received.put_nowait((sender, {"bounced": condition}))

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Of no interest."""

    async def __aenter__(self) -> Puppet:
        self.session.start()
        await asyncio.wait_for(self._online.wait(), LOGIN_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.stop()

    def shout(self, payload: str, to: str) -> None:
        """Sends a payload of any size, and as it stands: nothing in it is escaped."""
        container = f"<json xmlns='{JSON_NAMESPACE}'>{payload}</json>"
        stream = self.session._stream
        assert stream is not None
        stream.write(f"<message to='{to}'>{container}</message>")

    async def answer(self, seconds: float = 10.0) -> dict[str, Any]:
        """The next message that comes."""
        return (await asyncio.wait_for(self.received.get(), seconds))[1]


async def run_job(user: UserConnection, spec: JobSpec, seconds: float = 90.0) -> answers.JobView:
    """Submits a job and waits for its end."""
    await user.ask(requests.SubmitJob(spec=spec, watch=True))
    async with asyncio.timeout(seconds):
        async for ended in user.pushed():
            return ended.job
    raise AssertionError("unreachable")
