"""Machines join a real pool with a token, and are thrown out again."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from daemons import Spawn
from jobkit import changed
from puppet import Puppet, run_job
from servers import Authority, encrypted_server

from kestrelctl.core.members.enrollment import Invitation
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError, NotAllowed, NotFound, Unreachable, Untrusted, UsageError
from kestrelctl.local.pool_state import PoolState
from kestrelctl.protocol import answers, requests
from kestrelctl.protocol.codec import encode
from kestrelctl.protocol.workers import NewAccount, Token, decode_token
from kestrelctl.worker import systemd_unit
from kestrelctl.worker.joined_pools import Membership, Settings
from kestrelctl.xmpp import xmpp_session
from kestrelctl.xmpp.accounts import Accounts
from kestrelctl.xmpp.joiner import join
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection

JOB_FOR_NEWCOMERS = JobSpec(program=Program(argv=("true",)), requires=("NEWCOMER",))


class Command:
    """`kestrelctl`, as it is called on a machine with a home of its own."""

    def __init__(self, home: Path, pool: PoolState) -> None:
        self.state = home / "state"
        (home / "config" / "kestrel").mkdir(parents=True)
        (home / "config" / "kestrel" / "config.toml").write_text(
            f'[context.lab]\njid = "{pool.user}"\npassword_file = "{pool.password_file}"\n'
            f'admin_jid = "{pool.admin}"\nadmin_password_file = "{pool.admin_password_file}"\n'
            f'pool = "{pool.domain}"\nhost = "{pool.host}"\nport = {pool.port}\ntls = false\n'
        )
        self._environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.state),
            "XDG_CONFIG_HOME": str(home / "config"),
        }

    async def start(self, *words: str, stdin: str = "") -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "kestrelctl", *words,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(stdin.encode())
        process.stdin.close()
        return process

    async def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        """Status, standard output and standard error."""
        process = await self.start(*words, stdin=stdin)
        return await end(process)


async def end(process: asyncio.subprocess.Process) -> tuple[int, str, str]:
    """Waits for a process to end by itself."""
    async with asyncio.timeout(30):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@asynccontextmanager
async def ended(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """The process is gone when the context ends."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            await end(process)


@pytest.fixture
def machine(tmp_path: Path, local_pool: PoolState) -> Callable[[str], Command]:
    """Makes a machine."""
    return lambda name: Command(tmp_path / name, local_pool)


async def enrolled(admin: UserConnection, pool: PoolState, name: str = "") -> Token:
    """A fresh token."""
    found = await admin.ask(requests.EnrollWorker(name=name))
    assert isinstance(found, answers.Enrolled)
    return Token(
        host=pool.host,
        port=pool.port,
        tls=False,
        pool=pool.domain,
        jid=found.jid,
        password=found.password,
    )


async def workers_called(user: UserConnection, name: str) -> list[answers.WorkerView]:
    found = await user.ask(requests.ListWorkers(names=[name]))
    assert isinstance(found, answers.Workers)
    return found.workers


async def test_the_whole_way_from_a_token_to_the_end(
    machine: Callable[[str], Command], user: UserConnection, local_pool: PoolState
) -> None:
    head, lab7 = machine("head"), machine("lab7")
    status, token, _ = await head.run("worker", "enroll", "-o", "quiet")
    assert status == 0
    assert decode_token(token).tls is False

    running = await lab7.start(
        "worker", "join", "-", "--name", "lab7", "--cpus", "1", "--tags", "newcomer", stdin=token
    )
    async with ended(running):
        job = await run_job(user, JOB_FOR_NEWCOMERS)
        assert (job.done, job.failed) == (1, 0)
        [worker] = await workers_called(user, "lab7")
        assert worker.worker.startswith(f"lab7@workers.{local_pool.domain}/")
        assert (worker.assets["cpus"], "NEWCOMER" in worker.tags) == (1.0, True)

        kept = lab7.state / "kestrel" / "workers" / local_pool.domain
        assert stat.S_IMODE((kept / "credentials").stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700
        status, _, err = await lab7.run("worker", "join", token.strip())
        assert status == UsageError.exit_status
        assert "has joined" in err

        status, out, _ = await head.run("worker", "revoke", "lab7")
        assert (status, out) == (0, "revoked worker lab7\n")
        status, _, err = await end(running)
    assert status == NotAllowed.exit_status
    assert "Account deleted" in err
    assert await workers_called(user, "lab7") == []
    _, out, _ = await head.run("pool", "events", "--worker", "lab7", "-o", "jsonl")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["kind"] for event in events] == ["join", "leave"]
    assert events[-1]["reason"] == f"revoked by {local_pool.admin}"

    status, _, err = await lab7.run("worker", "run")
    assert status == NotAllowed.exit_status
    assert "refused the credentials" in err
    assert await workers_called(user, "lab7") == []


async def test_a_worker_that_has_joined_starts_again_without_any_option(
    machine: Callable[[str], Command], user: UserConnection, admin: UserConnection
) -> None:
    head, lab8 = machine("head"), machine("lab8")
    _, out, _ = await head.run("worker", "enroll", "--name", "lab8", "-o", "json")
    token = json.loads(out)["token"]
    first = await lab8.start("worker", "join", token, "--cpus", "1", "--tags", "newcomer")
    async with ended(first):
        assert (await run_job(user, JOB_FOR_NEWCOMERS)).done == 1
    again = await lab8.start("worker", "run")
    async with ended(again):
        assert (await run_job(user, JOB_FOR_NEWCOMERS)).done == 1
    await admin.ask(requests.RevokeWorkers(names=["lab8"]))


async def test_a_running_task_of_a_revoked_worker_goes_to_another(
    machine: Callable[[str], Command], user: UserConnection, admin: UserConnection
) -> None:
    head = machine("head")
    processes = []
    for name in ("mill1", "mill2"):
        _, token, _ = await head.run("worker", "enroll", "--name", name, "-o", "quiet")
        words = ("worker", "join", "-", "--cpus", "1", "--tags", "newcomer")
        processes.append(await machine(name).start(*words, stdin=token))
    async with ended(processes[0]), ended(processes[1]):
        spec = changed(JOB_FOR_NEWCOMERS, argv=("sleep", "1"))
        await user.ask(requests.SubmitJob(spec=spec, watch=True))
        busy: list[str] = []
        async with asyncio.timeout(30):
            while not busy:
                busy = [w.worker for w in await workers_called(user, "mill") if w.running]
        await admin.ask(requests.RevokeWorkers(names=[busy[0]]))
        job = (await anext(aiter(user.pushed()))).job
        assert job.done == 1
        await admin.ask(
            requests.RevokeWorkers(names=[w.worker for w in await workers_called(user, "mill")])
        )


async def test_a_token_works_once(
    local_pool: PoolState, admin: UserConnection, user: UserConnection
) -> None:
    token = await enrolled(admin, local_pool)
    joined = await join(token, "once", ca_file=None)
    assert joined.jid == f"once@workers.{local_pool.domain}"
    with pytest.raises(NotAllowed, match="not valid any more") as refused:
        await join(token, "twice", ca_file=None)
    assert "worker enroll" in str(refused.value.hint)
    with pytest.raises(NotFound):
        await admin.ask(requests.RevokeWorkers(names=["twice"]))
    await admin.ask(requests.RevokeWorkers(names=["once"]))


async def test_of_many_that_use_a_token_at_the_same_time_one_wins(
    local_pool: PoolState, admin: UserConnection
) -> None:
    for _ in range(3):
        token = await enrolled(admin, local_pool)
        names = [f"racer{number}" for number in range(6)]
        found = await asyncio.gather(
            *(join(token, name, ca_file=None) for name in names), return_exceptions=True
        )
        winners = [each for each in found if isinstance(each, NewAccount)]
        assert len(winners) == 1
        assert [each for each in found if not isinstance(each, NewAccount | NotAllowed)] == []
        exist = []
        for name in names:
            try:
                await admin.ask(requests.RevokeWorkers(names=[name]))
                exist.append(f"{name}@workers.{local_pool.domain}")
            except NotFound:
                continue
        assert exist == [winners[0].jid]


async def test_an_expired_token_is_refused_and_its_account_deleted(
    local_pool: PoolState, admin: UserConnection
) -> None:
    """The account is put there by hand, because the shortest time a pool gives is a minute."""
    directory = Path(local_pool.password_file).parent
    server = PrivateServer(directory / "server", local_pool.domain, local_pool.port, 0, "")
    late = Invitation(int(time.time()) - 5, "late").account
    jid = f"{late}@{server.workers_domain}"
    token = Token(
        host=local_pool.host,
        port=local_pool.port,
        tls=False,
        pool=local_pool.domain,
        jid=jid,
        password=server.add_account(jid),
    )
    with pytest.raises(NotAllowed, match=r"expired at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"):
        await join(token, "tardy", ca_file=None)
    async with asyncio.timeout(10):
        while True:
            try:
                await admin.ask(requests.RevokeWorkers(names=[jid]))
            except NotFound:
                break
    with pytest.raises(NotAllowed, match="expired at"):
        await join(token, "tardy", ca_file=None)
    with pytest.raises(NotFound):
        await admin.ask(requests.RevokeWorkers(names=["tardy"]))


async def test_names(local_pool: PoolState, admin: UserConnection) -> None:
    token = await enrolled(admin, local_pool)
    with pytest.raises(UsageError, match="there is a worker w1 already"):
        await join(token, "w1", ca_file=None)
    with pytest.raises(UsageError, match="cannot begin with join-"):
        await join(token, "join-me", ca_file=None)
    with pytest.raises(UsageError, match="there is a worker w1 already") as refused:
        await enrolled(admin, local_pool, "w1")
    assert "revoke w1" in str(refused.value.hint)
    assert (await join(token, "free", ca_file=None)).jid.startswith("free@")

    fixed = await enrolled(admin, local_pool, "fixed")
    with pytest.raises(NotAllowed, match="for a worker called fixed, not other"):
        await join(fixed, "other", ca_file=None)
    assert (await join(fixed, "", ca_file=None)).jid.startswith("fixed@")
    await admin.ask(requests.RevokeWorkers(names=["free", "fixed"]))


async def test_only_an_admin_lets_machines_in_and_throws_them_out(
    user: UserConnection, admin: UserConnection
) -> None:
    with pytest.raises(NotAllowed, match="only an admin"):
        await user.ask(requests.EnrollWorker())
    with pytest.raises(NotAllowed, match="only an admin"):
        await user.ask(requests.RevokeWorkers(names=["w1"]))
    with pytest.raises(UsageError, match="30 days"):
        await admin.ask(requests.EnrollWorker(valid_seconds=31 * 86400.0))
    with pytest.raises(UsageError, match="no worker's account"):
        await admin.ask(requests.RevokeWorkers(names=["user@users.kestrel.localhost"]))
    with pytest.raises(NotFound):
        await admin.ask(requests.RevokeWorkers(names=["w"]))


async def test_a_token_can_be_withdrawn(local_pool: PoolState, admin: UserConnection) -> None:
    token = await enrolled(admin, local_pool)
    await admin.ask(requests.RevokeWorkers(names=[token.jid]))
    with pytest.raises(NotAllowed, match="not valid any more"):
        await join(token, "nobody", ca_file=None)


async def test_with_a_token_one_can_join_and_do_nothing_else(
    local_pool: PoolState, admin: UserConnection, user: UserConnection
) -> None:
    token = await enrolled(admin, local_pool)
    before = len(await workers_called(user, "@"))
    async with Puppet(local_pool, token.jid.partition("@")[0], "workers") as stranger:
        hello = '{"type":"hello","version":2,"incarnation":"x","ad":{"assets":{"cpus":64}}}'
        stranger.session.send(hello, f"pool@{local_pool.domain}")
        answer = await stranger.answer()
        assert answer["type"] == "refused"
        assert "can only join" in answer["reason"]
        submit = requests.SubmitJob(id="1", spec=JobSpec(program=Program(argv=("true",))))
        stranger.session.send(encode(submit), f"jobs@{local_pool.domain}")
        answer = await stranger.answer()
        assert (answer["type"], answer["code"]) == ("error", "not-allowed")
    assert len(await workers_called(user, "@")) == before
    await admin.ask(requests.RevokeWorkers(names=[token.jid]))


class SlowLogin:
    """A session that gets its address only when it is told to (RFC 6120, 6 and 7)."""

    def __init__(self, pool: PoolState, jid: str, password: str) -> None:
        self._pool = pool
        self._name, _, self._host = jid.partition("@")
        self._password = password

    async def begin(self) -> None:
        """Shows the password."""
        opened = await asyncio.open_connection(self._pool.host, self._pool.port)
        self._reader, self._writer = opened
        await self._open()
        secret = base64.b64encode(f"\0{self._name}\0{self._password}".encode()).decode()
        mechanism = "xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'"
        await self.say(f"<auth {mechanism}>{secret}</auth>", "<success")
        await self._open()

    async def _open(self) -> None:
        await self.say(
            f"<stream:stream xmlns='jabber:client' to='{self._host}' version='1.0'"
            " xmlns:stream='http://etherx.jabber.org/streams'>",
            "</stream:features>",
        )

    async def go_on(self) -> str:
        """Asks for a session, and returns the answer."""
        return await self.say(
            "<iq type='set' id='1'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>", "</iq>"
        )

    async def say(self, text: str, until: str) -> str:
        self._writer.write(text.encode())
        async with asyncio.timeout(10):
            return (await self._reader.readuntil(until.encode())).decode()

    async def end(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def test_an_account_revoked_while_it_logs_in_gets_no_session(
    local_pool: PoolState, admin: UserConnection
) -> None:
    joined = await join(await enrolled(admin, local_pool), "late", ca_file=None)
    token = await enrolled(admin, local_pool)
    worker = SlowLogin(local_pool, joined.jid, joined.password)
    stranger = SlowLogin(local_pool, token.jid, token.password)
    await worker.begin()
    await stranger.begin()
    await admin.ask(requests.RevokeWorkers(names=["late", token.jid]))
    assert "Account deleted" in await worker.go_on()
    assert "Account deleted" in await stranger.go_on()
    await worker.end()
    await stranger.end()


async def test_a_workers_account_cannot_join_again(local_pool: PoolState) -> None:
    async with Puppet(local_pool, "w77", "workers") as worker:
        worker.session.send('{"type":"join","version":2}', f"pool@{local_pool.domain}")
        assert (await worker.answer())["type"] == "refused"


async def test_on_a_network_the_token_brings_the_authority_along(
    tmp_path: Path, spawn: Spawn
) -> None:
    home = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "pool").mkdir()
    async with encrypted_server(tmp_path / "pool") as server:
        spawn(*server.manager_words())
        async with server.connect("root") as admin, server.connect("ada") as user:
            async with asyncio.timeout(30):
                while True:
                    with suppress(KestrelError):
                        answer = await admin.ask(requests.EnrollWorker(), timeout_seconds=2)
                        assert isinstance(answer, answers.Enrolled)
                        break
                    await asyncio.sleep(0.05)
            token = Token(
                host="127.0.0.1",
                port=server.private.client_port,
                pool=server.private.domain,
                jid=answer.jid,
                password=answer.password,
                ca=server.authority.file.read_text(),
            )
            strangers = Authority(tmp_path / "strangers")
            with pytest.raises(Untrusted):
                await join(token, "lab9", ca_file=strangers.file)
            words = ("--name", "lab9", "--cpus", "1", "--tags", "newcomer")
            spawn("worker", "join", token.encode(), *words, env=home)
            assert (await run_job(user, JOB_FOR_NEWCOMERS)).done == 1
            await admin.ask(requests.RevokeWorkers(names=["lab9"]))
            assert await workers_called(user, "lab9") == []


async def test_a_token_stays_good_while_the_manager_is_away(private_server: PrivateServer) -> None:
    jid = f"{Invitation(int(time.time()) + 60, 'word').account}@{private_server.workers_domain}"
    token = Token(
        host="127.0.0.1",
        port=private_server.client_port,
        tls=False,
        pool=private_server.domain,
        jid=jid,
        password=private_server.add_account(jid),
    )
    with pytest.raises(Unreachable, match="manager is not there"):
        await join(token, "early", ca_file=None)


@pytest.mark.parametrize("system", [True, False])
def test_systemd_understands_the_unit(tmp_path: Path, system: bool) -> None:
    found = Membership(tmp_path, "example.org")
    found.prepare("PEM")
    settings = Settings(
        pool="example.org",
        host="xmpp.example.org",
        port=5222,
        tls=True,
        tags=("a b", "50%", "$x"),
        shares=("/data/my 50% $x",),
    )
    file = tmp_path / systemd_unit.name_of("example.org")
    file.write_text(systemd_unit.unit_text(found, settings, system=system))
    words = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


async def test_a_server_that_gives_no_rights_is_told_of_with_what_to_configure(
    private_server: PrivateServer,
) -> None:
    online = asyncio.Event()

    class Listener:
        def on_online(self) -> None:
            online.set()

        def on_offline(self, why: str) -> None:
            """Of no interest, like all the rest."""

    component = xmpp_session.component(
        private_server.domain,
        private_server.secret,
        "127.0.0.1",
        private_server.component_port,
        Listener(),  # type: ignore[arg-type]
        tls=False,
    )
    component.start()
    await asyncio.wait_for(online.wait(), 10)
    try:
        other = Accounts(lambda: component, f"flock@{private_server.domain}")
        with pytest.raises(NotAllowed) as refused:
            await other.create(f"a@{private_server.workers_domain}", "secret")
        assert refused.value.cause == "the server answered: forbidden"
        assert f'admins = {{ "flock@{private_server.domain}" }}' in str(refused.value.hint)
        pool = Accounts(lambda: component, f"pool@{private_server.domain}")
        with pytest.raises(NotAllowed) as refused:
            await pool.create(f"a@{private_server.users_domain}", "secret")
        assert "admin_adhoc" in str(refused.value.hint)
        worker = f"a@{private_server.workers_domain}"
        assert await pool.create(worker, "se<&'\"cret")
        assert not await pool.create(worker, "again")
        for _ in range(2):
            await pool.delete(worker)
        assert not await pool.exists(worker)
    finally:
        await component.stop()
