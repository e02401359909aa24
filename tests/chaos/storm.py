"""A pool of many worker processes behind lines that fail, and what is done to it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
from blows import Blow
from brokenpool import BrokenPool
from line import Line

from kestrelctl.local.control import throw_away_pool
from kestrelctl.local.supervisor import Child
from kestrelctl.worker.run.orphans import PR_SET_CHILD_SUBREAPER, Children, kill, prctl
from kestrelctl.xmpp.prosody import PrivateServer

#: Pause before a worker that has ended is started again, as a service manager would.
RESTART_SECONDS = 0.5
#: How long a worker gets to end its tasks and itself.
STOP_SECONDS = 15.0
#: Worker sessions of the pool's own supervisor, which have no line of their own.
OWN_WORKERS = 2

_SIGNALS = {"drain": signal.SIGTERM, "stop": signal.SIGTERM, "kill": signal.SIGKILL}


class Storm:
    """A pool, and the hands that break it."""

    def __init__(self, pool: BrokenPool, lines: list[Line], far: list[Child]) -> None:
        self.pool = pool
        self.lines = lines
        self.far = far
        self.struck: Counter[str] = Counter()
        self.missed: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self._broken: list[Line | psutil.Process] = []
        self._timers: list[asyncio.TimerHandle] = []
        self._children = Children()

    # -- blows -------------------------------------------------------------------------------------

    async def rage(self, blows: list[Blow]) -> None:
        """Strikes each blow at its time, then makes peace."""
        began = time.monotonic()
        try:
            for blow in blows:
                await asyncio.sleep(max(0.0, began + blow.at - time.monotonic()))
                self._strike(blow)
        finally:
            for timer in self._timers:
                timer.cancel()
            for each in self._broken:
                _mend(each)

    def _strike(self, blow: Blow) -> None:
        how, _, whom = blow.kind.partition(" ")
        if whom.startswith("line"):
            line = self.lines[blow.target]
            if how == "drop":
                line.drop()
            else:
                line.cut(up=whom != "line from server", down=whom != "line to server")
            self._later(blow.seconds, line)
        else:
            # What is to end in an orderly way is told so as a service manager does: at the keeper.
            itself = whom == "worker" and how in ("kill", "freeze")
            process = self._find(whom, blow.target, keeper=not itself)
            try:
                if process is None:
                    raise psutil.NoSuchProcess(0)
                if how == "freeze":
                    process.suspend()
                    self._later(blow.seconds, process)
                elif blow.kind == "stop worker":
                    process.send_signal(signal.SIGHUP)
                else:
                    process.send_signal(_SIGNALS[how])
            except psutil.NoSuchProcess:
                self.missed[blow.kind] += 1
                return
        self.struck[blow.kind] += 1
        self.seconds[blow.kind] += round(blow.seconds)

    def _find(self, whom: str, target: int, *, keeper: bool) -> psutil.Process | None:
        """The process that is meant; None if it is just not there."""
        with contextlib.suppress(psutil.NoSuchProcess, IndexError):
            if whom == "manager":
                return psutil.Process(self.pool.state.manager_pid)
            if whom == "server":
                return psutil.Process(self.pool.state.server_pid)
            pids = [child.pid for child in self.far] + self.pool.state.worker_pids
            found = psutil.Process(pids[target]) if pids[target] else None
            if found is None or (keeper and whom != "launcher"):
                return found
            worker = found.children()[0]
            if whom != "launcher":
                return worker
            named = (each for each in worker.children() if each.name().startswith("kestrel-launch"))
            return next(named, None)
        return None

    def _later(self, seconds: float, broken: Line | psutil.Process) -> None:
        """Has it mended after so many seconds, or at the end of the storm."""
        self._broken.append(broken)
        loop = asyncio.get_running_loop()
        self._timers.append(loop.call_later(seconds, _mend, broken))

    # -- the workers -------------------------------------------------------------------------------

    async def keep_running(self) -> None:
        """Starts workers again that have ended, and ends what they left, until it is cancelled."""
        start_at: dict[Child, float] = {}
        while True:
            for child in self.far:
                if child.process is not None and child.process.poll() is not None:
                    child.process = None
                    start_at[child] = time.monotonic() + RESTART_SECONDS
                if child.process is None and time.monotonic() >= start_at[child]:
                    child.start()
            self._end_strangers()
            await asyncio.sleep(0.1)

    def _end_strangers(self) -> None:
        """Ends tasks whose keeper was killed: they are handed to this process."""
        own = {child.pid for child in self.far} | {self.pool.state.pid}
        for pid in map(int, self._children.listing().split()):
            if pid not in own:
                kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    async def stop(self) -> None:
        for child in self.far:
            if child.process is not None:
                child.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + STOP_SECONDS
        while any(c.process is not None and c.process.poll() is None for c in self.far):
            if time.monotonic() > deadline:
                for child in self.far:
                    if child.process is not None:
                        child.process.kill()
            await asyncio.sleep(0.05)
        self._end_strangers()
        self._children.close()


def _mend(broken: Line | psutil.Process) -> None:
    if isinstance(broken, Line):
        broken.mend()
    else:
        with contextlib.suppress(psutil.NoSuchProcess):
            broken.resume()


@contextlib.asynccontextmanager
async def storm(
    processes: int, sessions: int, directory: Path, isolation: str = "plain"
) -> AsyncIterator[Storm]:
    """A pool with so many worker processes behind lines, and two workers of its own.

    This process becomes a subreaper.

    Args:
        sessions: of all worker processes behind lines together.
        isolation: the rung of these workers. All tasks may write into the directory of the
            witness, and nowhere else below `directory`.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    async with throw_away_pool(OWN_WORKERS) as state, contextlib.AsyncExitStack() as stack:
        witness = directory / "seen"
        witness.mkdir()
        pool = BrokenPool(state, witness / "witness")
        lines = [await stack.enter_async_context(Line(state.port).open()) for _ in range(processes)]
        shares = [len(range(index, sessions, processes)) for index in range(processes)]
        far = [
            _far_worker(pool, line, index, share, directory, isolation)
            for index, (line, share) in enumerate(zip(lines, shares, strict=True))
        ]
        found = Storm(pool, lines, far)
        for child in far:
            child.start()
        keeping = asyncio.create_task(found.keep_running())
        try:
            yield found
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
            await found.stop()


def _far_worker(
    pool: BrokenPool, line: Line, index: int, sessions: int, directory: Path, isolation: str
) -> Child:
    state = pool.state
    server = PrivateServer(
        Path(state.password_file).parent / "server", state.domain, state.port, 0, ""
    )
    accounts = [f"far{index}-{n}@{server.workers_domain}" for n in range(sessions)]
    credentials = directory / f"far-{index}.credentials"
    credentials.touch(mode=0o600)
    credentials.write_text("".join(f"{jid} {server.add_account(jid)}\n" for jid in accounts))
    command = [
        sys.executable, "-m", "kestrelctl", "worker", "run",
        "--pool", state.domain, "--port", str(line.port), "--no-tls",
        "--cpus", "1", "--memory", "100M", "--sessions", str(sessions),
        "--credentials", str(credentials), "--data-dir", str(directory / f"far-{index}"),
        "--isolation", isolation, "--share", str(pool.witness.parent),
    ]  # fmt: skip
    return Child(
        f"far-{index}",
        command,
        directory,
        death_signal=signal.SIGHUP,
        stop_signals=(signal.SIGHUP,),
    )
