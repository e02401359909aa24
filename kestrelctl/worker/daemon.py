"""`kestrelctl worker run`: one process, one executor, one or many sessions."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import secrets
import signal
from pathlib import Path

import msgspec

from kestrelctl import logs
from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.counting.histogram import Histogram
from kestrelctl.core.counting.totals import RUN_BOUNDS
from kestrelctl.core.model.ad import WorkerAd
from kestrelctl.core.model.result import Outcome, Result
from kestrelctl.errors import KestrelError, NotAllowed
from kestrelctl.metrics.stanzas import StanzaCounts
from kestrelctl.notify import Notifier
from kestrelctl.worker.credentials import read_credentials
from kestrelctl.worker.discovery import discover
from kestrelctl.worker.execution import ProcessExecutor
from kestrelctl.worker.inline import InlineExecutor
from kestrelctl.worker.launch import Executor, Exit, Launch
from kestrelctl.worker.options import WorkerOptions
from kestrelctl.worker.session import WorkerSession
from kestrelctl.worker.spool import Spool
from kestrelctl.xmpp import session

log = logging.getLogger(__name__)

#: Exit status after a second signal, which ends tasks instead of waiting for them.
STOPPED = 143
#: How long a drained worker waits for acknowledgements when the pool is away; results stay spooled.
UNHEARD_SECONDS = 5.0
#: Pause between two logins of a process with many sessions, so that the server is not flooded.
LOGIN_PAUSE_SECONDS = 0.002

#: By number, as `Outcome` counts them.
OUTCOMES = ("done", "failed", "killed", "unable")

_encode = msgspec.json.Encoder().encode


class WorkerProcess:
    """What the sessions of one process share: executor, spool, and the way out."""

    def __init__(self, options: WorkerOptions) -> None:
        self.options = options
        self.incarnation = secrets.token_hex(8)
        self.sessions: list[WorkerSession] = []
        self.done = asyncio.Event()
        self.refused: str | None = None
        self.stopped = False
        self.notifier = Notifier(self.status)
        self.stanzas = StanzaCounts()
        self.finished = dict.fromkeys(OUTCOMES, 0)
        self.runs = Histogram(RUN_BOUNDS)
        self._draining = False
        self._session_of: dict[int, WorkerSession] = {}
        self._unspooled: list[Result] = []
        self._reporting: dict[WorkerSession, None] = {}
        self._flush_planned = False
        self._degraded: str | None = None
        self._loop = asyncio.get_running_loop()
        self._spool = Spool(options.data_dir / "spool")
        self.executor: Executor = (
            InlineExecutor(self._on_exit)
            if options.executor == "inline"
            else ProcessExecutor(options.data_dir / "tasks", self._on_exit)
        )

    def add_sessions(self) -> list[session.Session]:
        """Makes the sessions; those left by an earlier process report through the first one."""
        options = self.options
        machine = discover()
        n = options.sessions
        ad = WorkerAd(
            cpus=options.cpus or (float(machine.cpus) if n == 1 else 1.0),
            memory_bytes=options.memory_bytes or machine.memory_bytes // n,
            tags=options.tags,
            host=machine.hostname,
            os=machine.os,
            arch=machine.arch,
            version=machine.kestrel_version,
        )
        decode = msgspec.json.Decoder(Result).decode
        left = [decode(payload) for _, payload in self._spool.load()]
        if left:
            log.info("%d results of an earlier run are still to be reported", len(left))
        connections = []
        accounts = read_credentials(options.credentials, n, machine.hostname)
        for index, (jid, password) in enumerate(accounts):
            agent = Agent(ad.cpus, ad.memory_bytes, left if index == 0 else ())
            worker = WorkerSession(f"s{index + 1}", options.pool, ad, agent, self, jid)
            worker.session = session.client(
                jid,
                password,
                options.host,
                options.port,
                worker,
                tls=options.tls,
                ca_file=options.ca_file,
            )
            self.sessions.append(worker)
            connections.append(worker.session)
        return connections

    # -- what sessions share -----------------------------------------------------------------------

    def _on_exit(self, end: Exit) -> None:
        session_of = self._session_of.pop(end.number, None)
        if session_of is not None:
            session_of.on_exit(end)

    def start(self, worker: WorkerSession, launch: Launch) -> None:
        self._session_of[launch.number] = worker
        self.executor.start(launch)

    def spool(self, result: Result) -> None:
        self._unspooled.append(result)
        self._plan_flush()

    def forget(self, numbers: list[int]) -> None:
        self._spool.forget(numbers)

    def wants_to_report(self, worker: WorkerSession) -> None:
        self._reporting[worker] = None
        self._plan_flush()

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """One write to the spool for all that ended in this turn, then the reports."""
        self._flush_planned = False
        if self._unspooled:
            self._spool.append([(result.number, _encode(result)) for result in self._unspooled])
            self._count(self._unspooled)
            self._unspooled.clear()
            if self._spool.degraded != self._degraded:
                self._degraded = self._spool.degraded
                log.warning("spool: %s", self._degraded or "written to disk again")
        reporting, self._reporting = self._reporting, {}
        for worker in reporting:
            worker.report()

    def status(self) -> str:
        """One line on how this worker is."""
        online = sum(worker.session.online for worker in self.sessions)
        link = self.sessions[0].session.link
        if len(self.sessions) > 1:
            link = f"{online:,} of {len(self.sessions):,} sessions connected"
        draining = "draining; " if self._draining else ""
        return f"{draining}{link}; {self.executor.running:,} tasks run"

    def _count(self, results: list[Result]) -> None:
        for result in results:
            self.finished[OUTCOMES[result.outcome]] += 1
        own = (Outcome.DONE, Outcome.FAILED)
        self.runs.observe_all([r.wall_seconds for r in results if r.outcome in own])

    @property
    def spool_bytes(self) -> int:
        """Size of the spool on disk."""
        return self._spool.size_bytes

    @property
    def spool_degraded(self) -> bool:
        """Whether results are only in memory."""
        return self._spool.degraded is not None

    # -- the way out -------------------------------------------------------------------------------

    def on_refused(self, reason: str) -> None:
        self.refused = reason
        self.done.set()

    def on_progress(self) -> None:
        if not self._draining:
            return
        if all(worker.agent.idle for worker in self.sessions):
            self.done.set()
        elif not any(worker.agent.running for worker in self.sessions):
            self._loop.call_later(UNHEARD_SECONDS, self.done.set)

    def on_signal(self) -> None:
        """The first signal drains, the second stops."""
        if self._draining:
            self.stop()
            return
        running = sum(len(worker.agent.running) for worker in self.sessions)
        log.info("draining: %d tasks run; a second signal ends them", running)
        self._draining = True
        self.notifier.stopping()
        for worker in self.sessions:
            worker.drain()
        self.on_progress()

    def stop(self) -> None:
        """Ends at once; what runs is ended and will be run again elsewhere."""
        log.warning("stopping; running tasks are ended")
        self.stopped = True
        self.done.set()

    async def close(self) -> None:
        """Ends tasks, connections and the spool."""
        await self.executor.close()
        await asyncio.gather(*(worker.session.stop() for worker in self.sessions))
        self._spool.close()
        self.notifier.close()


async def serve(options: WorkerOptions) -> int:
    """Runs a worker until it has drained or is stopped; returns its exit status.

    Raises:
        KestrelError: it cannot start.
        NotAllowed: the server or the pool refuses it.
    """
    process = WorkerProcess(options)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, process.on_signal)
    loop.add_signal_handler(signal.SIGHUP, process.stop)
    monitor = None
    try:
        connections = process.add_sessions()
        if options.metrics:
            from kestrelctl.worker.monitor import watch

            monitor = await watch(options.metrics, process)
        gc.collect()
        gc.freeze()
        process.notifier.ready()
        log.info("worker with %d sessions for %s", len(connections), options.pool)
        for connection in connections:
            connection.start()
            if len(connections) > 1:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.done.wait(), LOGIN_PAUSE_SECONDS)
            if process.done.is_set():
                break
        await process.done.wait()
    finally:
        if monitor is not None:
            await monitor.stop()
        await process.close()
    if process.refused:
        raise NotAllowed("the worker was refused", cause=process.refused)
    return STOPPED if process.stopped else 0


def run(options: WorkerOptions) -> int:
    """The daemon's main program; returns the exit status."""
    logs.set_up(options.log_format, verbose=options.verbose)
    Path(options.data_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        return asyncio.run(serve(options))
    except OSError as error:
        raise KestrelError("the worker cannot start", cause=str(error)) from error
