"""A pool whose machine makes environments when work needs them."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil
from daemons import Spawn

from kestrelctl.errors import Unreachable
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.answers import EnvironmentClassView, EnvironmentList, EnvironmentView
from kestrelctl.protocol.requests import ListEnvironments
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection, connect_user


class House:
    """A server, a manager with classes of environments, and a worker that makes some.

    Args:
        before: what is put before the worker's command line.
        kinds: what the worker makes.
        worker_words: further ones of its command line.
    """

    def __init__(
        self,
        server: PrivateServer,
        spawn: Spawn,
        directory: Path,
        user: UserConnection,
        *,
        before: Sequence[str] = (),
        kinds: Sequence[str] = ("venv",),
        worker_words: Sequence[str] = ("--isolation", "plain"),
    ) -> None:
        self._server = server
        self._spawn = spawn
        self._before = before
        self._kinds = kinds
        self._worker_words = worker_words
        self.user = user
        self.directory = directory
        self.manager = self.start_manager()
        self.add_account("w")
        self.worker = self.start_worker()

    def start_manager(self) -> subprocess.Popen[str]:
        server, place = self._server, self.directory
        return self._spawn(
            "manager", "run", "--domain", server.domain, "--secret-file", place / "secret",
            "--port", server.component_port, "--data-dir", place / "manager",
            "--admin", f"ada@{server.users_domain}", "--environments", place / "classes.toml",
        )  # fmt: skip

    def add_account(self, name: str) -> None:
        """Makes one of a worker."""
        worker = f"{name}@{self._server.workers_domain}"
        credentials = self.directory / name
        credentials.write_text(f"{worker} {self._server.add_account(worker)}\n")
        credentials.chmod(0o600)

    def start_worker(self, name: str = "w") -> subprocess.Popen[str]:
        server, place = self._server, self.directory
        return self._spawn(
            "worker", "run", "--pool", server.domain, "--credentials", place / name,
            "--port", server.client_port, "--cpus", "2", "--no-tls",
            "--data-dir", place / ("worker" if name == "w" else f"worker-{name}"),
            *self._worker_words,
            *(word for kind in self._kinds for word in ("--environments", kind)),
            before=self._before,
        )  # fmt: skip

    def kill_manager(self) -> None:
        self.manager.kill()
        self.manager.wait()

    def kill_worker(self, which: subprocess.Popen[str] | None = None) -> None:
        """The worker and all that it consists of; not what runs in environments.

        Args:
            which: if it is not the first one.
        """
        worker = which or self.worker
        for child in psutil.Process(worker.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        worker.kill()
        worker.wait()

    async def listed(self) -> EnvironmentList:
        while True:
            with contextlib.suppress(Unreachable):
                answer = await self.user.ask(ListEnvironments())
                assert isinstance(answer, EnvironmentList)
                return answer

    async def class_of(self, name: str) -> EnvironmentClassView:
        [found] = [each for each in (await self.listed()).classes if each.name == name]
        return found

    async def there(self) -> list[EnvironmentView]:
        return (await self.listed()).environments

    async def one_is(self, phase: str) -> EnvironmentView:
        while True:
            found = await self.there()
            if found and found[0].phase == phase:
                return found[0]
            await asyncio.sleep(0.05)

    async def none_is_left(self) -> None:
        while await self.there() or self.processes():
            await asyncio.sleep(0.05)

    async def no_account_is_left(self) -> None:
        """Of an environment's worker: it goes a moment after its environment."""
        while "env" in await self.workers():
            await asyncio.sleep(0.05)

    async def workers(self) -> dict[str, an.WorkerView]:
        """All that the pool knows, by the first letters of their names: `env` or `w`."""
        answer = await self.user.ask(rq.ListWorkers())
        assert isinstance(answer, an.Workers)
        return {re.split("[-@]", each.worker)[0]: each for each in answer.workers}

    async def host(self) -> an.WorkerView:
        return (await self.workers())["w"]

    def processes(self) -> list[psutil.Process]:
        """What runs in environments."""
        mark = str(self.directory / "worker")  # and of further ones, which are called like it
        return [
            process
            for process in psutil.process_iter(["environ"])
            if mark in (process.info["environ"] or {}).get("VIRTUAL_ENV", "")
        ]


@contextlib.asynccontextmanager
async def house_of(
    server: PrivateServer, spawn: Spawn, directory: Path, classes: str, **how: Sequence[str]
) -> AsyncIterator[House]:
    """One that is ready to make environments.

    Args:
        classes: the text of their file; a recipe of venv may be `nothing.txt`.
        how: as of `House`.
    """
    (directory / "secret").write_text(server.secret)
    (directory / "classes.toml").write_text(classes)
    (directory / "nothing.txt").write_text("# nothing\n")
    ada = f"ada@{server.users_domain}"
    password = server.add_account(ada)
    here = ("127.0.0.1", server.client_port)
    async with connect_user(ada, password, server.domain, *here, tls=False) as user:
        found = House(server, spawn, directory, user, **how)
        try:
            async with asyncio.timeout(90):
                while not (await found.listed()).classes[0].hosts:
                    await asyncio.sleep(0.05)
            yield found
        finally:  # Its environments end with it, if it is not killed.
            found.worker.send_signal(signal.SIGHUP)
            async with asyncio.timeout(60):
                while found.worker.poll() is None:
                    await asyncio.sleep(0.05)
