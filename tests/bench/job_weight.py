"""How much memory held jobs take of a manager: `job_weight.py [KIND]`.

Each kind of job is read from JSON, taken in by a pool's core and stored on SQLite, a thousand of
25,000 arguments each or as many as take 200 MB, in a process of its own; another one starts with
what is stored. Neither has a session with a server, which takes 30 MB more.
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import psutil

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.jobs.queued_bytes import encoded_bytes
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.pool import Pool
from kestrelctl.store.sqlite.store import SqliteStore

MOST_BYTES = 200_000_000
JOBS, ARGUMENTS = 1_000, 25_000
#: At least so many bytes of jobs are taken in between two looks at the memory.
LOOK_BYTES = 100_000
KINDS = {
    "a job of one word": JobSpec(program=Program(argv=("true",)), held=True),
    "words of 1 letter": JobSpec(program=Program(argv=("true", *["x"] * ARGUMENTS)), held=True),
    "words of 8 letters": JobSpec(
        program=Program(argv=("true", *["x" * 8] * ARGUMENTS)), held=True
    ),
    "lines of 8 letters": JobSpec(
        program=Program(argv=("true", "{}")), items=("x" * 8,) * ARGUMENTS, count=ARGUMENTS,
        held=True,
    ),
    "lines of 24 letters": JobSpec(
        program=Program(argv=("true", "{}")), items=("x" * 24,) * ARGUMENTS, count=ARGUMENTS,
        held=True,
    ),
    "variables of 4 letters": JobSpec(
        program=Program(argv=("true",), env={f"{n:04x}": "xxxx" for n in range(ARGUMENTS)}),
        held=True,
    ),
}  # fmt: skip


async def take_in(pool: Pool, store: SqliteStore, text: bytes) -> None:
    """Has a pool take a job in, and hear that it is stored."""
    spec = msgspec.json.decode(text, type=JobSpec)
    stored: list[ev.Event] = []
    for effect in pool.handle(ev.Submit(at=0.0, request="r", owner="ada", spec=spec)):
        if isinstance(effect, fx.Persist):
            await store.commit(effect.records)
        elif isinstance(effect, fx.Feed):
            stored.append(effect.event)
    for event in stored:
        pool.handle(event)


def memory_bytes() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


async def weigh(kind: str, data_dir: Path) -> None:
    """Prints what a kind of job takes."""
    store = SqliteStore(data_dir)
    pool = Pool(store.open(), Config(max_queued_bytes=None))
    text = msgspec.json.encode(KINDS[kind])
    before = memory_bytes()
    most = JOBS if len(text) > LOOK_BYTES else 1_000_000
    jobs = 0
    while jobs < most and psutil.Process().memory_info().rss < before + MOST_BYTES:
        for _ in range(max(1, LOOK_BYTES // len(text))):
            await take_in(pool, store, text)
            jobs += 1
    whole = memory_bytes()
    counted = jobs * encoded_bytes(KINDS[kind])
    print(
        f"{kind:24} {jobs:9,} jobs {counted / 1e6:7.1f} MB counted, process {whole / 1e6:6.1f} MB,"
        f" of these for the jobs {(whole - before) / 1e6:6.1f} MB,"
        f" a byte {(whole - before) / counted:5.2f}",
        flush=True,
    )
    store.close()


def restart(data_dir: Path) -> None:
    """Prints what the next process takes of them."""
    pool = Pool(SqliteStore(data_dir).open(), Config(max_queued_bytes=None))
    jobs = len(pool.jobs)
    print(f"{'':24} {jobs:9,} jobs after a restart: process {memory_bytes() / 1e6:6.1f} MB")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["restart", where]:
            restart(Path(where))
        case [which, where]:
            asyncio.run(weigh(which, Path(where)))
        case chosen:
            for each in chosen or KINDS:
                with tempfile.TemporaryDirectory() as directory:
                    for what in (each, "restart"):
                        command = [sys.executable, str(Path(__file__)), what, f"{directory}/data"]
                        subprocess.run(command, check=True)
