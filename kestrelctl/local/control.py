"""Starts and stops local pools from outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from kestrelctl.core.model.wording import plural
from kestrelctl.errors import KestrelError, NotFound, StoreUnusable, TimedOut, UsageError
from kestrelctl.local.flock_addresses import remove_address
from kestrelctl.local.flock_membership import (
    addresses_of,
    check_domain,
    domain_to_join,
    flock_directory,
    flock_domain,
    membership,
)
from kestrelctl.local.last_words import last_words
from kestrelctl.local.left_over import delete_pool, end_left_over
from kestrelctl.local.other_servers import check_name, check_port, domain_of, parse_domain
from kestrelctl.local.pool_state import (
    PoolState,
    claim_pool,
    is_of_pool,
    last_state,
    manager_directory,
    pool_directory,
    read_state,
)
from kestrelctl.manager.environments.classes import read_all_classes
from kestrelctl.manager.handlers.files import read_all_handlers
from kestrelctl.manager.triggers.files import read_all_triggers
from kestrelctl.protocol.answers import PoolSummary
from kestrelctl.protocol.properties import ListProperties, PropertyList
from kestrelctl.protocol.requests import PoolStatus
from kestrelctl.store.backup import count_jobs
from kestrelctl.store.directory import check_path
from kestrelctl.store.sqlite.store import DATABASE
from kestrelctl.worker.plugins.definition_files import read_all_commands, read_all_definitions
from kestrelctl.xmpp.federation import Federation
from kestrelctl.xmpp.prosody import LOCAL_DOMAIN, find_prosody
from kestrelctl.xmpp.user import UserConnection, connect_user

#: A pool that starts is given up when nothing has happened for this long: many workers on a busy
#: machine need minutes, but they come one after the other.
START_SECONDS = 60.0
STOP_SECONDS = 60.0
#: The pause between two looks at a pool that starts.
POLL_SECONDS = 0.05
ANSWER_SECONDS = 2.0
#: A pool that comes up has its workers' properties this soon, unless a reading takes longer.
TOLD_SECONDS = 10.0


async def up(
    name: str,
    workers: int,
    executor: str = "process",
    isolation: str = "plain",
    *,
    domain: str = "",
    federation: Federation | None = None,
    flock: str = "",
    environments: tuple[Path, ...] = (),
    properties: tuple[Path, ...] = (),
    commands: tuple[Path, ...] = (),
    handlers: tuple[Path, ...] = (),
    triggers: tuple[Path, ...] = (),
    mail: tuple[str, ...] = (),
) -> PoolState:
    """Starts a local pool that goes on when this process ends; returns when it can run tasks.

    It goes on with what a pool of that name left here, whether that was stopped or has crashed.

    Args:
        workers: how many workers of one processor each; 0 for one with all that the machine has.
        isolation: as of `kestrelctl worker run`.
        domain: of the pool, for good; empty for the one that it has, or else that of this machine.
        federation: other servers that reach it this time; None for none.
        flock: name of a local pool whose flock it joins this time; its own for the first of one,
            empty for none.
        environments: files with classes of environments, which are started here when work needs
            them.
        properties: files that define what workers read of this machine.
        commands: files that define what admins may have workers run.
        handlers: files that define what is done when something happens to workers.
        triggers: files that define what is done when the pool is in some state.
        mail: the words of `kestrelctl manager run` about the server for mail; empty for none.

    Raises:
        UsageError: such a file is wrong; or a pool of that name runs, or is starting or stopping;
            or it has another domain, or no other server could reach it; or there is no such flock.
        MissingTool: there is no XMPP server.
        StoreUnusable: the store that was left is damaged; it stays as it is.
        KestrelError: it did not come up, or nothing can be written where it is to be.
    """
    find_prosody()
    classes, _ = read_all_classes(environments)
    told = {each.name for each in read_all_definitions(properties)}
    read_all_commands(commands)
    defined = read_all_handlers(handlers, with_mail=bool(mail))
    read_all_triggers(triggers, {each.name for each in defined}, classes)
    directory = pool_directory(name)
    if read_state(directory) is not None:
        raise UsageError(
            f"the pool {name} runs already",
            hint=f"`kestrelctl down --name {name}` stops it, and keeps its jobs",
        )
    with _usable(directory):
        check_path(manager_directory(name) / DATABASE)
        domain = domain_of(directory, domain, flock_domain(name) if flock else LOCAL_DOMAIN)
        parse_domain(domain)  # for a pool that was here, a file names it
        if federation is not None:
            check_name(federation, domain)
        if flock:
            check_domain(name, domain)
            through = domain_to_join(flock, name, domain)
        directory.mkdir(parents=True, mode=0o700, exist_ok=True)
        directory.chmod(0o700)
        with _claimed(directory):
            await end_left_over(directory)
            for log in directory.glob("*.log"):
                log.replace(log.with_suffix(".log.old"))
            if federation is not None:
                check_port(federation)
            if flock:
                federation = membership(flock_directory(), directory, domain, through)
            (directory / "domain").write_text(f"{domain}\n")
        process = _start(
            directory,
            name,
            workers,
            executor,
            isolation,
            detached=True,
            domain=domain,
            federation=federation,
            environments=environments,
            properties=properties,
            commands=commands,
            handlers=handlers,
            triggers=triggers,
            mail=mail,
        )
    state = await _ready(process, directory, max(1, workers))
    if told:
        await _until_told(state, told)
    return state


async def down(name: str, *, delete: bool = False) -> None:
    """Stops a local pool; running tasks are ended, and run again when it goes on.

    Args:
        delete: whether its jobs and results go, too.

    Raises:
        NotFound: there is no such pool, or it does not run and nothing is to be deleted.
        UsageError: it is just starting, or stopped by somebody else.
        KestrelError: not all could be deleted.
    """
    directory = pool_directory(name)
    if not os.path.exists(directory):
        raise NotFound(f"there is no pool {name} here")
    state = read_state(directory)
    if state is not None:
        await _stop(state)
    with _usable(directory), _claimed(directory):
        if state is None and last_state(directory) is None and not delete:
            raise NotFound(
                f"the pool {name} does not run",
                cause="its jobs and results are kept",
                hint=f"`kestrelctl up --name {name}` goes on with them; "
                f"`kestrelctl down --name {name} --delete` deletes them",
            )
        await end_left_over(directory)
        if state is None:  # the supervisor that published its address has crashed
            remove_address(addresses_of(flock_directory()), domain_of(directory, ""))
        if delete:
            delete_pool(directory)


@contextlib.contextmanager
def _usable(directory: Path) -> Iterator[None]:
    """Turns an OSError into a KestrelError that names the directory of the pool."""
    try:
        yield
    except OSError as error:
        raise KestrelError(
            f"the directory of the pool cannot be used: {directory}",
            cause=error.strerror,
            hint="make room, or let it be yours: $XDG_STATE_HOME, or else ~/.local/state, is where"
            " pools are",
        ) from error


@contextlib.contextmanager
def _claimed(directory: Path) -> Iterator[None]:
    """Keeps supervisors, and other callers, from a directory. UsageError if one of them has it."""
    lock = claim_pool(directory)
    try:
        yield
    finally:
        os.close(lock)


async def _stop(state: PoolState) -> None:
    # A supervisor that was stopped (SIGSTOP) does not hear the first before the second.
    for number in (signal.SIGTERM, signal.SIGCONT):
        with contextlib.suppress(ProcessLookupError):
            os.kill(state.pid, number)
    deadline = time.monotonic() + STOP_SECONDS
    while is_of_pool(state, state.pid):
        if time.monotonic() > deadline:
            raise TimedOut(
                f"the pool {state.name} did not stop", cause=f"its supervisor is {state.pid}"
            )
        await asyncio.sleep(0.02)


class KeptJobs(NamedTuple):
    """The number of jobs that a pool remembers, and of those that have not ended."""

    jobs: int
    active: int

    def __str__(self) -> str:
        active = f", {self.active:,} of them active" if self.active else ""
        return f"{plural(self.jobs, 'job')}{active}"


def kept_jobs(name: str) -> KeptJobs | None:
    """Counts the jobs in the store of a pool, whether it runs or not; None if it cannot be read."""
    try:
        return KeptJobs(*count_jobs(manager_directory(name)))
    except NotFound:
        return KeptJobs(0, 0)
    except (KestrelError, OSError):
        return None


async def running_tasks(name: str) -> int:
    """Counts the tasks that run in a local pool; 0 if it does not run, or does not answer soon."""
    state = read_state(pool_directory(name))
    if state is not None:
        with contextlib.suppress(KestrelError, OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS), connect_local(state) as connection:
                status = await connection.ask(PoolStatus(), timeout_seconds=ANSWER_SECONDS)
                if isinstance(status, PoolSummary):
                    return status.tasks_running
    return 0


@contextlib.asynccontextmanager
async def throw_away_pool(
    workers: int,
    executor: str = "process",
    isolation: str = "plain",
    *,
    metrics: bool = True,
    processors: int = 1,
    directory: Path | None = None,
    domain: str = LOCAL_DOMAIN,
    federation: Federation | None = None,
    environments: tuple[Path, ...] = (),
    properties: tuple[Path, ...] = (),
    commands: tuple[Path, ...] = (),
    triggers: tuple[Path, ...] = (),
    send_limits: tuple[str, ...] = (),
    poll_bytes: int = 0,
) -> AsyncIterator[PoolState]:
    """A pool for the length of a `with`, which ends with this process at the latest.

    Args:
        processors: of each worker.
        directory: for its files, which goes at the end; None for one among temporary files.
        environments: files with classes of environments, which each worker makes when work needs
            them.
        properties: files that define what workers read of this machine.
        commands: files that define what admins may have them run.
        triggers: files that define what is done when the pool is in some state.
        send_limits: as of `kestrelctl manager run`.
        poll_bytes: how many bytes workers answer polls with; 0 for their real answers.
    """
    find_prosody()
    directory = directory or Path(tempfile.mkdtemp(prefix="kestrel-"))
    process = _start(
        directory,
        directory.name,
        workers,
        executor,
        isolation,
        detached=False,
        metrics=metrics,
        processors=processors,
        domain=domain,
        federation=federation,
        environments=environments,
        properties=properties,
        commands=commands,
        triggers=triggers,
        send_limits=send_limits,
        poll_bytes=poll_bytes,
    )
    try:
        yield await _ready(process, directory, max(1, workers))
    finally:
        try:
            if process.poll() is None:
                process.terminate()
                process.send_signal(signal.SIGCONT)  # a stopped process hears nothing before it
                while process.poll() is None:
                    await asyncio.sleep(0.02)
        finally:  # whoever is cancelled does not wait for its end
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.asynccontextmanager
async def connect_local(state: PoolState, *, admin: bool = False) -> AsyncIterator[UserConnection]:
    """A connection to a local pool, as its user or its admin."""
    jid = state.admin if admin else state.user
    password = Path(state.admin_password_file if admin else state.password_file).read_text()
    async with connect_user(
        jid,
        password.strip(),
        state.domain,
        state.host,
        state.port,
        tls=False,
        timeout_seconds=START_SECONDS,
    ) as connection:
        yield connection


def _start(
    directory: Path,
    name: str,
    workers: int,
    executor: str,
    isolation: str,
    *,
    detached: bool,
    metrics: bool = True,
    processors: int = 1,
    domain: str = LOCAL_DOMAIN,
    federation: Federation | None = None,
    environments: tuple[Path, ...] = (),
    properties: tuple[Path, ...] = (),
    commands: tuple[Path, ...] = (),
    handlers: tuple[Path, ...] = (),
    triggers: tuple[Path, ...] = (),
    mail: tuple[str, ...] = (),
    send_limits: tuple[str, ...] = (),
    poll_bytes: int = 0,
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "kestrelctl.local.supervisor"]
    command += ["--directory", str(directory), "--name", name]
    command += ["--workers", str(workers), "--processors", str(processors)]
    command += ["--executor", executor]
    command += ["--isolation", isolation, "--domain", domain]
    if federation is not None:
        command += ["--federation", msgspec.json.encode(federation).decode()]
    for file in environments:
        command += ["--environments", str(file.absolute())]
    for file in properties:
        command += ["--properties", str(file.absolute())]
    for file in commands:
        command += ["--commands", str(file.absolute())]
    for limit in send_limits:
        command += ["--send-limit", limit]
    if poll_bytes:
        command += ["--poll-bytes", str(poll_bytes)]
    for file in triggers:
        command += ["--triggers", str(file.absolute())]
    for file in handlers:
        command += ["--handlers", str(file.absolute())]
    command += [f"--mail={word}" for word in mail]
    if not detached:
        command.append("--with-parent")
    if not metrics:
        command.append("--no-metrics")
    with (directory / "supervisor.log").open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=detached,
            cwd="/",
        )


async def _ready(process: subprocess.Popen[bytes], directory: Path, workers: int) -> PoolState:
    """Waits until a starting pool has all its workers."""
    deadline = time.monotonic() + START_SECONDS
    most = 0  # workers seen so far
    try:
        while (state := read_state(directory)) is None:
            _check(process, directory, deadline)
            await asyncio.sleep(0.02)
        async with connect_local(state) as connection:
            while True:
                _check(process, directory, deadline)
                with contextlib.suppress(KestrelError):
                    status = await connection.ask(PoolStatus(), timeout_seconds=2.0)
                    assert isinstance(status, PoolSummary)
                    joined = _joined(status)
                    if joined >= workers:
                        return read_state(directory) or state
                    if joined > most:
                        most, deadline = joined, time.monotonic() + START_SECONDS
                await asyncio.sleep(POLL_SECONDS)
    except BaseException:
        if process.poll() is None:
            process.terminate()
        raise


async def _until_told(state: PoolState, names: set[str]) -> None:
    """Waits until workers have told of these properties, or what hinders them; but not for long."""
    with contextlib.suppress(TimeoutError, KestrelError):
        async with asyncio.timeout(TOLD_SECONDS), connect_local(state) as connection:
            while True:
                found = await connection.ask(ListProperties(), timeout_seconds=ANSWER_SECONDS)
                if isinstance(found, PropertyList):
                    names = names - {each.name for each in found.properties}
                if not names:
                    return
                await asyncio.sleep(POLL_SECONDS)


def _joined(status: PoolSummary) -> int:
    """Counts the workers that are not offline: one that goes on with its tasks is busy at once."""
    return sum(count for state, count in status.workers.items() if state != "offline")


def _check(process: subprocess.Popen[bytes], directory: Path, deadline: float) -> None:
    """Finds out whether a pool may still come up.

    Raises:
        StoreUnusable: its store cannot be used as it is.
        KestrelError: it ended, or takes too long.
    """
    name = directory.name
    ended = process.poll()
    if ended == StoreUnusable.exit_status:
        raise StoreUnusable(
            f"the pool {name} cannot go on: its store cannot be used",
            cause=last_words(directory, "manager"),
            hint=f"`kestrelctl manager restore --pool {name} FILE` puts a backup in its place; "
            f"`kestrelctl up --name OTHER` starts an empty pool beside it",
        )
    if ended is not None or time.monotonic() > deadline:
        raise KestrelError(
            "the pool did not come up",
            cause=last_words(directory),
            hint=f"try again; the logs and its jobs stay in {directory}",
        )
