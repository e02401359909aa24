"""Whether a pool that is used takes more and more memory: `soak.py [--minutes 60] [--seed 1]`.

A throw-away pool runs short jobs one after the other, while each second a worker process of its own
account comes or goes, by a signal that a seed draws. Manager and server are restarted once, half
way through the first sixth of the time. Prints their memory at the end of each sixth; ends with
status 1 if that of one of them is in the end more than 5 % above that after the first sixth.

That takes an hour: two connections to SQLite first fill their caches, 2 MB each, which a manager
that does so little does in ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "chaos"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

import psutil
from brokenpool import BrokenPool
from daemons import KESTRELCTL

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.errors import KestrelError
from kestrelctl.local.control import throw_away_pool
from kestrelctl.protocol.job_requests import SubmitJob
from kestrelctl.xmpp.prosody import PrivateServer

PARTS = 6
MOST_GROWTH = 1.05
OWN_WORKERS = 2
GUESTS = 4
TASKS = 20
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
LOOK_SECONDS = 5.0
#: The memory at some time is the median of so many looks up to then.
LOOKS = 5
PAUSE_SECONDS = 0.5
STOP_SECONDS = 15


class Guests:
    """Worker processes that come and go."""

    def __init__(self, pool: BrokenPool, directory: Path, draw: Random) -> None:
        self.came = self.went = 0
        self._draw = draw
        self._running: list[subprocess.Popen[bytes] | None] = [None] * GUESTS
        state = pool.state
        place = Path(state.password_file).parent / "server"
        server = PrivateServer(place, state.domain, state.port, 0, "")
        self._commands = []
        for n in range(GUESTS):
            jid = f"guest{n}@{server.workers_domain}"
            credentials = directory / f"guest{n}.credentials"
            credentials.touch(mode=0o600)
            credentials.write_text(f"{jid} {server.add_account(jid)}\n")
            self._commands.append([
                *KESTRELCTL, "worker", "run", "--pool", state.domain, "--port", str(state.port),
                "--no-tls", "--credentials", str(credentials), "--cpus", "1", "--isolation",
                "plain", "--data-dir", str(directory / f"guest{n}"),
            ])  # fmt: skip

    async def churn(self) -> None:
        """Lets one come or go each second, for ever."""
        while True:
            await asyncio.sleep(1)
            n = self._draw.randrange(GUESTS)
            guest = self._running[n]
            if guest is None or guest.poll() is not None:
                self._running[n] = self._start(n)
                self.came += 1
            else:
                guest.send_signal(self._draw.choice(SIGNALS))
                self.went += 1

    def _start(self, n: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._commands[n], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def stop(self) -> None:
        """Ends those that are there."""
        for guest in filter(None, self._running):
            guest.terminate()
        for guest in filter(None, self._running):
            try:
                guest.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                guest.kill()


async def load(pool: BrokenPool, ended: Counter[str]) -> None:
    """Runs short jobs, for ever; begins anew when manager or server go."""
    spec = JobSpec(program=Program(argv=("true",)), count=TASKS)
    while True:
        with contextlib.suppress(KestrelError):
            async with pool.user() as user:
                pushed = aiter(user.pushed())
                while True:
                    await user.ask(SubmitJob(spec=spec, watch=True))
                    end = await asyncio.wait_for(anext(pushed), 60)
                    ended[end.job.state] += 1
                    await asyncio.sleep(PAUSE_SECONDS)
        await asyncio.sleep(PAUSE_SECONDS)


def own_bytes(process: psutil.Process) -> int:
    return int(process.memory_full_info().uss)


async def restart(pool: BrokenPool) -> None:
    """Has the pool's supervisor start another server and another manager."""
    for find in (lambda: pool.server, lambda: pool.manager):
        before = find()
        before.terminate()
        await pool.until(lambda: not before.is_running() and find().pid != before.pid, 60)  # noqa: B023
        await asyncio.sleep(LOOK_SECONDS)


async def watch(pool: BrokenPool, seconds: float, guests: Guests, ended: Counter[str]) -> bool:
    """Prints the memory at the end of each part; returns whether it stays within the bound."""
    began = time.monotonic()
    first: dict[str, float] = {}
    within = True
    for part in range(1, PARTS + 1):
        if part == 1:
            await asyncio.sleep(seconds / PARTS / 2)
            await restart(pool)
        looks: dict[str, list[int]] = {"manager": [], "server": []}
        until = began + seconds * part / PARTS
        while not looks["server"] or time.monotonic() < until:
            await asyncio.sleep(min(LOOK_SECONDS, max(0.1, until - time.monotonic())))
            looks["manager"].append(own_bytes(pool.manager))
            looks["server"].append(own_bytes(pool.server))
        said = []
        for name, found in looks.items():
            now = statistics.median(found[-LOOKS:])
            growth = now / first.setdefault(name, now)
            within = growth <= MOST_GROWTH if part == PARTS and within else within
            said.append(f"{name} {now / 1e6:6.1f} MB ({growth:.3f})")
        jobs = ", ".join(f"{count:,} {state}" for state, count in sorted(ended.items()))
        print(
            f"after {(time.monotonic() - began) / 60:5.1f} min: {', '.join(said)}; jobs: {jobs};"
            f" workers came {guests.came:,}, went {guests.went:,}",
            flush=True,
        )
    return within


async def soak(minutes: float, seed: int) -> bool:
    with tempfile.TemporaryDirectory(prefix="kestrel-soak-") as made:
        async with throw_away_pool(OWN_WORKERS) as state:
            pool = BrokenPool(state, Path(made) / "witness")
            ended: Counter[str] = Counter()
            guests = Guests(pool, Path(made), Random(seed))
            doing = [asyncio.create_task(guests.churn()), asyncio.create_task(load(pool, ended))]
            watching = asyncio.create_task(watch(pool, 60 * minutes, guests, ended))
            try:
                await asyncio.wait([*doing, watching], return_when=asyncio.FIRST_COMPLETED)
                for each in (each for each in doing if each.done()):
                    each.result()  # it never ends but by an error
                return await watching
            finally:
                for task in (*doing, watching):
                    task.cancel()
                await asyncio.gather(*doing, watching, return_exceptions=True)
                guests.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Looks whether a pool takes more and more memory.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.exit(not asyncio.run(soak(given.minutes, given.seed)))
