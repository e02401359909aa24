"""The parent of a local pool's processes: starts them, starts them again when they end, and stops
all that they have started.

It is the nearest subreaper above the pool, so that it becomes the parent of what a killed process
leaves behind. The kernel signals its children when it dies itself (prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from kestrelctl import logs
from kestrelctl.core.pacing.backoff import pause_seconds
from kestrelctl.errors import (
    KestrelError,
    MissingTool,
    SteppedBack,
    StoreUnusable,
    UsageError,
)
from kestrelctl.local.flock_addresses import remove_address, write_address
from kestrelctl.local.pool_state import (
    PoolState,
    claim_pool,
    process_mark,
    processes_of,
    remove_state,
    state_marks,
    write_state,
)
from kestrelctl.manager.environments.classes import read_all_classes
from kestrelctl.worker.discovery import (
    discover,
    disk_for_inputs_bytes,
    disk_for_tasks_bytes,
    even_bytes,
)
from kestrelctl.worker.run.orphans import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, kill, prctl
from kestrelctl.worker.stops import Stops
from kestrelctl.xmpp.federation import Federation
from kestrelctl.xmpp.prosody import LOCAL_DOMAIN, LOOPBACK, PrivateServer, free_ports

log = logging.getLogger(__name__)

#: The name of the child that is the manager.
MANAGER = "manager"
#: How long children get to stop before they are killed.
STOP_SECONDS = 8.0
#: A child that ran this long has recovered: its next failure counts as the first.
RECOVERED_SECONDS = 30.0


_TOLD_WRONG = (UsageError.exit_status, MissingTool.exit_status)


class Child:
    """One process that is kept running.

    Args:
        death_signal: what the kernel sends it if the supervisor dies.
        stop_signals: sent in turn to stop it.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        directory: Path,
        *,
        death_signal: signal.Signals = signal.SIGKILL,
        stop_signals: tuple[signal.Signals, ...] = (signal.SIGTERM,),
    ) -> None:
        self.name = name
        self.command = command
        self._log = directory / f"{name}.log"
        self._death_signal = death_signal
        self.stop_signals = stop_signals
        self.process: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.failures = 0
        self.starts = 0
        self.stops = Stops()
        self.start_at = 0.0

    def start(self) -> None:
        """Starts it."""
        death_signal, supervisor = self._death_signal, os.getpid()

        def before_exec() -> None:
            prctl(PR_SET_PDEATHSIG, death_signal)
            if os.getppid() != supervisor:
                os._exit(1)

        with self._log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=before_exec,
            )
        self.started_at = time.monotonic()
        self.starts += 1
        self.stops = Stops()

    def fail(self, moment: float) -> None:
        """Has it wait for its next start, the longer the oftener it has failed."""
        self.failures += 1
        self.start_at = moment + pause_seconds(self.failures, 0.0)

    def is_told_wrong(self, status: int) -> bool:
        """Whether it ended at its first start because of what it was told: the next would, too."""
        return self.starts == 1 and status in _TOLD_WRONG

    def continue_if_stopped(self) -> None:
        """Continues it if somebody stopped it; kills it if that happens all the time."""
        if self.process is None or self.process.returncode is not None:
            return
        try:
            stopped = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:  # it has ended
            return
        if stopped is None:
            return
        number = self.stops.answer(time.monotonic())
        log.warning("%s was stopped by somebody; it gets %s", self.name, number.name)
        os.kill(self.process.pid, number)

    @property
    def pid(self) -> int:
        return self.process.pid if self.process is not None else 0


class Supervisor:
    """Server, manager and workers of one local pool."""

    def __init__(
        self,
        directory: Path,
        name: str,
        workers: int,
        executor: str,
        isolation: str,
        *,
        metrics: bool,
        processors: int = 1,
        domain: str = LOCAL_DOMAIN,
        federation: Federation | None = None,
        environments: Sequence[Path] = (),
        properties: Sequence[Path] = (),
        commands: Sequence[Path] = (),
        handlers: Sequence[Path] = (),
        triggers: Sequence[Path] = (),
        mail: Sequence[str] = (),
        send_limits: Sequence[str] = (),
        poll_bytes: int = 0,
    ) -> None:
        self.directory = directory
        self.name = name
        self.workers = workers
        self.processors = processors
        self.executor = executor
        self.isolation = isolation
        self.environments = environments
        self.properties = properties
        self.commands = commands
        self.handlers = handlers
        self.triggers = triggers
        self.mail = mail
        self.send_limits = send_limits
        self.poll_bytes = poll_bytes
        self.processes = processes_for(workers, makes_environments=bool(environments))
        self._with_metrics = metrics
        #: HOST:PORT of the manager's metrics and of those of each worker process, or nothing.
        self.metrics: list[str] = []
        self.server = PrivateServer.create(
            directory / "server", domain, metrics=metrics, federation=federation
        )
        self.children: list[Child] = []
        self.worker_children: list[Child] = []
        self._stop = asyncio.Event()
        self._published: PoolState | None = None
        self._published_as = (0, 0)

    async def run(self) -> None:
        """Runs the pool until SIGTERM, SIGINT or SIGHUP."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        try:
            user, admin = (
                self._account(name, self.server.users_domain) for name in ("user", "admin")
            )
            server = self._add(Child("server", self.server.command(), self.directory))
            server.start()
            await self.server.wait_ready(60.0)
            self._say_address()
            if self._with_metrics:
                ports = free_ports(1 + self.processes)
                self.metrics = [f"{LOOPBACK}:{port}" for port in ports]
            manager = self._add(Child(MANAGER, self._manager_command(admin[0]), self.directory))
            manager.start()
            for child in self._worker_commands():
                self.worker_children.append(self._add(child))
                child.start()
            while not self._stop.is_set():
                self._publish(user, admin, server, manager)
                for child in self.children:
                    child.continue_if_stopped()
                self._restart_ended()
                try:
                    async with asyncio.timeout(0.1):
                        await self._stop.wait()
                except TimeoutError:
                    continue
        finally:
            self._say_no_address()
            await self._stop_all()

    def _say_address(self) -> None:
        """Tells the pools of its flock where its server listens."""
        federation = self.server.federation
        if federation is not None and federation.flock is not None:
            directory = Path(federation.flock.address_directories[-1])
            address = f"{federation.interfaces[0]}:{federation.port}"
            write_address(directory, self.server.domain, address)

    def _say_no_address(self) -> None:
        federation = self.server.federation
        if federation is not None and federation.flock is not None:
            directory = Path(federation.flock.address_directories[-1])
            remove_address(directory, self.server.domain)

    def _add(self, child: Child) -> Child:
        self.children.append(child)
        return child

    def _account(self, name: str, host: str) -> tuple[str, Path]:
        jid = f"{name}@{host}"
        file = self.directory / f"{name}.password"
        _write_private(file, self.server.add_account(jid))
        return jid, file

    def _manager_command(self, admin: str) -> list[str]:
        secret = self.directory / "component.secret"
        _write_private(secret, self.server.secret)
        return [
            *_KESTRELCTL, "manager", "run",
            "--domain", self.server.domain,
            "--name", self.name,
            "--host", LOOPBACK,
            "--port", str(self.server.component_port),
            "--secret-file", str(secret),
            "--data-dir", str(self.directory / "manager"),
            "--worker-host", self.server.workers_domain,
            "--user-host", self.server.users_domain,
            "--admin", admin,
            *(word for file in self.environments for word in ("--environments", str(file))),
            *(word for file in self.handlers for word in ("--handlers", str(file))),
            *(word for file in self.triggers for word in ("--triggers", str(file))),
            *self.mail,
            *(word for limit in self.send_limits for word in ("--send-limit", limit)),
            *_remote_users(self.server.federation),
            *flock_options(self.server.federation),
            *_metrics_option(self.metrics, 0),
        ]  # fmt: skip

    def _worker_commands(self) -> list[Child]:
        """Makes the worker processes: workers share one for each processor; each has its own if
        they make environments.
        """
        memory_bytes = discover().memory_bytes
        cache_bytes = even_bytes(
            kept_inputs_bytes(self.directory) + disk_for_inputs_bytes(self.directory)
        )
        kinds = sorted({each.kind for each in read_all_classes(self.environments)[0].values()})
        found = []
        for index in range(self.processes):
            numbers = range(index, self.workers, self.processes) if self.workers else range(1)
            accounts = []
            for number in numbers:
                jid = f"w{number + 1}@{self.server.workers_domain}"
                accounts.append(f"{jid} {self.server.add_account(jid)}\n")
            credentials = self.directory / f"worker-{index + 1}.credentials"
            _write_private(credentials, "".join(accounts))
            command = [
                *_KESTRELCTL, "worker", "run",
                "--pool", self.server.domain,
                "--host", LOOPBACK,
                "--port", str(self.server.client_port),
                "--no-tls",
                "--credentials", str(credentials),
                "--sessions", str(len(accounts)),
                "--data-dir", str(self.directory / f"worker-{index + 1}"),
                "--executor", self.executor,
                "--isolation", self.isolation,
                "--any-workdir",
                "--cache-size", str(cache_bytes // self.processes),
            ]  # fmt: skip
            command += _metrics_option(self.metrics, 1 + index)
            if self.poll_bytes:
                command += ["--poll-bytes", str(self.poll_bytes)]
            for kind in kinds:
                command += ["--environments", kind]
            for file in self.properties:
                command += ["--properties", str(file)]
            for file in self.commands:
                command += ["--commands", str(file)]
            if self.workers:
                disk_bytes = even_bytes(disk_for_tasks_bytes(self.directory) // self.workers)
                command += [
                    "--cpus",
                    str(self.processors),
                    "--memory",
                    str(memory_bytes // self.workers),
                ]
                # Several processes that each detect the GPUs cannot share them out.
                command += ["--asset", f"disk={disk_bytes}", "--asset", "gpus=indexed:"]
            found.append(
                Child(
                    f"worker-{index + 1}",
                    command,
                    self.directory,
                    death_signal=signal.SIGHUP,
                    stop_signals=(signal.SIGHUP,),
                )
            )
        return found

    def _publish(
        self, user: tuple[str, Path], admin: tuple[str, Path], server: Child, manager: Child
    ) -> None:
        pages = [f"http://{address}/metrics" for address in self.metrics]
        state = PoolState(
            name=self.name,
            pid=os.getpid(),
            domain=self.server.domain,
            host=LOOPBACK,
            port=self.server.client_port,
            user=user[0],
            password_file=str(user[1]),
            admin=admin[0],
            admin_password_file=str(admin[1]),
            workers=max(1, self.workers),
            server_pid=server.pid,
            manager_pid=manager.pid,
            worker_pids=[child.pid for child in self.worker_children],
            metrics=next(iter(pages), ""),
            worker_metrics=pages[1:],
            server_metrics=f"http://{LOOPBACK}:{self.server.http_port}/metrics" if pages else "",
            own_directories=True,
        )
        if state != self._published or state_marks(self.directory) != self._published_as:
            marks = {pid: process_mark(pid) for pid in processes_of(state)}
            try:
                write_state(self.directory, msgspec.structs.replace(state, marks=marks))
            except OSError as error:  # the disk is full: the pool goes on, and this is tried again
                if self._published is not None:
                    log.warning("what runs cannot be written down: %s", error.strerror)
                self._published = None
                return
            self._published, self._published_as = state, state_marks(self.directory)

    def _restart_ended(self) -> None:
        moment = time.monotonic()
        for child in self.children:
            if child.process is not None and child.process.poll() is not None:
                status = child.process.returncode
                child.process = None
                if child.name == MANAGER and status == StoreUnusable.exit_status:
                    raise StoreUnusable("the manager ended: its store cannot be used")
                if child.name == MANAGER and status == SteppedBack.exit_status:
                    raise SteppedBack
                if child.is_told_wrong(status):
                    raise KestrelError(f"{child.name} cannot run as it was told to")
                if moment - child.started_at > RECOVERED_SECONDS:
                    child.failures = 0
                child.fail(moment)
                log.warning("%s ended with status %d; starting it again", child.name, status)
            if child.process is None and moment >= child.start_at:
                try:
                    child.start()
                except OSError as error:  # too many processes of this user, say: others may end
                    child.fail(moment)
                    log.warning("%s cannot be started: %s", child.name, error.strerror)
        _reap_strangers({child.pid for child in self.children})

    async def _stop_all(self) -> None:
        """Stops the workers first, all at once, so that they can say goodbye; the server last."""
        others = [child for child in reversed(self.children) if child not in self.worker_children]
        for together in (self.worker_children, *([child] for child in others)):
            await _stop(together)
        await _end_strangers()


async def _stop(children: list[Child]) -> None:
    """Stops processes; one that takes too long is killed."""
    running = [
        (child, child.process)
        for child in children
        if child.process is not None and child.process.poll() is None
    ]
    for child, process in running:
        # A process that was stopped (SIGSTOP) does not hear the others before it is continued.
        for number in (*child.stop_signals, signal.SIGCONT):
            process.send_signal(number)
    deadline = time.monotonic() + STOP_SECONDS
    while any(process.poll() is None for _, process in running) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    for child, process in running:
        if process.poll() is None:
            log.warning("%s did not stop; it is killed", child.name)
            process.kill()
            process.wait()


def processes_for(workers: int, *, makes_environments: bool) -> int:
    """The number of processes that workers share: one for each processor; or one for each worker if
    they make environments, because only the first in a process does.
    """
    most = workers if makes_environments else os.cpu_count() or 1
    return max(1, min(workers, most))


_KESTRELCTL = [sys.executable, "-P", "-m", "kestrelctl"]


def kept_inputs_bytes(directory: Path) -> int:
    """Adds up what the workers of an earlier pool have kept of inputs in this directory."""
    files = directory.glob("worker-*/inputs/**/*")
    return sum(file.lstat().st_size for file in files if not file.is_dir())


def _remote_users(federation: Federation | None) -> list[str]:
    return [word for user in federation.users for word in ("--user", user)] if federation else []


def flock_options(federation: Federation | None) -> list[str]:
    """The words on a manager's command line about its flock; none if it has no flock."""
    flock = federation.flock if federation else None
    if flock is None:
        return []
    return [
        "--flock", flock.through,
        "--flock-minute", str(flock.minute_seconds),
        "--flock-reclaim", str(flock.reclaim_minutes),
        "--flock-isolation", "plain",
        "--flock-any-workdir",
        *(word for domain in flock.fixed for word in ("--flock-fixed", domain)),
    ]  # fmt: skip


def _metrics_option(addresses: list[str], index: int) -> list[str]:
    return ["--metrics", addresses[index]] if addresses else []


def _write_private(file: Path, text: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)


def _reap_strangers(own: set[int]) -> list[int]:
    """Kills and reaps what killed children have left: it is handed to the subreaper.

    Returns:
        The processes found: what they leave in turn is handed over when they are gone.
    """
    try:
        listing = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    except OSError:
        return []
    strangers = [pid for pid in map(int, listing.split()) if pid not in own]
    for pid in strangers:
        kill(pid)
        os.waitpid(pid, os.WNOHANG)
    return strangers


async def _end_strangers() -> None:
    """Kills and reaps strangers when no child is left, until there are none."""
    deadline = time.monotonic() + STOP_SECONDS
    while strangers := _reap_strangers(set()):
        if time.monotonic() > deadline:
            log.warning("processes are left behind: %s", strangers)
            return
        await asyncio.sleep(0.005)


def main() -> int:
    """The supervisor's main program."""
    parser = argparse.ArgumentParser(prog="kestrelctl local supervisor")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--processors", type=int, default=1, help="of each worker")
    parser.add_argument("--executor", default="process")
    parser.add_argument("--isolation", default="plain")
    parser.add_argument("--domain", default=LOCAL_DOMAIN)
    parser.add_argument(
        "--federation",
        type=lambda text: msgspec.json.decode(text, type=Federation),
        help="as JSON; without it no other server is talked to",
    )
    parser.add_argument("--environments", type=Path, action="append", default=[])
    parser.add_argument("--properties", type=Path, action="append", default=[])
    parser.add_argument("--commands", type=Path, action="append", default=[])
    parser.add_argument("--triggers", type=Path, action="append", default=[])
    parser.add_argument("--mail", action="append", default=[], help="a word for the manager")
    parser.add_argument("--send-limit", dest="send_limits", action="append", default=[])
    parser.add_argument("--poll-bytes", type=int, default=0)
    parser.add_argument("--handlers", type=Path, action="append", default=[])
    parser.add_argument(
        "--with-parent", action="store_true", help="stop when the parent dies, and leave nothing"
    )
    parser.add_argument("--no-metrics", dest="metrics", action="store_false")
    options = parser.parse_args()
    logs.set_up("text", verbose=False)
    if options.with_parent:
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        claim_pool(options.directory)
    except KestrelError as error:
        log.error("%s%s", error.message, f": {error.cause}" if error.cause else "")
        return error.exit_status
    try:
        supervisor = Supervisor(
            options.directory,
            options.name,
            options.workers,
            options.executor,
            options.isolation,
            metrics=options.metrics,
            processors=options.processors,
            domain=options.domain,
            federation=options.federation,
            environments=options.environments,
            properties=options.properties,
            commands=options.commands,
            handlers=options.handlers,
            triggers=options.triggers,
            mail=options.mail,
            send_limits=options.send_limits,
            poll_bytes=options.poll_bytes,
        )
        asyncio.run(supervisor.run())
    except KestrelError as error:
        cause = f": {error.cause}" if error.cause else ""
        hint = f" ({error.hint})" if error.hint else ""
        log.error("%s%s%s", error.message, cause, hint)
        return error.exit_status
    except OSError as error:
        log.error("%s cannot be used: %s", error.filename or options.directory, error.strerror)
        return KestrelError.exit_status
    else:
        if options.with_parent:
            shutil.rmtree(options.directory, ignore_errors=True)
        return 0
    finally:
        remove_state(options.directory)


if __name__ == "__main__":
    sys.exit(main())
