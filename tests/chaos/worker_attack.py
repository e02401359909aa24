"""Accounts of workers that take tasks and say of them whatever comes to mind."""

from __future__ import annotations

import asyncio
import time
from random import Random
from typing import Any

from attacked import Attacked
from nasty import TAME, Nasty, kinds
from puppet import Puppet

from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.protocol import codec, directions, workers

#: Of one account, before the pool is looked at.
MESSAGES = 150
_OF_WORKERS: dict[str, list[Any]] = {
    **TAME,
    "outcome": [0, 1, 2, 3, 4],
    "started_at": [time.time()],
    "version": [workers.VERSION, workers.VERSION, "0.2.0"],
    "wall_seconds": [1.0],
}


class Workers:
    """Three accounts, and jobs for them."""

    def __init__(self, attacked: Attacked, dice: Random) -> None:
        self._attacked = attacked
        self._each = [
            WorkerAttack(attacked, name, dice.randrange(1 << 30))
            for name in ("mallory", "mordred", "morgan")
        ]

    async def attack(self) -> None:
        await bait(self._attacked)
        await asyncio.gather(*(each.attack(MESSAGES) for each in self._each))


class WorkerAttack:
    """Sessions of one worker's account."""

    def __init__(self, attacked: Attacked, name: str, seed: int) -> None:
        self._attacked = attacked
        self._name = name
        self._dice = Random(seed)
        self._nasty = Nasty(self._dice, _OF_WORKERS)
        self._kinds = kinds(directions.FromAnyWorker)

    async def attack(self, messages: int) -> None:
        state = self._attacked.pool.state
        left = messages
        while left > 0:
            session = min(left, self._dice.choice((1, 10, 50, 100)))
            left -= session
            async with Puppet(state, self._name, "workers") as puppet:
                for _ in range(session):
                    await self._one(puppet, f"pool@{state.domain}")

    async def _one(self, puppet: Puppet, to: str) -> None:
        chance = self._dice.random()
        kind = workers.Hello if chance < 0.2 else workers.Report if chance < 0.4 else None
        if chance > 0.97:
            puppet.session.send_presence(to, self._dice.choice(("unavailable", None)))
            return
        payload = self._nasty.message(kind or self._dice.choice(self._kinds))
        if not codec.fits(payload):
            return
        self._attacked.counts["messages"] += 1
        puppet.session.send(payload, to)
        await asyncio.sleep(0.005)
        while not puppet.received.empty():
            _, answer = puppet.received.get_nowait()
            self._attacked.counts[str(answer.get("type"))] += 1
            if answer.get("type") == "run":
                numbers = [number for span in answer["spans"] for number in span[:3]]
                self._nasty.known = (self._nasty.known + numbers)[-50:]


async def bait(attacked: Attacked) -> None:
    """Jobs for workers that attack: whatever they do with them."""
    for spec in (
        JobSpec(
            program=Program(argv=("sleep", "0.2")),
            count=300,
            max_failures=3,
            items=tuple("ab" * 150),
        ),
        JobSpec(program=Program(argv=("true",), checkpoints=("c",)), count=50, priority=200),
        JobSpec(
            program=Program(argv=("true",), outputs=("o",), keep_logs=True),
            count=20,
        ),
        JobSpec(program=Program(argv=("true",)), count=4, span=4),
    ):
        await attacked.pool.submit(spec)
