"""A manager that is killed in the middle of its commits: what it acknowledged is there, whole."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import crashing_writer
import pytest
from crashing_writer import batch, opened, store_in
from postgresqlkit import PostgresqlServer, running_server

from kestrelctl.core.model.records import Happening, TaskRecord
from kestrelctl.store.postgresql.store import PostgresqlStore
from kestrelctl.store.sqlite.store import SqliteStore

ROUNDS = 25
#: It has imported the stores, which takes longer than a round.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([crashing_writer.__name__])


def run_and_kill(data_dir: Path, conninfo: str, batches: int, delay_seconds: float) -> int:
    """Kills the process after so many batches and a bit; returns the last it said to be durable."""
    heard, said = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=crashing_writer.live, args=(data_dir, conninfo, said))
    process.start()
    said.close()
    with heard:
        try:
            numbers = [heard.recv() for _ in range(batches + 1)]
            time.sleep(delay_seconds)
        finally:
            process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        while heard.poll():
            try:
                numbers.append(heard.recv())
            except EOFError:
                break
    first, last = numbers[0], numbers[-1]
    assert numbers == list(range(first, last + 1))
    assert isinstance(last, int)
    return last


def check(store: SqliteStore | PostgresqlStore, durable: int) -> int:
    """Finds each batch up to the last durable one whole, and at most one more, whole too."""
    found = store.jobs(ids=[1])[0].cursor
    assert found in (durable, durable + 1)
    jobs = {job.job_id: job for job in store.jobs(limit=10 * found + 10)}
    kept = {n + 1 for n in range(1, found + 1) if n + 10 > found or n <= 10}
    assert set(jobs) == kept | {1}
    for job_id in kept:
        assert store.tasks(job_id) == [r for r in batch(job_id - 1) if isinstance(r, TaskRecord)]
        assert store.happenings(job_id) == [
            r for r in batch(job_id - 1) if isinstance(r, Happening)
        ]
    assert store.tasks(found + 2) == []
    # Also none that nobody can ask for, because their job is not there.
    of_whom = store._reader.execute("SELECT DISTINCT job_id FROM happenings").fetchall()
    assert {job_id for (job_id,) in of_whom} == kept
    return found


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """A database that waits for its disk."""
    with running_server(fsync=True) as found:
        yield found


@pytest.mark.parametrize("where", ["sqlite", "postgresql"])
def test_what_was_acknowledged_before_a_kill_is_there(
    tmp_path: Path, request: pytest.FixtureRequest, where: str
) -> None:
    conninfo = ""
    if where == "postgresql":
        conninfo = request.getfixturevalue("server").new_database()
    chance = random.Random(2009)
    found = 0
    for round_number in range(ROUNDS):
        batches, delay = chance.randrange(12), chance.random() * 0.005
        durable = run_and_kill(tmp_path, conninfo, batches, delay)
        assert durable >= found + batches
        store = store_in(tmp_path, conninfo)
        snapshot = opened(store)
        assert snapshot.epoch == 2 * round_number + 2
        assert not any(job.unfinished for job in snapshot.jobs[1:])
        found = check(store, durable)
        assert snapshot.next_job_id == found + 2
        store.close()
