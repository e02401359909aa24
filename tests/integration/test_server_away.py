"""A real server that goes away and comes back, and a manager that comes after its users."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kestrelctl.protocol import answers, codec, directions, requests
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user


class Manager:
    """Answers whatever a user asks; the story says when it was there."""

    def __init__(self, server: PrivateServer, story: list[str]) -> None:
        self._story = story
        self._jobs = f"jobs@{server.domain}"
        self.session = xmpp_session.component(
            server.domain, server.secret, LOOPBACK, server.component_port, self, tls=False
        )

    def on_online(self) -> None:
        self._story.append("manager online")

    def on_offline(self, why: str) -> None:
        self._story.append("manager offline")

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        request_id = directions.requests.decode(payload).id
        answer = codec.encode(answers.Changed(id=request_id, what=[]))
        self.session.send(answer, sender, self._jobs)

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        """Nobody types here."""

    def on_bounce(self, sender: str, condition: str) -> None:
        """It was for somebody who has gone."""

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Of no interest."""


async def until_in(story: list[str], word: str) -> None:
    async with asyncio.timeout(30):
        while word not in story:
            await asyncio.sleep(0.01)


async def ask(user: UserConnection, story: list[str]) -> None:
    await user.ask(requests.DrainWorkers(names=["w"]))
    story.append("answered")


async def test_a_request_waits_for_the_manager_and_for_the_server(tmp_path: Path) -> None:
    story: list[str] = []
    server = PrivateServer.create(tmp_path / "xmpp")
    jid = f"ada@{server.users_domain}"
    password = server.add_account(jid)
    process = await asyncio.create_subprocess_exec(*server.command())
    manager = Manager(server, story)
    try:
        await server.wait_ready()
        async with connect_user(
            jid, password, server.domain, LOOPBACK, server.client_port, tls=False
        ) as user:
            returned, lost = user.on_bounce, user.on_offline

            def on_bounce(sender: str, condition: str) -> None:
                story.append("returned")
                returned(sender, condition)

            def on_offline(why: str) -> None:
                story.append("user offline")
                lost(why)

            user.on_bounce, user.on_offline = on_bounce, on_offline  # type: ignore[method-assign]
            asking = asyncio.ensure_future(ask(user, story))
            await until_in(story, "returned")
            manager.session.start()
            await asking
            first = [word for word in story if word != "returned"]
            assert first == ["manager online", "answered"]

            story.clear()
            process.kill()
            await process.wait()
            await until_in(story, "user offline")
            await until_in(story, "manager offline")
            asking = asyncio.ensure_future(ask(user, story))
            process = await asyncio.create_subprocess_exec(*server.command())
            await asking
            assert story[-1] == "answered"
            assert story.index("manager online") > story.index("manager offline")
    finally:
        await manager.session.stop()
        process.terminate()
        await process.wait()
