"""A program in Python uses a real pool, as the page says."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from test_local_pool import Home, home  # noqa: F401  (a fixture)

from kestrelctl.access import connection
from kestrelctl.client.blocking import Client
from kestrelctl.client.pool import AsyncClient
from kestrelctl.local.pool_state import pool_directory, read_state
from kestrelctl.protocol import answers as an
from kestrelctl.protocol import requests as rq

T = TypeVar("T")

pytestmark = pytest.mark.timeout(180)
PAGE = Path(__file__).parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_programs_of_the_page_run_as_they_are(home: Home, block: str) -> None:  # noqa: F811
    home.run("up")
    done = subprocess.run(
        [sys.executable, "-c", block], env=home.env, cwd=home.work, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = re.findall(r"# prints (.*)", block)
    assert told
    assert all(line in done.stdout for line in told), done.stdout


def test_a_thousand_results_come_once_over_one_session_though_processes_die(
    home: Home,  # noqa: F811
) -> None:
    home.run("up")
    with Client() as pool:
        job = pool.submit(["sh", "-c", "echo {n}; exit $(({n} % 7 == 0))"], array="1-1000")
        found: dict[int, int | None] = {}
        for task in job.results():
            assert task.task_id not in found
            found[task.task_id] = task.exit_code
            if len(found) == 200:
                state = read_state(pool_directory("default"))
                assert state is not None
                psutil.Process(state.manager_pid).kill()
        assert found == {n: int(n % 7 == 0) for n in range(1, 1001)}
        assert job.wait().state == "failed"
        assert job.logs(3) == b"3\n"
        held = pool.submit(["true"], hold=True)
        held.release()
        assert held.wait(60).state == "done"
        slow = pool.submit(["sleep", "100"])
        with pytest.raises(TimeoutError):
            slow.wait(0.2)
        slow.cancel()
        assert slow.wait(60).state == "cancelled"


def test_a_thousand_jobs_go_in_few_messages_and_are_each_there_once_though_the_manager_dies(
    home: Home,  # noqa: F811
) -> None:
    home.run("up")

    async def submit_all() -> list[int]:
        at_once = asyncio.Semaphore(100)
        async with AsyncClient() as pool:

            async def submit(number: int) -> int:
                async with at_once:
                    if number == 300:
                        state = read_state(pool_directory("default"))
                        assert state is not None
                        psutil.Process(state.manager_pid).kill()
                    return (await pool.submit(["true"], name=f"job {number}")).id

            ids = await asyncio.gather(*map(submit, range(1000)))
            traffic = await pool.ask(rq.PoolTraffic(), an.Traffic)
            there = await pool.ask(rq.ListJobs(limit=1), an.Jobs)
            assert there.total == 1000
        received = {kind: count for kind, way, count, _ in traffic.messages if way == "in"}
        assert received["submit_each"] < 200
        assert received.get("submit", 0) < 200
        return ids

    assert len(set(asyncio.run(submit_all()))) == 1000


def test_several_threads_share_a_client(home: Home) -> None:  # noqa: F811
    home.run("up")
    ended: list[str] = []
    with Client() as pool:

        def work(number: int) -> None:
            job = pool.submit(["echo", str(number)])
            ended.append(f"{job.wait().state} {job.logs().decode().strip() == str(number)}")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert ended == ["done True"] * 20


async def test_of_a_long_output_messages_bring_the_beginning_and_the_end(
    home: Home,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rest is read from the file of its worker, which is on this machine."""
    home.run("up")
    asked: list[str] = []

    async def ask(pool: AsyncClient, request: rq.AnyRequest, kind: type[T]) -> T:
        asked.append(type(request).__name__)
        return await connection.ask(pool.connection, request, kind)

    async with AsyncClient() as pool:
        job = await pool.submit(["seq", "500000"])
        assert (await job.wait()).state == "done"
        monkeypatch.setattr(AsyncClient, "ask", ask)
        assert await job.logs() == b"".join(b"%d\n" % number for number in range(1, 500_001))
    assert asked == ["Logs", "Logs"]


def test_a_thousand_files_go_out_and_come_home(home: Home) -> None:  # noqa: F811
    home.run("up")
    data = home.work / "data"
    data.mkdir()
    for number in range(1, 1001):
        (data / f"{number}.txt").write_text(str(number))
    with Client() as pool:
        job = pool.submit(
            ["sh", "-c", 'wc -c <"data/$1.txt" >"$1.out"', "sh", "{}"],
            array="1-1000", input=[str(data)], keep=["*.out"],
        )  # fmt: skip
        assert job.wait(150).state == "done"
        fetched = job.fetch(home.work / "results")
        assert (fetched.tasks, fetched.files, fetched.missing) == (1000, 1000, {})
        assert job.fetch(home.work / "results").were_there == 1000
    for number in (1, 10, 1000):
        found = (home.work / "results" / str(number) / f"{number}.out").read_text()
        assert int(found) == len(str(number))
