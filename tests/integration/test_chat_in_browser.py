"""A person with the chat client Converse.js in a browser, which reaches the pool by WebSocket."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import Page, browsing
from converse import bring, served
from daemons import Spawn, until
from servers import Authority, running

from kestrelctl.xmpp.prosody import PrivateServer, free_ports

#: As the role `xmpp_server` writes it, if a port for browsers is given.
_WEBSOCKET = """\
http_ports = {{ }}
https_ports = {{ {port} }}
https_interfaces = {{ "127.0.0.1" }}
http_default_host = "127.0.0.1"
ssl = {{ certificate = "{directory}/server.crt"; key = "{directory}/server.key" }}
VirtualHost"""

FIELD = "textarea.chat-textarea"


@dataclass(frozen=True)
class WebPool:
    """A pool whose users' accounts are reached by WebSocket too."""

    server: PrivateServer
    url: str


@pytest.fixture
async def web_pool(tmp_path: Path, spawn: Spawn) -> AsyncIterator[WebPool]:
    server = PrivateServer.create(tmp_path / "server")
    (port,) = free_ports(1)
    Authority(tmp_path / "authority").issue(server.directory, "127.0.0.1")
    file = server.directory / "prosody.cfg.lua"
    options = _WEBSOCKET.format(port=port, directory=server.directory)
    text = re.sub(r"^https?_ports = .*\n", "", file.read_text(), flags=re.MULTILINE)
    text = text.replace("VirtualHost", options, 1)
    text = text.replace('"roster", "disco"', '"websocket", "roster", "disco"')
    file.write_text(text.replace("disco_items", 'http_host = "127.0.0.1"\n    disco_items'))
    (tmp_path / "secret").write_text(server.secret)
    worker = f"w1@{server.workers_domain}"
    (tmp_path / "credentials").write_text(f"{worker} {server.add_account(worker)}\n")
    (tmp_path / "credentials").chmod(0o600)
    async with running(server):
        log = tmp_path / "manager.log"
        with log.open("w") as stderr:
            spawn(
                "manager", "run", "--domain", server.domain, "--secret-file", tmp_path / "secret",
                "--port", server.component_port, "--data-dir", tmp_path / "manager",
                stderr=stderr,
            )  # fmt: skip
        spawn(
            "worker", "run", "--pool", server.domain, "--credentials", tmp_path / "credentials",
            "--port", server.client_port, "--cpus", "2", "--no-tls",
            "--data-dir", tmp_path / "worker",
        )  # fmt: skip
        # Whoever subscribes to the pool before hears that it is not there, and asks no more.
        await until(lambda: "connected to the server" in log.read_text(), 30.0)
        yield WebPool(server, f"wss://127.0.0.1:{port}/xmpp-websocket")


@pytest.fixture
async def page(
    web_pool: WebPool, tmp_path: Path, pytestconfig: pytest.Config
) -> AsyncIterator[Page]:
    directory = bring(pytestconfig.cache.mkdir("converse"))
    (tmp_path / "page").mkdir()
    settings = {
        "websocket_url": web_pool.url, "discover_connection_methods": False,
        "view_mode": "fullscreen", "assets_path": "/package/dist/", "i18n": "en",
        "clear_cache_on_logout": True, "loglevel": "warn",
    }  # fmt: skip
    with served(directory, tmp_path / "page", **settings) as url:
        async with browsing(tmp_path / "profile") as page:
            await page.open(url)
            yield page


class Converse:
    """What a person does with the client, by mouse and keyboard."""

    def __init__(self, page: Page) -> None:
        self.page = page

    async def log_in(self, jid: str, password: str) -> None:
        await self.page.types("input[name=jid]", jid)
        await self.page.enters("input[name=password]", password)
        await self.sees("I am online")

    async def adds(self, contact: str) -> None:
        await self.clicks("converse-roster .add-contact")
        # The form takes the focus when it has faded in, wherever that was put before.
        await self.page.until(
            "document.activeElement.closest('converse-add-contact-modal') !== null"
        )
        await self.page.enters("converse-add-contact-modal input[name=jid]", contact)
        await self.page.until(f"document.querySelector({self._entry(contact)!r}) !== null")

    async def shows(self, contact: str, state: str) -> None:
        """Waits until a contact is shown so."""
        item = f"document.querySelector({self._entry(contact)!r})?.closest('li').dataset.status"
        await self.page.until(f"{item} === {state!r}")

    async def clicks(self, selector: str) -> None:
        await self.page.until(f"document.querySelector({selector!r}) !== null")
        await self.page.evaluate(f"document.querySelector({selector!r}).click()")

    async def opens(self, contact: str) -> None:
        await self.clicks(self._entry(contact))

    async def writes(self, text: str) -> None:
        await self.page.enters(FIELD, text)

    async def corrects(self, text: str) -> None:
        """Writes something else in the place of the latest message."""
        await self.page.presses(FIELD, "ArrowUp", 38)
        await self.page.until(f"document.querySelector({FIELD!r}).value !== ''")
        await self.writes(text)

    async def sees(self, pattern: str) -> re.Match[str]:
        """Waits until the page shows that."""
        shown = f"document.body.innerText.match({json.dumps(pattern)}) !== null"
        await self.page.until(shown)
        found = re.search(pattern, await self.text())
        assert found
        return found

    async def text(self) -> str:
        return str(await self.page.evaluate("document.body.innerText"))

    @staticmethod
    def _entry(contact: str) -> str:
        return f'a.open-chat[data-jid="{contact}"]'


@pytest.mark.timeout(60)
async def test_a_job_from_converse(web_pool: WebPool, page: Page) -> None:
    server, ada = web_pool.server, Converse(page)
    jid, jobs = f"ada@{server.users_domain}", f"jobs@{server.domain}"
    await ada.log_in(jid, server.add_account(jid))
    await ada.adds(jobs)
    await ada.shows(jobs, "online")

    await ada.opens(jobs)
    await ada.writes("help")
    await ada.sees("I run jobs. Write one of:")
    await ada.writes("submit --array 1-5 -- sh -c 'sleep 1; echo number {}'")
    job_id = (await ada.sees(r"Job (\d+): 5 tasks of sh -c 'sleep 1; echo number \{\}'"))[1]
    job = f"job-{job_id}@{server.domain}"
    await ada.adds(job)
    await ada.writes("status")
    await ada.sees("1 worker: 1 (busy|idle)")
    await ada.sees(f"job {job_id} done: 5 done, 0 failed in ")
    await ada.writes(f"logs {job_id} 3")
    await ada.sees(r"\bnumber 3\b")
    await ada.shows(job, "xa")
    text = await ada.text()
    assert text.count(f"job {job_id} done") == 1
    assert f"Kestrel job {job_id}\n" in text  # the name that the client shows and keeps
    assert "error" not in text.lower()
    assert [line for line in page.console if "Uncaught" in line] == []


@pytest.mark.timeout(60)
async def test_lines_and_corrections_from_converse(web_pool: WebPool, page: Page) -> None:
    server, ada = web_pool.server, Converse(page)
    jid, jobs = f"ada@{server.users_domain}", f"jobs@{server.domain}"
    await ada.log_in(jid, server.add_account(jid))
    await ada.adds(jobs)
    await ada.shows(jobs, "online")
    await ada.opens(jobs)

    await ada.writes("> which one?\nsubmit --notify never -- echo “say “hi””\njob last?")
    await ada.sees(r"Job 1: 1 task of echo 'say \"hi\"'")
    await ada.sees(r"Job 1[^\n]*\bdone")

    await ada.writes("statsu")
    await ada.sees('I do not know "statsu"')
    await ada.corrects("status")
    await ada.sees("under way: ")
    await ada.writes("submit --notify never -- true")
    await ada.sees("Job 2: 1 task of true")
    await ada.corrects("submit --notify never -- false")
    await ada.sees("This corrects a message that may have been acted upon")
    assert "Job 3" not in await ada.text()
