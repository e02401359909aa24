"""A person with any chat program, who knows nothing but words, on a real pool."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from daemons import Spawn
from slixmpp import ClientXMPP

from kestrelctl.local.pool_state import PoolState
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer

#: A manager that dies when a job has durably ended and its owner is to be told.
DIES_BEFORE_IT_TELLS = """
import os, signal
from kestrelctl.cli.main import main
from kestrelctl.manager.chat.notices import Notices

def die(self, ended):
    os.kill(os.getpid(), signal.SIGKILL)

Notices._on_job_ended = die
main()
"""
#: A manager whose server takes the message, and which dies before it can note that.
DIES_BEFORE_IT_NOTES = DIES_BEFORE_IT_TELLS.replace("_on_job_ended", "_on_taken")


class Person:
    """An ordinary client: it says that it is there, and exchanges chat messages with the pool."""

    def __init__(self, server: PrivateServer, name: str) -> None:
        self._server = server
        self.jid = f"{name}@{server.users_domain}"
        self._password = server.add_account(self.jid)
        self.heard: asyncio.Queue[str] = asyncio.Queue()

    @asynccontextmanager
    async def online(self) -> AsyncIterator[None]:
        """For as long as the context lasts."""
        session = ClientXMPP(self.jid, self._password, sasl_mech="PLAIN")
        session.plugin["feature_mechanisms"].unencrypted_plain = True
        session.enable_direct_tls = session.enable_starttls = False
        session.enable_plaintext = True
        started = asyncio.Event()
        session.add_event_handler("session_start", lambda _: started.set())
        session.add_event_handler("message", self._hear)
        await session.connect(LOOPBACK, self._server.client_port)
        async with asyncio.timeout(10):
            await started.wait()
        session.send_presence()
        self._session = session
        yield
        await session.disconnect()

    def _hear(self, message: object) -> None:
        assert message["type"] == "chat", str(message)  # type: ignore[index]
        assert str(message["from"]) == f"jobs@{self._server.domain}"  # type: ignore[index]
        self.heard.put_nowait(str(message["body"]))  # type: ignore[index]

    async def hears(self, seconds: float = 20.0) -> str:
        return await asyncio.wait_for(self.heard.get(), seconds)

    def says(self, text: str) -> None:
        self._session.send_message(f"jobs@{self._server.domain}", text, mtype="chat")

    async def asks(self, text: str) -> str:
        self.says(text)
        return await self.hears()


def server_of(state: PoolState) -> PrivateServer:
    directory = Path(state.password_file).parent
    return PrivateServer(directory / "server", state.domain, state.port, 0, "")


def job_in(text: str) -> int:
    found = re.search(r"[Jj]ob (\d+)", text)
    assert found, text
    return int(found[1])


async def test_words_are_enough(local_pool: PoolState) -> None:
    ada = Person(server_of(local_pool), "ada")
    async with ada.online():
        assert "submit -- command" in await ada.asks("Help!")
        assert "--array" in await ada.asks("help submit")
        assert "2 workers" in await ada.asks("status")
        answer = await ada.asks("submit —name “two words” --array 1-3 -- sh -c 'echo number {}'")
        job_id = job_in(answer)
        assert "3 tasks of sh -c 'echo number {}'" in answer
        assert (await ada.hears()).startswith(
            f'job {job_id} "two words" done: 3 done, 0 failed in '
        )
        assert "3 done" in await ada.asks(f"job {job_id}")
        assert await ada.asks(f"logs {job_id} 2") == "number 2"
        assert f"{job_id} " in await ada.asks("jobs")
        assert (await ada.asks(f"cancel {job_id}")).startswith(f"It is over: job {job_id} ")

        answer = await ada.asks("submit --notify never --max-running 1 -- sleep 600")
        job_id = job_in(answer)
        assert "do not tell" in answer
        assert await ada.asks(f"cancel {job_id}") == f"Cancelled job {job_id}: 1 task stopped."
        assert await ada.asks("submit “oops") == (
            "A quote is left open, or a \\ stands at the end.\n"
            "Close it; to mean the character itself, write \\' or \\\" or \\\\"
        )
        assert '"code":"usage"' in await ada.asks("{not json")
        assert '"type":"pool"' in await ada.asks(' {"type": "pool_status"}')

    bob = Person(server_of(local_pool), "bob")
    async with bob.online():
        for word in ("job", "cancel", "explain", "logs"):
            answer = await bob.asks(f"{word} {job_id}")
            assert answer.startswith(f"There is no job {job_id} of yours."), word
        assert (await bob.asks("jobs")).startswith("You have no jobs.")


async def test_who_was_away_is_told_when_he_is_back(local_pool: PoolState) -> None:
    eve = Person(server_of(local_pool), "eve")
    async with eve.online():
        failing = job_in(await eve.asks("submit --notify failures -- sh -c 'sleep 1; exit 3'"))
        quiet = job_in(await eve.asks("submit --notify failures -- sleep 1"))
    await asyncio.sleep(3)
    assert eve.heard.empty()
    async with eve.online():
        told = await eve.hears()
        assert told.startswith(f"job {failing} failed: 0 done, 1 failed in ")
        assert told.endswith(f"logs {failing} 0")
        assert "exit code 3" in await eve.asks(f"job {failing}")
        assert f"{quiet} done: 1 done" in await eve.asks(f"job {quiet}")
        assert eve.heard.empty()


@pytest.mark.parametrize(
    ("dies", "most"), [(DIES_BEFORE_IT_TELLS, 1), (DIES_BEFORE_IT_NOTES, 2)], ids=["tells", "notes"]
)
async def test_who_is_to_be_told_is_told_by_the_next_manager(
    private_server: PrivateServer, spawn: Spawn, tmp_path: Path, dies: str, most: int
) -> None:
    (tmp_path / "secret").write_text(private_server.secret)
    words = [
        "manager", "run", "--domain", private_server.domain, "--secret-file",
        str(tmp_path / "secret"), "--port", str(private_server.component_port),
        "--data-dir", str(tmp_path / "data"),
    ]  # fmt: skip
    ada = Person(private_server, "ada")
    dying = await asyncio.create_subprocess_exec(
        sys.executable, "-c", dies, *words, stderr=subprocess.DEVNULL
    )
    try:
        async with ada.online():
            async with asyncio.timeout(20):
                while not await is_up(ada):
                    await asyncio.sleep(0.05)
            assert "Job 1: 1 task of true" in await ada.asks("submit -- true")
            ada.says("cancel 1")
            await asyncio.wait_for(dying.wait(), 20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            dying.kill()
        await dying.wait()
    spawn(*words)
    found = []
    async with ada.online():
        async with asyncio.timeout(20):
            while not await is_up(ada, found):
                await asyncio.sleep(0.05)
        while not ada.heard.empty():
            found.append(ada.heard.get_nowait())
    ends = [text for text in found if text.startswith("job 1 cancelled: 0 done, 0 failed, 1 ")]
    assert 1 <= len(ends) <= most


async def is_up(person: Person, others: list[str] | None = None) -> bool:
    """Whether the manager answers; what else is heard is put to the others."""
    person.says("status")
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1):
            while (text := await person.heard.get()) and "workers" not in text.lower():
                if others is not None:
                    others.append(text)
            return True
    return False
