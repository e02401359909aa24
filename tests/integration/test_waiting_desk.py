"""What who waits for a job sees of it at a real pool: its end, its output, the command then."""

from __future__ import annotations

import json

import pytest
from page_desk import Desk

#: The first time it kills its worker, after a line; then it goes to its end.
KILLS_ITS_WORKER_ONCE = """
import os, pathlib, signal, time
print("begins", flush=True)
mark = pathlib.Path("mark")
if not mark.exists():
    mark.touch()
    time.sleep(3)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
time.sleep(1)
print("ends", flush=True)
"""


@pytest.fixture
def pool(desk: Desk) -> Desk:
    """A pool of its own with two workers."""
    desk.types("kestrelctl up --workers 2")
    return desk


def test_what_a_terminal_user_waits_for(pool: Desk) -> None:
    seen = pool.types(
        "kestrelctl submit --array 1-200 --stop-after 3 --on-end "
        "'echo $KESTREL_JOB $KESTREL_OUTCOME $KESTREL_STOPPED_BY' -- sh -c 'sleep 0.2; exit 7'"
        "; echo $?"
    )
    assert "1 failed failed tasks" in seen
    assert seen[-1] == "3"
    assert "; stopped after " in "\n".join(seen)
    [line] = pool.types("kestrelctl job info 1 -o jsonl")
    view = json.loads(line)
    assert view["stopped_by"] == "failed tasks"
    assert 3 <= view["failed"] < 10
    assert view["failed"] + view["cancelled"] == 200

    pool.types("kestrelctl submit --join -- sh -c 'echo one; echo two >&2; echo three'")
    assert pool.types("kestrelctl job wait 2 -o quiet; kestrelctl job logs 2") == [
        "2", "one", "two", "three",
    ]  # fmt: skip
    pool.types("MODE=slow SPEED=1 kestrelctl submit --export MODE,SPEED --env MODE=fast -- env")
    seen = pool.types("kestrelctl job wait 3; kestrelctl job logs 3")
    assert {"MODE=fast", "SPEED=1"} <= set(seen)

    pool.types("kestrelctl submit -- sleep 60")
    pool.types("kestrelctl submit -- sh -c 'sleep 1; exit 5'")
    assert pool.types("kestrelctl job wait --any 4,5 -o quiet 2>/dev/null; echo $?") == ["5", "3"]
    pool.types("kestrelctl job cancel 4")


def test_a_task_is_followed_from_worker_to_worker(pool: Desk) -> None:
    (pool.directory / "task.py").write_text(KILLS_ITS_WORKER_ONCE)
    pool.types("kestrelctl submit -- python3 task.py")
    pool.types("kestrelctl job logs -f 1 >followed 2>said; echo $? >status")
    assert (pool.directory / "followed").read_text() == "begins\nbegins\nends\n"
    said = (pool.directory / "said").read_text().splitlines()
    over, begins = (line for line in said if "attempt" in line)
    assert over.endswith(" is over: given up")
    assert begins.endswith(", from its beginning:")
    assert (pool.directory / "status").read_text() == "0\n"
    pool.types("kestrelctl submit --array 1-3 -- sh -c 'echo a; sleep 1; echo {}'")
    seen = pool.types("kestrelctl job logs -f 2 2>/dev/null")
    assert sorted(seen) == ["[1] 1", "[1] a", "[2] 2", "[2] a", "[3] 3", "[3] a"]
