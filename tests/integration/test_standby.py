"""Two managers of a pool: the one that stands by goes on when the other one is gone, or hangs."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from daemons import Spawn, answering, until
from shared_store import SharedPool, shared_pool

from kestrelctl.errors import KestrelError
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.user import UserConnection

TASKS = 2_000
#: The longest from the blow until tasks are handed out again.
KILLED_SECONDS, FROZEN_SECONDS = 3.0, 10.0
DONE_SECONDS = 120.0


@pytest.fixture
async def pool(spawn: Spawn, tmp_path: Path) -> AsyncIterator[SharedPool]:
    async with shared_pool(spawn, tmp_path) as found:
        yield found


@pytest.fixture
async def user(pool: SharedPool) -> AsyncIterator[UserConnection]:
    async with pool.connect() as found:
        yield found


@pytest.fixture
def frozen() -> Iterator[Callable[[subprocess.Popen[str]], None]]:
    """Freezes a process; it goes on at the end, so that it can be ended."""
    found: list[subprocess.Popen[str]] = []

    def freeze(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGSTOP)
        found.append(process)

    yield freeze
    for process in found:
        process.send_signal(signal.SIGCONT)


async def leading_in_the_middle(pool: SharedPool, user: UserConnection) -> subprocess.Popen[str]:
    """The manager that leads, while tasks run and another one stands by."""
    first = pool.start_manager("a")
    await answering(user)
    pool.start_manager("b")
    await pool.until_one_stands_by(user)
    pool.start_worker()
    await pool.submit(user, TASKS)
    await until(lambda: len(pool.left()) > TASKS // 8, 60.0)
    return first


async def test_a_manager_that_is_killed_is_replaced_and_nothing_runs_twice(
    pool: SharedPool, user: UserConnection
) -> None:
    first = await leading_in_the_middle(pool, user)
    first.kill()
    first.wait()
    took = await pool.goes_on()
    print(f"killed: {took:.2f} s")
    assert took < KILLED_SECONDS
    await pool.all_done_once(user, TASKS, DONE_SECONDS)


async def test_a_manager_that_is_frozen_is_replaced_and_says_nothing_when_it_goes_on(
    pool: SharedPool, user: UserConnection, frozen: Callable[[subprocess.Popen[str]], None]
) -> None:
    first = await leading_in_the_middle(pool, user)
    frozen(first)
    took = await pool.goes_on()
    print(f"frozen: {took:.2f} s")
    assert took < FROZEN_SECONDS
    first.send_signal(signal.SIGCONT)
    await pool.all_done_once(user, TASKS, DONE_SECONDS)
    await pool.until_one_stands_by(user)
    assert "it stands by from now on" in pool.log("a")
    assert first.poll() is None


async def test_an_admin_hands_the_pool_over_and_back(
    pool: SharedPool, user: UserConnection
) -> None:
    managers = [pool.start_manager("a")]
    await answering(user)
    managers.append(pool.start_manager("b"))
    await pool.until_one_stands_by(user)
    pool.start_worker()
    await pool.submit(user, TASKS)
    for _ in range(2):
        await until(lambda: len(pool.left()) > TASKS // 8, 60.0)
        assert isinstance(await user.ask(rq.HandOver()), an.Changed)
        took = await pool.goes_on()
        print(f"handed over: {took:.2f} s")
        await answering(user)
        await pool.until_one_stands_by(user)
    await pool.all_done_once(user, TASKS, DONE_SECONDS)
    assert [each.poll() for each in managers] == [None, None]
    assert pool.sql("SELECT epoch FROM pool") == [(3,)]


async def test_a_pool_on_sqlite_gets_a_second_manager_and_loses_no_task(
    pool: SharedPool, user: UserConnection
) -> None:
    """As docs/operations.md says, while its tasks run."""
    former = pool.start_manager("a", in_sqlite=True)
    await answering(user)
    pool.start_worker()
    await pool.submit(user, TASKS)
    await until(lambda: len(pool.left()) > TASKS // 8, 60.0)
    former.send_signal(signal.SIGTERM)
    assert former.wait(30) == 0
    pool.migrate("a")
    pool.start_manager("a")
    await answering(user)
    pool.start_manager("b")
    await pool.until_one_stands_by(user)
    assert isinstance(await user.ask(rq.HandOver()), an.Changed)
    await pool.all_done_once(user, TASKS, DONE_SECONDS)


async def test_a_pool_with_one_manager_is_handed_to_nobody(
    pool: SharedPool, user: UserConnection
) -> None:
    pool.start_manager("a")
    await answering(user)
    with pytest.raises(KestrelError, match="no manager stands by"):
        await user.ask(rq.HandOver())
    assert await pool.seen(user) == [(True, "")]


async def test_one_that_cannot_reach_the_server_takes_nothing_over(
    pool: SharedPool, user: UserConnection
) -> None:
    first = pool.start_manager("a")
    await answering(user)
    other = pool.start_manager("b", "--port", "1")
    async with asyncio.timeout(60.0):
        while len(found := await pool.seen(user)) < 2:
            await asyncio.sleep(0.1)
    assert found[1][1].startswith("the XMPP server at 127.0.0.1:1 cannot be reached")
    first.send_signal(signal.SIGTERM)
    assert first.wait(30) == 0
    await asyncio.sleep(1.0)
    assert pool.sql("SELECT until = '-infinity' FROM leader") == [(True,)]
    assert other.poll() is None
