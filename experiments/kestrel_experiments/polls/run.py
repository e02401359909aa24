"""Polls many workers of a throw-away pool, with and without a limit, and watches its manager."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import msgspec
import psutil

from kestrel_experiments.polls.result import PollRun
from kestrelctl.errors import KestrelError
from kestrelctl.local.control import connect_local, throw_away_pool
from kestrelctl.protocol.answers import Traffic
from kestrelctl.protocol.properties import ListProperties, PropertyList
from kestrelctl.protocol.requests import PoolTraffic
from kestrelctl.xmpp.user import UserConnection

#: The time in which all workers must have told something.
READY_SECONDS = 120.0
#: Time between two looks at how many polls wait.
LOOK_SECONDS = 5.0
_TRIGGER = "[poll]\nexpr = True\ncmd = query()\nticks = {seconds:g}\n"
_WAITING = 'kestrel_sends_waiting{kind="polls"} '


class PollPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is to be made; see `PollRun`.

    Attributes:
        run_seconds: how long it is watched, after the first poll has been answered.
    """

    clients: int
    reply_bytes: int = 10_000
    poll_seconds: float = 10.0
    limit_per_second: float | None = None
    run_seconds: int = 120


async def poll_run(plan: PollPlan, say: Callable[[str], None]) -> PollRun:
    """Makes a run.

    Raises:
        KestrelError: the pool did not come up, or not all workers told something.
    """
    limits = () if plan.limit_per_second is None else (f"polls={plan.limit_per_second:g}",)
    with tempfile.TemporaryDirectory(prefix="kestrel-") as directory:
        triggers = Path(directory, "triggers.ini")
        triggers.write_text(_TRIGGER.format(seconds=plan.poll_seconds))
        async with (
            throw_away_pool(
                plan.clients,
                "inline",
                triggers=(triggers,),
                send_limits=limits,
                poll_bytes=plan.reply_bytes,
            ) as pool,
            connect_local(pool) as user,
        ):
            await _all_have_told(user, plan.clients)
            await asyncio.sleep(2 * plan.poll_seconds)
            manager = psutil.Process(pool.manager_pid)
            say(f"{plan.clients:,} workers are there")
            return await _watched(plan, user, manager, pool.metrics)


async def _all_have_told(user: UserConnection, clients: int) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        answer = await user.ask(ListProperties(names=[]))
        assert isinstance(answer, PropertyList)
        if answer.properties and answer.properties[0].summary.count >= clients:
            return
        await asyncio.sleep(0.5)
    raise KestrelError(f"not all of {clients:,} workers have told a value")


async def _watched(
    plan: PollPlan, user: UserConnection, manager: psutil.Process, metrics: str
) -> PollRun:
    seconds: list[int] = []
    memory: list[int] = []
    most_waiting = 0
    before_bytes = await _received(user)
    began, before = time.monotonic(), manager.cpu_times()
    looked_at = began
    for second in range(1, plan.run_seconds + 1):
        await asyncio.sleep(max(0.0, began + second - time.monotonic()))
        now_bytes = await _received(user)
        seconds.append(now_bytes - before_bytes)
        before_bytes = now_bytes
        memory.append(manager.memory_info().rss)
        if plan.limit_per_second is not None and time.monotonic() - looked_at > LOOK_SECONDS:
            looked_at = time.monotonic()
            most_waiting = max(most_waiting, await asyncio.to_thread(_waiting, metrics))
    after = manager.cpu_times()
    used = after.user + after.system - before.user - before.system
    return PollRun(
        clients=plan.clients,
        reply_bytes=plan.reply_bytes,
        poll_seconds=plan.poll_seconds,
        limit_per_second=plan.limit_per_second,
        received_bytes=seconds,
        cpu_ratio=used / (time.monotonic() - began),
        rss_bytes=sum(memory) // max(1, len(memory)),
        most_waiting=most_waiting,
    )


async def _received(user: UserConnection) -> int:
    answer = await user.ask(PoolTraffic())
    assert isinstance(answer, Traffic)
    return sum(
        size for kind, way, _, size in answer.messages if (kind, way) == ("properties", "in")
    )


def _waiting(metrics: str) -> int:
    with urlopen(metrics, timeout=10.0) as page:
        text: str = page.read().decode()
    found = [line for line in text.splitlines() if line.startswith(_WAITING)]
    return int(float(found[0].rpartition(" ")[2])) if found else 0
