"""Somebody who is taken out of the pool, does not want to go, and comes back under the same name.

The account is closed as the roles close it: by their module for accounts, and by the two commands
that cancel what is active; what they let join is revoked. A local server has no port for
`prosodyctl`, so it is given one first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import psutil
from access_left import FOR_ADMINS, AccessLeft
from attacked import NAME, Attacked
from half_login import BIND, HalfLogin, Refused, log_in_by_half
from puppet import Puppet

from kestrelctl.core.model.job.after import After
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec, Notify
from kestrelctl.local.pool_state import pool_directory
from kestrelctl.protocol import codec
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer

ACCOUNTS = Path(__file__).parents[2] / "roles/xmpp_server/library/prosody_account.py"
#: They go, and some of them come back.
PEOPLE = ("carol", "dave")
#: As in the role's `people.yml`.
BATCH = 1000
#: After the last cancellation, whatever was on its way must have come by then.
AFTERMATH_SECONDS = 3.0
#: Between two requests of somebody who sends as fast as he may.
PAUSE_SECONDS = 0.003
#: What a task of the removed sleeps: nobody else's does, so it tells whose a process is.
_FOREVER = 40_000_000
_MODULES = 'modules_enabled = { "saslauth"'


class RemovedPerson:
    """One who goes, round after round."""

    def __init__(self, attacked: Attacked, dice: Random) -> None:
        self._attacked = attacked
        self._dice = dice
        self._round = 0
        self._server_pid = 0
        self._asked = 0
        self._left = AccessLeft(attacked)
        self._passwords: dict[str, list[str]] = {name: [] for name in PEOPLE}

    @property
    def _directory(self) -> Path:
        return pool_directory(NAME)

    async def attack(self) -> None:
        """Is there, and busy; is closed; and tries all the same."""
        await self._open_the_servers_port()
        self._round += 1
        name = self._dice.choice(PEOPLE)
        jid = f"{name}@users.{self._attacked.pool.state.domain}"
        server = PrivateServer(
            self._directory / "server", self._attacked.pool.state.domain, 0, 0, ""
        )
        password = server.add_account(jid)
        self._configure(jid, password)
        await self._attacked.submit_innocent(3, 0.2)
        mark = str(_FOREVER + self._round)
        await self._comes(jid, name, password, mark)
        self._passwords[name].append(password)
        async with self._busy(name, password, mark) as (flooder, quiet, half, command):
            await asyncio.sleep(self._dice.choice((0.0, 0.3, 1.0)))
            await self._close(jid)
            await self._left.take_back()
            await self._cancel_all(jid)
            await self._until(
                lambda: not flooder.session.online and not quiet.session.online,
                f"sessions of {jid} go on after the account was closed",
            )
            await self._tries_half(half, jid)
            status, _ = await self._attacked.end(command, "submit", "of", jid)
            self._attacked.counts[f"its command ended with {status}"] += 1
        await self._left.try_all()
        await self._nothing_is_left(jid, mark)
        await self._knocks(jid, name)
        if self._dice.random() < 0.5:
            await self._comes_back(server, jid, name)
            await self._close(jid)
            await self._cancel_all(jid)

    # -- while the account is there ----------------------------------------------------------------

    async def _comes(self, jid: str, name: str, password: str, mark: str) -> None:
        """Does what keeps a pool busy for long."""
        sleeps = ("sleep", mark)
        specs = (
            JobSpec(program=Program(argv=sleeps), count=3, notify=Notify.ALWAYS, service=True),
            JobSpec(
                program=Program(argv=sleeps, outputs=("o",), keep_logs=True),
                count=2,
            ),
            JobSpec(program=Program(argv=("true",)), count=2_000, held=True),
            JobSpec(
                program=Program(argv=("false",)), count=5, max_failures=1_000, backoff_seconds=0.1
            ),
        )
        async with self._session(name, password) as puppet:
            to = f"jobs@{self._attacked.pool.state.domain}"
            first = 0
            for spec in specs:
                told = await self._asks(puppet, to, rq.SubmitJob(spec=spec))
                if "job_id" not in told:
                    raise AssertionError(f"{jid} may not submit {spec}: {told}")
                first = int(told["job_id"])
            waits = JobSpec(program=Program(argv=("true",)), after=(After(first, first),))
            await self._asks(puppet, to, rq.SubmitJob(spec=waits, watch=True))
            await self._asks(puppet, to, rq.ChangeUser(user="", mail=f"{name}@example.org"))
            for body in ("jobs", f"why {first}", "help"):
                puppet.session.send_body(body, to)

    @contextlib.asynccontextmanager
    async def _busy(
        self, name: str, password: str, mark: str
    ) -> AsyncIterator[tuple[Puppet, Puppet, HalfLogin, asyncio.subprocess.Process]]:
        """Sends without end in one session, listens in another, begins a third, and types."""
        state = self._attacked.pool.state
        jid = f"{name}@users.{state.domain}"
        async with self._session(name, password) as flooder, self._session(name, password) as quiet:
            await self._left.gather(quiet)
            await self._is_no_admin(quiet)
            quiet.session.send_presence(f"pool@{state.domain}", "subscribe")
            upload = rq.UploadItems(id="u", upload="u", lines=["a"] * 10)
            quiet.session.send(codec.encode(upload), f"jobs@{state.domain}")
            half = await log_in_by_half(state.port, jid, password)
            file = self._attacked.directory / "input"
            file.write_text("x" * 200_000)
            command = await self._attacked.start(
                "submit", "--pool", name, "--input", str(file), "--keep", "o", "--wait",
                "--", "sleep", mark,
            )  # fmt: skip
            flood = asyncio.create_task(self._floods(flooder, mark))
            try:
                yield flooder, quiet, half, command
            finally:
                flood.cancel()
                await asyncio.gather(flood, return_exceptions=True)
                half.close()
                with contextlib.suppress(ProcessLookupError):
                    command.kill()

    async def _floods(self, puppet: Puppet, mark: str) -> None:
        to = f"jobs@{self._attacked.pool.state.domain}"
        number = 0
        while True:
            number += 1
            key = f"f{self._round}-{number}"
            spec = JobSpec(
                program=Program(argv=("sleep", mark)), count=self._dice.choice((1, 1, 500))
            )
            request = self._dice.choice(
                (
                    rq.SubmitJob(id=key, spec=spec, key=key),
                    rq.SubmitJob(id=key, spec=spec),
                    rq.ReleaseJobs(id=key, jobs="all"),
                    rq.RetryJobs(id=key, jobs="all"),
                    rq.ListJobs(id=key),
                )
            )
            puppet.session.send(codec.encode(request), to)
            self._attacked.counts["requests"] += 1
            await asyncio.sleep(PAUSE_SECONDS)

    # -- as the roles do it ------------------------------------------------------------------------

    async def _open_the_servers_port(self) -> None:
        """Has the server, which is started anew, listen to `prosodyctl shell`."""
        state = self._attacked.pool.state
        if state.server_pid == self._server_pid:
            return
        configuration = self._directory / "server/prosody.cfg.lua"
        text = configuration.read_text()
        if "admin_shell" not in text:
            configuration.write_text(
                text.replace(_MODULES, _MODULES.replace("{", '{ "admin_shell",'), 1)
            )
            old = state.server_pid
            psutil.Process(old).kill()
            await self._until(
                lambda: self._attacked.pool.state.server_pid not in (0, old),
                "the server does not come back",
            )
        self._server_pid = self._attacked.pool.state.server_pid
        programs = self._attacked.directory / "bin"
        programs.mkdir(exist_ok=True)
        program = programs / "prosodyctl"
        path = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin:/usr/bin"
        program.write_text(
            f"#!/bin/sh\nexec {shutil.which('prosodyctl', path=path)} "
            f'--config {configuration} "$@"\n'
        )
        program.chmod(0o755)
        await self._until(
            lambda: (self._directory / "server/data/prosody.sock").exists(),
            "the server has no port for prosodyctl",
        )

    async def _close(self, jid: str) -> None:
        """Deletes the account and ends its sessions."""
        arguments = {"absent": [jid], "data_path": str(self._directory / "server/data")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(ACCOUNTS),
            env={**os.environ, "PATH": f"{self._attacked.directory}/bin:{os.environ['PATH']}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        told, _ = await process.communicate(json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
        said: dict[str, Any] = json.loads(told.decode().splitlines()[-1])
        if said.get("removed") != [jid] or said.get("failed"):
            self._attacked.found(f"{jid} is not closed: {said}")
        self._attacked.counts["accounts closed"] += 1

    async def _cancel_all(self, jid: str) -> None:
        """Cancels what is active of somebody, a batch at a time."""
        ids = await self._active(jid)
        for start in range(0, len(ids), BATCH):
            ranges = ",".join(f"{job}-{job}" for job in ids[start : start + BATCH])
            status, told = await self._attacked.command("job", "cancel", ranges, "--pool", "asking")
            if status:
                self._attacked.found(f"jobs of {jid} are not cancelled: {told}")

    async def _active(self, jid: str) -> list[str]:
        status, told = await self._attacked.command(
            "job", "list", "--state", "active", "--limit", "0", "-o", "quiet",
            "--where", f"member(Owner, {{{json.dumps(jid)}}})", "--pool", "asking",
        )  # fmt: skip
        if status:
            self._attacked.found(f"jobs of {jid} are not listed: {told}")
            return []
        return [line for line in told.splitlines() if line.isdecimal()]  # and a summary

    # -- afterwards --------------------------------------------------------------------------------

    async def _tries_half(self, half: HalfLogin, jid: str) -> None:
        """Who has given the password before the end begins no session after it."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # it was closed
            answer = await half.say(BIND, "</iq>")
            if "not-authorized" not in answer:
                self._attacked.found(f"{jid} has a session after the account was closed: {answer}")

    async def _nothing_is_left(self, jid: str, mark: str) -> None:
        await asyncio.sleep(AFTERMATH_SECONDS)
        if left := await self._active(jid):
            self._attacked.found(f"jobs of {jid} are active, who is gone: {left[:10]}")
        await self._until(
            lambda: not _running(mark), f"tasks of {jid} run, who is gone: {_running(mark)[:3]}"
        )

    async def _knocks(self, jid: str, name: str) -> None:
        """No password of one who has gone opens anything."""
        domain = self._attacked.pool.state.domain
        accounts = (jid, f"abel@users.{domain}", f"w1@workers.{domain}")
        for account in accounts:
            await self._may_not_come_in(account, self._passwords[name][-1])

    async def _may_not_come_in(self, jid: str, password: str) -> None:
        try:
            (await log_in_by_half(self._attacked.pool.state.port, jid, password)).close()
        except Refused:
            self._attacked.counts["old passwords refused"] += 1
        else:
            self._attacked.found(f"a password of one who is gone opens {jid}")

    async def _comes_back(self, server: PrivateServer, jid: str, name: str) -> None:
        """Somebody gets the same name: nothing goes on by itself, and old passwords stay old."""
        password = server.add_account(jid)
        for old in self._passwords[name][-3:]:
            await self._may_not_come_in(jid, old)
        self._passwords[name].append(password)
        async with self._session(name, password) as puppet:
            to = f"jobs@{self._attacked.pool.state.domain}"
            done = await self._asks(
                puppet, to, rq.SubmitJob(spec=JobSpec(program=Program(argv=("true",))))
            )
            if "job_id" not in done:
                self._attacked.found(f"{jid} came back, and is told {done}")
            spec = JobSpec(program=Program(argv=("echo", "{}")))
            told = await self._asks(puppet, to, rq.SubmitJob(spec=spec, upload="u"))
            await self._is_no_admin(puppet)
            if told.get("type") != "error":
                self._attacked.found(f"{jid} came back, and has what was sent ahead before: {told}")
        self._attacked.counts["came back"] += 1

    async def _is_no_admin(self, puppet: Puppet) -> None:
        """Neither before nor after coming back do they set anything for anybody."""
        for request in FOR_ADMINS:
            told = await self._asks(puppet, f"jobs@{self._attacked.pool.state.domain}", request)
            if told.get("type") != "error" or told.get("code") != "not-allowed":
                self._attacked.found(f"{puppet.jid} asks {request}, and is told {told}")
        self._attacked.counts["rights of admins refused"] += len(FOR_ADMINS)

    # -- inside ------------------------------------------------------------------------------------

    def _configure(self, jid: str, password: str) -> None:
        """What the role gives root, to ask with, and what a person has of the operator."""
        state = self._attacked.pool.state
        directory = self._attacked.directory / "config/kestrel"
        directory.mkdir(parents=True, exist_ok=True)
        name = jid.partition("@")[0]
        (directory / f"{name}.password").write_text(password)
        people = [(jid, f"{name}.password", name)]
        people.append((state.admin, state.admin_password_file, "asking"))
        text = "".join(
            f'[context.{context}]\njid = "{whose}"\npassword_file = "{file}"\n'
            f'pool = "{state.domain}"\nhost = "{state.host}"\nport = {state.port}\ntls = false\n'
            for whose, file, context in people
        )
        (directory / "config.toml").write_text(text)

    def _session(self, name: str, password: str) -> Puppet:
        return Puppet(self._attacked.pool.state, name, "users", password=password)

    async def _asks(self, puppet: Puppet, to: str, request: rq.AnyRequest) -> dict[str, Any]:
        """Asks one thing after the other; what comes by itself is passed over."""
        self._asked += 1
        request = msgspec.structs.replace(request, id=f"asked-{self._asked}")
        puppet.session.send(codec.encode(request), to)
        deadline = time.monotonic() + self._attacked.patience_seconds
        while time.monotonic() < deadline:
            answer = await puppet.answer(self._attacked.patience_seconds)
            if answer.get("id") == request.id and answer.get("type") != "ended":
                return answer
        raise AssertionError("no answer came")

    async def _until(self, is_so: Any, otherwise: str) -> None:
        deadline = time.monotonic() + self._attacked.patience_seconds
        while not is_so():
            if time.monotonic() > deadline:
                self._attacked.found(otherwise)
                return
            await asyncio.sleep(0.05)


def _running(mark: str) -> list[int]:
    """Processes of tasks that sleep for just so long."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.cmdline() == ["sleep", mark] and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
    return found
