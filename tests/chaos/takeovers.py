"""Managers, database and server of a pool are killed and frozen: `takeovers.py [SECONDS [SEED]]`.

Two managers share a store; every few seconds a random one of what the pool stands on is struck,
while tasks run that leave a line each. Then there is peace, and each task must have run once, and
its result been taken in once: a takeover is no reason to run anything twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from daemons import answering, spawning
from shared_store import SharedPool, shared_pool

from kestrelctl.errors import KestrelError
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

EVERY_SECONDS = 6.0
#: Longer than a lease, and shorter.
FREEZE_SECONDS = (9.0, 1.0)
#: Tasks for each second of a storm: some are left at its end.
TASKS_A_SECOND = 250
#: Until all that is left is done, in peace.
PEACE_SECONDS = 300.0


class Takeovers:
    """A pool with two managers, and the hands that strike it."""

    def __init__(self, pool: SharedPool, user: UserConnection, dice: Random) -> None:
        self._pool = pool
        self._user = user
        self._dice = dice
        self._managers: dict[str, subprocess.Popen[str]] = {}
        self.struck: Counter[str] = Counter()

    def start(self, name: str) -> None:
        """Starts a manager, again if it has ended: as a service manager would."""
        self._managers[name] = self._pool.start_manager(name)

    async def strike(self) -> None:
        """Strikes once, at random."""
        blows = [
            self._kill, self._freeze, self._freeze, self._stop, self._hand_over,
            self._end_database, self._end_server,
        ]  # fmt: skip
        blow = self._dice.choice(blows)
        self.struck[blow.__name__.strip("_").replace("_", " ")] += 1
        await blow()

    def _one(self) -> str:
        return self._dice.choice([*self._managers])

    async def _kill(self) -> None:
        name = self._one()
        self._managers[name].kill()
        self._managers[name].wait()
        self.start(name)

    async def _stop(self) -> None:
        name = self._one()
        self._managers[name].send_signal(signal.SIGTERM)
        await asyncio.to_thread(self._managers[name].wait, 60)
        self.start(name)

    async def _freeze(self) -> None:
        process = self._managers[self._one()]
        process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self._dice.choice(FREEZE_SECONDS))
        finally:
            process.send_signal(signal.SIGCONT)

    async def _hand_over(self) -> None:
        with contextlib.suppress(KestrelError):  # nobody stands by at the moment
            await self._user.ask(rq.HandOver())

    async def _end_database(self) -> None:
        database = self._pool.database
        await asyncio.to_thread(database.stop, self._dice.choice(("immediate", "fast")))
        await asyncio.sleep(self._dice.uniform(0.0, 3.0))
        await asyncio.to_thread(database.start)

    async def _end_server(self) -> None:
        await self._pool.end_server()
        await asyncio.sleep(self._dice.uniform(0.0, 3.0))
        await self._pool.start_server()

    def start_what_has_ended(self) -> None:
        for name, process in self._managers.items():
            if process.poll() is not None:
                self.struck[f"ended by itself with {process.returncode}"] += 1
                self.start(name)


async def main(seconds: float, seed: int) -> None:
    """Strikes for so long, then looks what came of it.

    Raises:
        AssertionError: a promise was broken.
    """
    tasks = int(seconds * TASKS_A_SECOND)
    with tempfile.TemporaryDirectory(prefix="kestrel-takeovers-") as directory, spawning() as spawn:
        async with shared_pool(spawn, Path(directory)) as pool, pool.connect() as user:
            takeovers = Takeovers(pool, user, Random(seed))
            for name in ("a", "b"):
                takeovers.start(name)
            for name in ("w1", "w2"):
                pool.start_worker(name)
            await answering(user)
            await pool.submit(user, tasks)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                await asyncio.sleep(min(EVERY_SECONDS, max(0.0, until - time.monotonic())))
                await takeovers.strike()
                takeovers.start_what_has_ended()
            left = tasks - len(pool.left())
            epochs = pool.sql("SELECT epoch FROM pool")
            print(f"{left:,} of {tasks:,} tasks left in peace; epoch {epochs[0][0]}")
            for what, times in sorted(takeovers.struck.items()):
                print(f"{times:5} {what}")
            await pool.all_done_once(user, tasks, PEACE_SECONDS)
    print("all promises hold")


if __name__ == "__main__":
    asyncio.run(main(float((sys.argv[1:] or ["600"])[0]), int((sys.argv[2:] or ["1"])[0])))
