"""A manager whose store is full of ended tasks: `long_store.py [TASKS [SIZE]]`.

The product's own writing code makes a SQLite store with so many tasks (20,000,000 by default; a
million takes 150 MB of the directory for temporary files), in jobs of 100 to 100,000 tasks, or all
of SIZE, of several users. On it a manager is started beside a server of its own. Prints

- how fast the store was written, and how large it is;
- the seconds from the start of the manager until it answers, and its memory;
- the median and the 90th percentile of requests over one connection, and what a whole
  `kestrelctl job list` takes;
- what deleting a job of 100,000 tasks takes, and then what retention makes of a million tasks that
  are due at once: until no row of them is left, how late the loop of the manager was meanwhile, how
  long others waited for answers, and what it does to the size of the file;
- what `VACUUM` does to it.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

import psutil
from daemons import KESTRELCTL, Spawn, answering, spawning

from kestrelctl.core.counting.percentile import percentile
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.job.task_state import Counts, TaskState
from kestrelctl.core.model.records import JobRecord, TaskRecord
from kestrelctl.core.model.result import Result
from kestrelctl.protocol import job_requests as rq
from kestrelctl.protocol.requests import PoolStatus, UserUsage
from kestrelctl.store.sqlite.store import DATABASE, SqliteStore
from kestrelctl.xmpp.prosody import LOOPBACK, PrivateServer, free_ports
from kestrelctl.xmpp.user import UserConnection, connect_user

if TYPE_CHECKING:
    from kestrelctl.protocol.requests import AnyRequest

TASKS = 20_000_000
#: The sizes of jobs: of a hundred in a row, so many have so many tasks.
SIZES = [100] * 90 + [1_000] * 8 + [10_000, 100_000]
USERS = ("ada", "bob", "cyd", "dan")
#: Of the tasks, one in so many has failed.
FAILED_OF = 50
COMMIT_RECORDS = 20_000
ENDED_SECONDS_AGO = 3_600.0
ROUNDS = 20
DUE_TASKS = 1_000_000
STOP_SECONDS = 30
LOOK_SECONDS = 0.05


def sizes(tasks: int, among: Sequence[int]) -> list[int]:
    """Sizes of jobs that have so many tasks together, the same ones each time."""
    draw = random.Random(1)
    found: list[int] = []
    left = tasks
    while left:
        for size in draw.sample(among, len(among)):
            found.append(min(size, left))
            left -= found[-1]
            if not left:
                break
    return found


def owner(job_id: int, domain: str) -> str:
    return f"{USERS[job_id % len(USERS)]}@{domain}"


def records(counts: list[int], domain: str, began: float) -> Iterator[JobRecord | TaskRecord]:
    """Yields jobs with their tasks as a manager writes them, in the order in which they end."""
    for job_id, count in enumerate(counts, start=1):
        spec = JobSpec(program=Program(argv=("./fit", "{n}")), count=count, name=f"sweep-{job_id}")
        job = JobRecord(
            job_id=job_id, owner=owner(job_id, domain), spec=spec, submitted_at=began, cursor=count
        )
        yield job
        for index in range(count):
            failed = index % FAILED_OF == FAILED_OF - 1
            yield TaskRecord(
                job_id, index, TaskState.FAILED if failed else TaskState.DONE, 0, 0,
                f"w{index % 200}@workers.{domain}/host",
                Result(
                    index + 1, job_id, index, int(failed), began + index / 1000, 1.5, 0.1, 1.4,
                    50_000_000, int(failed), stdout=b"loss 0.25\n", stdout_bytes=10,
                ),
                concluded=index + 1,
            )  # fmt: skip
        failed_tasks = count // FAILED_OF
        yield JobRecord(
            job_id=job_id, owner=job.owner, spec=spec, submitted_at=began, cursor=count,
            state="failed" if failed_tasks else "done", ended_at=began + job_id / 1000,
            counts=Counts(done=count - failed_tasks, failed=failed_tasks),
        )  # fmt: skip


async def fill(data_dir: Path, counts: list[int], domain: str) -> None:
    """Writes a store, and prints how fast."""
    store = SqliteStore(data_dir)
    store.open()
    source = records(counts, domain, time.time() - ENDED_SECONDS_AGO)
    began = time.perf_counter()
    while batch := list(islice(source, COMMIT_RECORDS)):
        await store.commit(batch)
    took_seconds = time.perf_counter() - began
    store.close()
    size_bytes = (data_dir / DATABASE).stat().st_size
    print(
        f"{sum(counts):,} tasks of {len(counts):,} jobs: written in {took_seconds:,.0f} s"
        f" ({sum(counts) / took_seconds:,.0f}/s), {size_bytes / 1e6:,.0f} MB",
        flush=True,
    )


class Bench:
    """A server, and managers on one store."""

    def __init__(self, server: PrivateServer, spawn: Spawn, directory: Path, data_dir: Path):
        self._server = server
        self._spawn = spawn
        self._directory = directory
        self._data_dir = data_dir
        (directory / "secret").write_text(server.secret)
        self.jid = f"{USERS[0]}@{server.users_domain}"
        self._password = server.add_account(self.jid)
        self._metrics_port = free_ports(1)[0]
        self._manager: subprocess.Popen[str]

    async def start(self, user: UserConnection, *options: object) -> None:
        """Starts a manager, and prints the time until it answers, and its memory."""
        began = time.perf_counter()
        self._manager = self._spawn(
            "manager", "run", "--domain", self._server.domain, "--port",
            self._server.component_port, "--secret-file", self._directory / "secret", "--data-dir",
            self._data_dir, "--admin", self.jid, "--metrics", f"127.0.0.1:{self._metrics_port}",
            *options, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        await answering(user, 600)
        took_seconds = time.perf_counter() - began
        print(f"the manager answers after {took_seconds:.2f} s, {self.memory()}", flush=True)

    def memory(self) -> str:
        return f"has {psutil.Process(self._manager.pid).memory_info().rss / 1e6:.1f} MB"

    def stop(self) -> None:
        self._manager.terminate()
        self._manager.wait(STOP_SECONDS)

    def user(self) -> AbstractAsyncContextManager[UserConnection]:
        server = self._server
        return connect_user(
            self.jid, self._password, server.domain, LOOPBACK, server.client_port, tls=False
        )

    def whole_list_seconds(self) -> float:
        """The time that the whole program takes."""
        config = self._directory / "config"
        (config / "kestrel").mkdir(parents=True, exist_ok=True)
        password = config / "kestrel" / "password"
        password.touch(mode=0o600)
        password.write_text(self._password)
        (config / "kestrel" / "config.toml").write_text(
            f'default = "it"\n[context.it]\njid = "{self.jid}"\npool = "{self._server.domain}"\n'
            f'host = "{LOOPBACK}"\nport = {self._server.client_port}\ntls = false\n'
            f'password_file = "{password}"\n'
        )
        env = {**os.environ, "XDG_CONFIG_HOME": str(config), "KESTREL_POOL": ""}
        began = time.perf_counter()
        subprocess.run([*KESTRELCTL, "job", "list"], check=True, capture_output=True, env=env)
        return time.perf_counter() - began

    def lag_seconds(self) -> float:
        """The largest lag of the manager's loop of the last half minute to minute."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics") as page:
            text = page.read().decode()
        found = re.search(r"^kestrel\w*_event_loop_lag_max_seconds (\S+)$", text, re.MULTILINE)
        assert found is not None
        return float(found[1])


async def timed(user: UserConnection, name: str, request: AnyRequest) -> None:
    """Prints how long a request takes."""
    took: list[float] = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await user.ask(request)
        took.append(1000 * (time.perf_counter() - began))
    took.sort()
    p50, p90 = percentile(took, 50), percentile(took, 90)
    print(f"{name:28} p50 {p50:7.1f} ms, p90 {p90:7.1f} ms, at most {took[-1]:7.1f}", flush=True)


async def read(bench: Bench, user: UserConnection, counts: list[int]) -> None:
    """Prints what readers wait for."""
    large = str(1 + counts.index(max(counts)))
    own = USERS[0]
    requests: dict[str, AnyRequest] = {
        "job list": rq.ListJobs(),
        "job list --state done": rq.ListJobs(states=["done"]),
        "job list --state active": rq.ListJobs(states=["active"]),
        "job list --owner": rq.ListJobs(owner=bench.jid),
        "job list --owner, has none": rq.ListJobs(owner="nobody@example.org"),
        "job list --name, none fits": rq.ListJobs(owner=bench.jid, name="nightly*"),
        "job list, a later page": rq.ListJobs(before=max(2, len(counts) // 2)),
        "job status ID": rq.ListJobs(jobs=large, details=True, used=True),
        "job tasks ID": rq.ListTasks(job=large),
        "job tasks ID, last page": rq.ListTasks(job=large, after=max(-1, max(counts) - 1001)),
        "job tasks ID --state failed": rq.ListTasks(job=large, states=[TaskState.FAILED]),
        "job history ID": rq.TellStory(job=large),
        "user usage": UserUsage(since=0.0),
        f"user usage {own}": UserUsage(since=0.0, user=own),
        "pool status": PoolStatus(),
    }
    for name, request in requests.items():
        await timed(user, name, request)
    print(f"kestrelctl job list, whole   {bench.whole_list_seconds():.2f} s")
    print(f"after that the manager {bench.memory()}", flush=True)


async def until_gone(
    bench: Bench, user: UserConnection, database: sqlite3.Connection, expected: int, name: str
) -> None:
    """Waits until there are so few jobs with rows, and prints what others noticed of it."""
    began = time.perf_counter()
    waits: list[float] = []
    lags: list[float] = []
    while True:
        asked = time.perf_counter()
        await user.ask(rq.ListJobs())
        waits.append(1000 * (time.perf_counter() - asked))
        lags.append(bench.lag_seconds())
        [jobs] = database.execute("SELECT count(*) FROM jobs").fetchone()
        [forgotten] = database.execute("SELECT count(*) FROM forgotten").fetchone()
        if jobs <= expected and not forgotten:
            break
        await asyncio.sleep(LOOK_SECONDS)
    took_seconds = time.perf_counter() - began
    waits.sort()
    print(
        f"{name}: gone after {took_seconds:.1f} s; loop at most {1000 * max(lags):.0f} ms late;"
        f" meanwhile job list p50 {percentile(waits, 50):.1f} ms, p90"
        f" {percentile(waits, 90):.1f} ms, at most {waits[-1]:.1f}; the manager {bench.memory()}",
        flush=True,
    )


def room(database: sqlite3.Connection, path: Path) -> str:
    [page_bytes] = database.execute("PRAGMA page_size").fetchone()
    [free] = database.execute("PRAGMA freelist_count").fetchone()
    log_path = Path(f"{path}-wal")
    log_bytes = log_path.stat().st_size if log_path.exists() else 0
    return (
        f"{path.stat().st_size / 1e6:,.0f} MB, of them {page_bytes * free / 1e6:,.0f} MB free,"
        f" and a log of {log_bytes / 1e6:,.0f} MB"
    )


async def forget(
    bench: Bench, user: UserConnection, database: sqlite3.Connection, counts: list[int], path: Path
) -> None:
    """Prints what deleting does, by a user and by retention."""
    large = max(n for n, count in enumerate(counts, start=1) if count == max(counts))
    began = time.perf_counter()
    await user.ask(rq.ForgetJobs(jobs=str(large)))
    print(f"job delete of {counts[large - 1]:,} tasks answered after "
          f"{1000 * (time.perf_counter() - began):.1f} ms")  # fmt: skip
    await until_gone(bench, user, database, len(counts) - 1, "its rows")
    print(f"the file: {room(database, path)}")
    bench.stop()
    due = tasks = 0
    wanted = min(DUE_TASKS, sum(counts) // 2)
    while tasks < wanted:
        tasks += counts[due]
        due += 1
    print(f"retention: {due:,} jobs of {tasks:,} tasks are due")
    kept = len(counts) - 1 - due
    await bench.start(user, "--keep-jobs", kept)
    await until_gone(bench, user, database, kept, "their rows")
    print(f"the file: {room(database, path)}")
    bench.stop()


def shrink(path: Path) -> None:
    with sqlite3.connect(path) as database:
        began = time.perf_counter()
        database.execute("VACUUM")
        took_seconds = time.perf_counter() - began
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        print(f"VACUUM took {took_seconds:.1f} s: {room(database, path)}", flush=True)


async def measure(tasks: int, among: Sequence[int]) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="kestrel-long-store-") as made,
        spawning() as spawn,
    ):
        directory = Path(made)
        data_dir = directory / "manager"
        path = data_dir / DATABASE
        server = PrivateServer.create(directory / "xmpp")
        counts = sizes(tasks, among)
        await fill(data_dir, counts, server.users_domain)
        process = await asyncio.create_subprocess_exec(*server.command())
        try:
            await server.wait_ready()
            bench = Bench(server, spawn, directory, data_dir)
            async with bench.user() as user:
                await bench.start(user, "--keep-jobs", "all", "--keep-jobs-for", "forever")
                await read(bench, user, counts)
                database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
                await forget(bench, user, database, counts, path)
                database.close()
            shrink(path)
        finally:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    match [int(word) for word in sys.argv[1:]]:
        case [tasks, size]:
            asyncio.run(measure(tasks, [size]))
        case [tasks]:
            asyncio.run(measure(tasks, SIZES))
        case _:
            asyncio.run(measure(TASKS, SIZES))
