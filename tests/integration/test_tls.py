"""A pool on a network: everything encrypted, and nobody taken for somebody else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from daemons import KESTRELCTL, Spawn, spawning, until
from puppet import Puppet, run_job
from servers import DOMAIN, Authority, EncryptedServer, encrypted_server

from kestrelctl.access.connection import ask, open_briefly
from kestrelctl.at_once import at_once
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError, NotAllowed, Untrusted, UsageError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.codec import encode
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user

Says = Callable[[list[str], str], Awaitable[None]]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedServer]:
    """Server, manager and one worker, every connection encrypted."""
    server = encrypted_server(tmp_path_factory.mktemp("pool"))
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())
        found = runner.run(server.__aenter__())
        stack.callback(lambda: runner.run(server.__aexit__(None, None, None)))
        spawn = stack.enter_context(spawning())
        spawn(*found.manager_words())
        spawn(*found.worker_words("w1"))
        runner.run(has_worker(found))
        yield found


@pytest.fixture
async def user(pool: EncryptedServer) -> AsyncIterator[UserConnection]:
    async with pool.connect("ada") as connection:
        yield connection


async def has_worker(server: EncryptedServer) -> None:
    """Returns when a worker is ready."""
    async with asyncio.timeout(30), server.connect("operator") as user:
        while True:
            try:
                status = await user.ask(rq.PoolStatus(), timeout_seconds=2)
                if isinstance(status, an.PoolSummary) and status.workers.get("idle"):
                    return
            except KestrelError:
                pass  # the manager is not there yet
            await asyncio.sleep(0.05)


@pytest.fixture
def daemon(spawn: Spawn, tmp_path: Path) -> Says:
    """Starts a daemon, waits until its log has the pattern, and sees that the daemon goes on."""

    async def says(words: list[str], pattern: str) -> None:
        log = tmp_path / "log"
        with log.open("w") as opened:
            process = spawn(*words, stderr=opened)
        await until(lambda: re.search(pattern, log.read_text()))
        assert process.poll() is None

    return says


# -- all is well -----------------------------------------------------------------------------------


async def test_a_job_runs_in_a_pool_without_a_plain_connection(user: UserConnection) -> None:
    job = await run_job(user, JobSpec(program=Program(argv=("true",)), count=20))
    assert job.done == 20


async def test_tasks_learn_nothing_of_the_service_manager(
    pool: EncryptedServer, user: UserConnection, spawn: Spawn, tmp_path: Path
) -> None:
    told = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "CREDENTIALS_DIRECTORY")
    words = [*pool.worker_words("service"), "--tags", "service", "--isolation", "plain"]
    spawn(*words, env={**os.environ, **dict.fromkeys(told, "1")})
    out = tmp_path / "environment"
    spec = JobSpec(program=Program(argv=("/bin/sh", "-c", f"env > {out}")), requires=("service",))
    assert (await run_job(user, spec)).done == 1
    names = {line.partition("=")[0] for line in out.read_text().splitlines()}
    assert "KESTREL_TASK_ID" in names
    assert not names & set(told)


def test_commands_of_a_moment_need_no_event_loop(
    pool: EncryptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(pool, tmp_path, pool.authority.file, "submit", "--wait", "--", "echo", "hello")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr("asyncio.new_event_loop", lambda: pytest.fail("there is a loop"))

    async def work() -> tuple[an.Jobs, an.Log]:
        async with open_briefly("net") as connection:
            jobs = await ask(connection, rq.ListJobs(), an.Jobs)
            newest = str(jobs.jobs[-1].job_id)
            return jobs, await ask(connection, rq.Logs(job=newest), an.Log)

    jobs, log = at_once(work())
    assert jobs.jobs[-1].done == 1
    assert log.data == b"hello\n"


def test_the_command_line_finds_the_pool_and_the_authority_in_the_configuration(
    pool: EncryptedServer, tmp_path: Path
) -> None:
    status = command(pool, tmp_path, pool.authority.file, "-o", "json", "pool", "status")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["workers"]["idle"] >= 1


def command(
    pool: EncryptedServer, home: Path, ca_file: Path | None, *words: str
) -> subprocess.CompletedProcess[str]:
    """Runs a command of a user who has configured the pool."""
    directory = home / "kestrel"
    directory.mkdir(exist_ok=True)
    jid = f"grace@users.{DOMAIN}"
    (directory / "password").write_text(pool.private.add_account(jid))
    ca_line = f'ca_file = "{ca_file}"' if ca_file else ""
    (directory / "config.toml").write_text(
        f'[context.net]\njid = "{jid}"\npassword_file = "password"\npool = "{DOMAIN}"\n'
        f'host = "127.0.0.1"\nport = {pool.private.client_port}\n{ca_line}\n'
    )
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home), "KESTREL_POOL": "net"}
    return subprocess.run(
        [*KESTRELCTL, *words], capture_output=True, text=True, env=environment, timeout=30
    )


# -- the wrong server ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["pool status", "job list"])
def test_a_server_of_an_unknown_authority_is_refused_at_once(
    pool: EncryptedServer, tmp_path: Path, words: str
) -> None:
    status = command(pool, tmp_path, None, *words.split())
    assert status.returncode == 10
    assert status.stderr.splitlines()[0] == "error: the server's certificate is not trusted"
    assert f"see [context.net] in {tmp_path}/kestrel/config.toml" in status.stderr
    assert len(status.stderr.splitlines()) == 3


async def test_a_server_of_another_authority_is_refused(
    pool: EncryptedServer, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    with pytest.raises(Untrusted, match="not trusted") as caught:
        async with pool.connect("ada", other.file):
            pass
    assert caught.value.hint == f"is {other.file} the CA of this pool?"


async def test_daemons_say_that_they_do_not_trust_a_server_and_go_on_trying(
    pool: EncryptedServer, daemon: Says, tmp_path: Path
) -> None:
    other = Authority(tmp_path / "other")
    words = pool.manager_words(ca_file=other.file)
    words[words.index("--data-dir") + 1] = str(tmp_path / "manager")
    said = "the server's certificate is not trusted .*is .* the CA of this pool"
    await daemon(words, said)
    await daemon(pool.worker_words("doubts", ca_file=other.file), said)


async def test_a_certificate_for_other_names_is_refused(daemon: Says, tmp_path: Path) -> None:
    async with encrypted_server(tmp_path, "elsewhere.internal", "127.0.0.1") as server:
        with pytest.raises(Untrusted, match=r"has no certificate for users\.pool\.internal"):
            async with server.connect("ada"):
                pass
        said = "the server has no certificate for "
        await daemon(server.manager_words(), said + DOMAIN)
        await daemon(server.worker_words("w1"), f"{said}workers.{DOMAIN}")


async def test_an_expired_certificate_is_refused_until_it_is_renewed(
    daemon: Says, tmp_path: Path
) -> None:
    async with encrypted_server(tmp_path, expired=True) as server:
        with pytest.raises(Untrusted, match="not valid now") as caught:
            async with server.connect("ada"):
                pass
        assert caught.value.cause == "certificate has expired"
        said = "certificate is not valid now .certificate has expired"
        await daemon(server.manager_words(), said)
        await daemon(server.worker_words("w1"), said)
        server.renew()
        async with asyncio.timeout(20):
            while True:
                try:
                    async with server.connect("ada"):
                        break
                except Untrusted:
                    await asyncio.sleep(0.1)
        await has_worker(server)


# -- nothing in the clear --------------------------------------------------------------------------


async def test_a_server_that_wants_encryption_says_so_to_whom_comes_without(
    pool: EncryptedServer,
) -> None:
    with pytest.raises(UsageError, match="encrypted connections only") as caught:
        async with connect_user(
            f"ada@users.{DOMAIN}", "x", DOMAIN, "127.0.0.1", pool.private.client_port, tls=False
        ):
            pass
    assert "--no-tls" in str(caught.value.hint)


async def test_a_server_that_offers_no_encryption_gets_no_password(
    private_server: PrivateServer,
) -> None:
    jid = f"ada@{private_server.users_domain}"
    password = private_server.add_account(jid)
    with pytest.raises(Untrusted, match="offers no encryption"):
        async with connect_user(
            jid, password, private_server.domain, "127.0.0.1", private_server.client_port, tls=True
        ):
            pass


def test_a_manager_sends_its_secret_nowhere_in_the_clear(
    pool: EncryptedServer, spawn: Spawn
) -> None:
    words = pool.manager_words()
    words[words.index("--host") + 1] = "192.0.2.1"
    words[words.index("--tls")] = "--no-tls"
    words[words.index("--data-dir") + 1] += "-2"
    manager = spawn(*words)
    _, errors = manager.communicate(timeout=15)
    assert manager.returncode == 2
    assert "the secret would go to 192.0.2.1 in the clear" in errors


async def test_a_manager_at_a_port_without_tls_says_so(pool: EncryptedServer, daemon: Says) -> None:
    words = pool.manager_words()
    words[words.index("--port") + 1] = str(pool.private.component_port)
    words[words.index("--data-dir") + 1] += "-3"
    await daemon(words, "the server does not speak TLS there; is the port right")


# -- who is who ------------------------------------------------------------------------------------


def test_an_unknown_account_cannot_join(pool: EncryptedServer, spawn: Spawn) -> None:
    words = pool.worker_words("nobody", password="guessed")
    worker = spawn(*words)
    _, errors = worker.communicate(timeout=15)
    assert worker.returncode == 4
    assert "the worker was refused" in errors


async def test_a_workers_account_cannot_submit(pool: EncryptedServer) -> None:
    async with pool.connect("w99", host="workers") as worker:
        with pytest.raises(NotAllowed):
            await worker.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",)))))


async def test_nobody_cancels_anothers_job_under_any_name(
    pool: EncryptedServer, user: UserConnection
) -> None:
    submitted = await user.ask(rq.SubmitJob(spec=JobSpec(program=Program(argv=("sleep", "60")))))
    assert isinstance(submitted, an.Submitted)
    job = str(submitted.job_id)
    cancel = encode(rq.CancelJobs(id="1", jobs=job))
    async with Puppet(pool.state(), "mallory", "users", pool.authority.file) as mallory:
        for forged in (None, f"ada@users.{DOMAIN}", f"root@users.{DOMAIN}"):
            mallory.session.send(cancel, f"jobs@{DOMAIN}", sender=forged)
            answer = await mallory.answer()
            assert (answer["type"], answer["code"]) == ("error", "not-allowed"), forged
    cancelled = await user.ask(rq.CancelJobs(jobs=job))
    assert isinstance(cancelled, an.Changed)
    assert cancelled.tasks == 1
