"""A pool whose store is in PostgreSQL, when its manager or its database is killed."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from daemons import Spawn, answering, until
from postgresqlkit import PostgresqlServer, database_of, running_server
from postgresqlpool import TASKS, PoolOnPostgresql, ada, until_done

from kestrelctl.protocol import requests as rq
from kestrelctl.xmpp.prosody import PrivateServer
from kestrelctl.xmpp.user import UserConnection


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A database that waits for its disk."""
    with running_server(fsync=True) as found:
        yield found


@pytest.fixture
async def pool(
    private_server: PrivateServer, server: PostgresqlServer, spawn: Spawn, tmp_path: Path
) -> PoolOnPostgresql:
    return PoolOnPostgresql(private_server, server.new_database(), spawn, tmp_path)


@pytest.fixture
async def user(
    private_server: PrivateServer, pool: PoolOnPostgresql
) -> AsyncIterator[UserConnection]:
    async with ada(private_server) as found:
        await answering(found)
        yield found


async def test_a_manager_that_is_killed_loses_nothing_and_accepts_nothing_twice(
    pool: PoolOnPostgresql, user: UserConnection, server: PostgresqlServer
) -> None:
    await user.ask(rq.SubmitJob(spec=pool.spec()))
    await until(lambda: len(pool.left()) > TASKS // 4, 60.0)
    pool.manager.send_signal(signal.SIGKILL)
    pool.manager.wait()
    assert len(pool.left()) < TASKS, "it was killed in the middle"
    pool.starts()
    await answering(user)
    job = await until_done(user)
    assert (job.state, job.done) == ("done", TASKS)
    assert sorted(pool.left(), key=int) == [str(n) for n in range(TASKS)]
    [sums] = server.run("SELECT attempts, tasks FROM jobs", database=database_of(pool.conninfo))
    assert sums == (TASKS, TASKS), "each result was taken in once"
    pool.manager.send_signal(signal.SIGTERM)
    assert pool.manager.wait() == 0


async def test_a_database_that_is_killed_and_comes_back_is_gone_on_with(
    pool: PoolOnPostgresql, user: UserConnection, server: PostgresqlServer
) -> None:
    await user.ask(rq.SubmitJob(spec=pool.spec()))
    await until(lambda: len(pool.left()) > TASKS // 4, 60.0)
    server.stop()
    assert len(pool.left()) < TASKS, "it was stopped in the middle"
    # It falls silent as soon as it cannot renew its lease: whether users hear why is chance.
    await until(lambda: "this manager does not lead now" in pool.log.read_text(), 30.0)
    server.start()
    await answering(user)
    job = await until_done(user)
    assert (job.state, job.done) == ("done", TASKS)
    assert sorted(pool.left(), key=int) == [str(n) for n in range(TASKS)]
    [sums] = server.run("SELECT attempts, tasks FROM jobs", database=database_of(pool.conninfo))
    assert sums == (TASKS, TASKS), "each result was taken in once"
    assert pool.manager.poll() is None, "it is the same manager"
