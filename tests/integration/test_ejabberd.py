"""A pool whose XMPP server is ejabberd: what `docs/servers.md` says of it."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from daemons import KESTRELCTL, Spawn, answering, until
from ejabberd_server import EncryptedEjabberd, debian_with_ejabberd, encrypted_ejabberd
from servers import DOMAIN, Authority

from kestrelctl.errors import Untrusted
from kestrelctl.protocol import codec
from kestrelctl.protocol.chat.body import JUST_TEXT, ChatMarks
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.brief_user import connect_briefly
from kestrelctl.xmpp.login import account_login
from kestrelctl.xmpp.prosody import LOOPBACK

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def debian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian with ejabberd, in a folder."""
    root = tmp_path_factory.mktemp("debian") / "root"
    debian_with_ejabberd(root)
    return root


@pytest.fixture
async def server(debian: Path, tmp_path: Path) -> AsyncIterator[EncryptedEjabberd]:
    """A running ejabberd without accounts."""
    async with encrypted_ejabberd(tmp_path, debian) as found:
        yield found


class Manager:
    """Where the manager would be: hears what comes back."""

    def __init__(self, server: EncryptedEjabberd, heard: list[tuple[str, str]]) -> None:
        self._heard = heard
        self.session = xmpp_session.component(
            DOMAIN, server.private.secret, LOOPBACK, server.tls_port, self,
            tls=True, ca_file=server.authority.file,
        )  # fmt: skip

    def on_online(self) -> None:
        """Of no interest."""

    def on_offline(self, why: str) -> None:
        """Of no interest."""

    def on_payload(self, sender: str, to: str, payload: str) -> None:
        """Nobody asks here."""

    def on_body(self, sender: str, to: str, body: str, marks: ChatMarks = JUST_TEXT) -> None:
        """Nobody types here."""

    def on_bounce(self, sender: str, condition: str) -> None:
        self._heard.append((sender, condition))

    def on_presence(self, sender: str, to: str, kind: str) -> None:
        """Of no interest."""


class Desk:
    """The command line of a user of the pool."""

    def __init__(self, server: EncryptedEjabberd, directory: Path, name: str = "ada") -> None:
        homes = dict.fromkeys(("XDG_CONFIG_HOME", "XDG_STATE_HOME"), str(directory))
        self._environment = {**os.environ, **homes, "KESTREL_POOL": "net"}
        self._directory = directory / "kestrel"
        self._directory.mkdir()
        jid = f"{name}@users.{DOMAIN}"
        self.has_password(server.private.add_account(jid))
        (self._directory / "config.toml").write_text(
            f'[context.net]\njid = "{jid}"\npassword_file = "password"\npool = "{DOMAIN}"\n'
            f'host = "127.0.0.1"\nport = {server.private.client_port}\n'
            f'ca_file = "{server.authority.file}"\n'
        )

    def has_password(self, password: str) -> None:
        (self._directory / "password").write_text(password)

    async def types(self, *words: str, status: int = 0) -> str:
        """What a command prints, which ends with this status."""
        done = await asyncio.to_thread(
            subprocess.run, [*KESTRELCTL, *words], text=True, env=self._environment, timeout=100,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == status, done.stdout
        return done.stdout

    async def jobs(self) -> list[dict[str, Any]]:
        """What the pool tells of each job."""
        found: list[dict[str, Any]] = json.loads(await self.types("-o", "json", "job", "list"))
        return found

    async def until_a_worker_is_there(self) -> None:
        async with asyncio.timeout(60):
            while not json.loads(await self.types("-o", "json", "worker", "list")):
                pass

    async def until_tasks_run(self) -> None:
        """Returns when all tasks of the first job run."""
        async with asyncio.timeout(60):
            while True:
                job = (await self.jobs())[0]
                if job["running"] == job["tasks"]:
                    return


async def test_a_batch_of_tasks_ends_well(
    server: EncryptedEjabberd, tmp_path: Path, spawn: Spawn
) -> None:
    spawn(*server.manager_words())
    spawn(*server.worker_words("w1"))
    desk = Desk(server, tmp_path)
    said = await desk.types("submit", "--wait", "--array", "1-20", "--", "echo", "number", "{}")
    assert "job 1 done: 20 tasks" in said
    (job,) = await desk.jobs()
    assert job["done"] == 20
    assert "number 17" in await desk.types("job", "logs", "1", "--all")
    assert (
        f"Accepted c2s SCRAM-SHA-256 authentication for w1@workers.{DOMAIN}" in server.private.log
    )


@pytest.mark.parametrize(
    ("mechanism", "how"),
    [
        ("SCRAM-SHA-256", {}),
        ("SCRAM-SHA-1", {"scram_hash": "sha"}),
        ("PLAIN", {"without": ("SCRAM-SHA-1", "SCRAM-SHA-256", "SCRAM-SHA-512")}),
    ],
)
async def test_an_account_logs_in_by_the_best_of_what_is_offered(
    debian: Path, tmp_path: Path, mechanism: str, how: dict[str, Any]
) -> None:
    async with encrypted_ejabberd(tmp_path, debian, **how) as server, server.connect("ada"):
        said = f"Accepted c2s {mechanism} authentication for ada@users.{DOMAIN}"
        await until(lambda: said in server.private.log)
        jid = f"grace@users.{DOMAIN}"
        password, ca_file = server.private.add_account(jid), server.authority.file
        login = account_login(jid, password, "127.0.0.1", tls=True, ca_file=ca_file)
        async with connect_briefly(DOMAIN, login, "127.0.0.1", server.private.client_port):
            await until(lambda: said.replace("ada@", "grace@") in server.private.log)


@pytest.mark.parametrize(
    ("other", "version"), [("no_tlsv1_3", "TLSv1.2"), ("no_tlsv1_2", "TLSv1.3")]
)
async def test_both_versions_of_tls_will_do(
    debian: Path, tmp_path: Path, other: str, version: str
) -> None:
    async with (
        encrypted_ejabberd(tmp_path, debian, tls=(other,)) as server,
        server.connect("ada") as user,
    ):
        stream = user.session._stream
        assert stream is not None
        assert stream.transport is not None
        assert stream.transport.get_extra_info("ssl_object").version() == version


async def test_a_wrong_password_is_said_to_be_one(
    server: EncryptedEjabberd, tmp_path: Path
) -> None:
    desk = Desk(server, tmp_path)
    desk.has_password("guessed")
    assert "the server refused the login" in await desk.types("pool", "status", status=4)


async def test_a_server_that_is_not_to_be_trusted_is_not_told_a_password(
    debian: Path, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    async with encrypted_ejabberd(tmp_path, debian) as server:
        with pytest.raises(Untrusted, match="not trusted"):
            async with server.connect("ada", other.file):
                pass
        server.private.certify(server.authority, expired=True)
        await server.private.restart()
        with pytest.raises(Untrusted, match="not valid now"):
            async with server.connect("ada"):
                pass
        server.private.certify(server.authority, "elsewhere.internal")
        await server.private.restart()
        with pytest.raises(Untrusted, match="has no certificate for"):
            async with server.connect("ada"):
                pass
    assert "Accepted c2s" not in server.private.log


async def test_a_restart_of_the_server_loses_nothing(
    server: EncryptedEjabberd, tmp_path: Path, spawn: Spawn
) -> None:
    spawn(*server.manager_words())
    spawn(*server.worker_words("w1"), "--isolation", "plain")
    desk, go = Desk(server, tmp_path), tmp_path / "go"
    waits = f"while [ ! -e {go} ]; do sleep 0.1; done"
    await desk.types("submit", "--array", "1-2", "--", "sh", "-c", waits)
    await desk.until_tasks_run()
    await server.private.restart()
    go.touch()
    await desk.types("job", "wait", "1")
    (job,) = await desk.jobs()
    assert (job["done"], job["failed"]) == (2, 0)
    tasks = json.loads(await desk.types("-o", "json", "job", "tasks", "1"))
    assert [task["losses"] for task in tasks] == [0, 0]


async def test_a_session_that_the_server_ends_comes_back(server: EncryptedEjabberd) -> None:
    async with server.connect("ada") as user:
        heard: list[str] = []
        user.on_offline = heard.append  # type: ignore[method-assign]
        server.private.does("kick_user", user="ada", host=f"users.{DOMAIN}")
        await until(lambda: heard)
        assert "it ended the connection with <policy-violation/> (has been kicked)" in heard[0]
        await until(lambda: user.session.online)


async def test_a_session_that_answers_no_more_is_ended_and_one_that_does_is_not(
    debian: Path, tmp_path: Path
) -> None:
    async with (
        encrypted_ejabberd(tmp_path, debian, ping_seconds=1) as server,
        server.connect("ada") as user,
    ):
        heard: list[str] = []
        asked: list[Element] = []
        user.on_offline = heard.append  # type: ignore[method-assign]
        answers = user.session._take_iq

        def take(xml: Element) -> None:
            asked.append(xml)
            if len(asked) <= 3:
                answers(xml)

        user.session._take_iq = take  # type: ignore[method-assign]
        await until(lambda: heard, 60)
        assert len(asked) > 3


async def test_the_largest_payload_arrives(server: EncryptedEjabberd) -> None:
    payload = "\N{PILE OF POO}" * (codec.MAX_PAYLOAD_BYTES // 4 - 1)
    assert codec.fits(payload)
    async with server.connect("ada") as user:
        heard: list[str] = []
        user.on_payload = lambda sender, to, said: heard.append(said)  # type: ignore[method-assign]
        user.session.send(payload, user.session.address)
        await until(lambda: heard)
        assert heard == [payload]


async def test_what_programs_say_comes_back_from_who_has_gone_and_words_wait_for_people(
    server: EncryptedEjabberd,
) -> None:
    gone = {f"ada@users.{DOMAIN}/gone", f"w1@workers.{DOMAIN}/gone"}
    for jid in gone:
        server.private.add_account(jid.partition("/")[0])
    heard: list[tuple[str, str]] = []
    manager = Manager(server, heard)
    manager.session.start()
    await until(lambda: manager.session.online)
    for jid in gone:
        manager.session.send("{}", jid, f"jobs@{DOMAIN}")
    await until(lambda: {sender for sender, _ in heard} == gone)
    assert {condition for _, condition in heard} == {"service-unavailable"}
    manager.session.send_body("it has ended", f"ada@users.{DOMAIN}", f"jobs@{DOMAIN}")
    kept = {"user": "ada", "host": f"users.{DOMAIN}"}
    await until(lambda: server.private.does("get_offline_count", **kept) == 1)
    await manager.session.stop()


async def test_a_request_that_is_too_large_for_the_server_is_not_sent_again(
    debian: Path, tmp_path: Path, spawn: Spawn
) -> None:
    items = tmp_path / "items.json"
    items.write_text(json.dumps(["x" * 1000] * 400))
    async with encrypted_ejabberd(tmp_path, debian, max_stanza_bytes=65536) as server:
        spawn(*server.manager_words())
        desk = Desk(server, tmp_path)
        submit = ("submit", "--from-json", str(items), "--", "echo", "{}")
        said = await desk.types(*submit, status=1)
        assert "error: the server does not take what it was sent" in said
        assert "XML stanza is too big" in said
        assert "no answer came" not in said
        assert await desk.jobs() == []


async def test_a_person_has_the_pool_among_the_contacts_and_writes_to_it(
    server: EncryptedEjabberd, spawn: Spawn
) -> None:
    spawn(*server.manager_words())
    jobs = f"jobs@{DOMAIN}"
    async with server.connect("ada") as user:
        await answering(user)
        seen: list[tuple[str, str]] = []
        words: list[str] = []
        user.on_presence = lambda sender, to, kind: seen.append((sender, kind))  # type: ignore[method-assign]
        user.on_body = lambda sender, to, body, marks=JUST_TEXT: words.append(body)  # type: ignore[method-assign]
        user.session._put("<presence/>")
        user.session.send_presence(jobs, "subscribe")
        await until(lambda: (jobs, "available") in seen, 60)
        user.session.send_body("help", jobs)
        await until(lambda: words, 60)
        assert "I run jobs" in words[0]


async def test_files_travel_by_the_servers_share(
    server: EncryptedEjabberd, tmp_path: Path, spawn: Spawn
) -> None:
    spawn(*server.manager_words())
    spawn(*server.worker_words("w1"))
    desk = Desk(server, tmp_path)
    given, come = tmp_path / "given.txt", tmp_path / "come"
    given.write_text("a line\n" * 100_000)
    await desk.types(
        "submit", "--input", str(given), "--keep", "*.gz", "--fetch", str(come),
        "--", "sh", "-c", "gzip <given.txt >come.gz",
    )  # fmt: skip
    (found,) = come.rglob("*.gz")
    assert gzip.decompress(found.read_bytes()) == given.read_bytes()


async def test_workers_accounts_are_made_and_deleted_at_the_server_alone(
    server: EncryptedEjabberd, tmp_path: Path, spawn: Spawn
) -> None:
    spawn(*server.manager_words())
    worker = spawn(*server.worker_words("w1"))
    root = Desk(server, tmp_path, "root")
    await root.until_a_worker_is_there()
    for words in (("enroll",), ("enroll", "--name", "w2"), ("revoke", "w1")):
        said = await root.types("worker", *words, status=4)
        assert f"the manager may not administrate the accounts of workers.{DOMAIN}" in said
    server.private.does("unregister", user="w1", host=f"workers.{DOMAIN}")
    _, errors = await asyncio.to_thread(worker.communicate, timeout=60)
    assert worker.returncode == 4
    assert "the worker was refused" in errors
