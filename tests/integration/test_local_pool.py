"""`kestrelctl up` goes on with what a pool of that name left, however it ended; `down` keeps it."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from kestrelctl.local.pool_state import PoolState, pool_directory, read_state

pytestmark = pytest.mark.timeout(180)


class Home:
    """A user of this machine with a state directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.work = directory / "work"
        self.work.mkdir()
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(directory / "state"),
            "XDG_CONFIG_HOME": str(directory / "config"),
        }
        self.env.pop("KESTREL_POOL", None)

    def run(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        """Runs `kestrelctl …` in the user's directory."""
        result = subprocess.run(
            [sys.executable, "-m", "kestrelctl", *words],
            cwd=self.work, env=self.env, capture_output=True, text=True, timeout=100,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert result.returncode == status, result.stderr
        return result

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json").stdout)

    def jobs(self, *words: str) -> dict[int, str]:
        """States of the jobs, by id."""
        return {job["job_id"]: job["state"] for job in self.json(*words, "job", "list")}

    def until(self, condition: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, what
            time.sleep(0.05)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A user whose pools are ended afterwards."""
    found = Home(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", found.env["XDG_STATE_HOME"])
    yield found
    for directory in (tmp_path / "state/kestrel/pools").glob("*"):
        subprocess.run(
            [sys.executable, "-m", "kestrelctl", "down", "--name", directory.name, "--delete"],
            env=found.env, timeout=100, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def everything(state: PoolState) -> list[psutil.Process]:
    """The supervisor of a pool, and all below it."""
    supervisor = psutil.Process(state.pid)
    return [supervisor, *supervisor.children(recursive=True)]


def runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def test_a_pool_goes_on_after_down_a_killed_supervisor_and_a_reboot(home: Home) -> None:
    home.run("up")
    directory = pool_directory("default")
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    long_output = "head -c 20000 /dev/zero | tr '\\0' x"
    home.run("submit", "--wait", "--", "sh", "-c", long_output)
    home.run("submit", "--array", "1-2", "--", "sh", "-c", "echo $$ >>pids; exec sleep 1000")
    pids = home.work / "pids"
    home.until(pids.exists, "no task ran")

    ended = home.run("down")
    assert "running tasks were ended: 2; they run again after `kestrelctl up`" in ended.stderr
    assert "2 jobs, 1 of them active: kept; `kestrelctl up` goes on with them" in ended.stderr
    home.run("job", "list", status=5)
    assert home.run("down", status=7).stderr.count("kestrelctl up") == 1

    again = home.run("up")
    assert "goes on with 2 jobs, 1 of them active" in again.stderr
    assert home.jobs() == {1: "done", 2: "active"}
    assert len(home.run("job", "logs", "1").stdout) == 20000, "kept by the worker"

    # The supervisor is killed; a keeper that is stopped does not hear the kernel say so.
    state = read_state(directory)
    assert state is not None
    before = everything(state)
    psutil.Process(state.worker_pids[0]).suspend()
    before[0].kill()
    assert "goes on with 2 jobs" in home.run("up").stderr
    assert [process for process in before if runs(process)] == []
    assert home.jobs() == {1: "done", 2: "active"}

    # After a reboot there is none of its processes, and its number belongs to a stranger.
    state = read_state(directory)
    assert state is not None
    for process in everything(state):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    stranger = subprocess.Popen(["sleep", "1000"])
    try:
        file = directory / "pool.json"
        told = json.loads(file.read_text())
        told["marks"][str(stranger.pid)] = told["marks"][str(state.pid)]
        told.update(pid=stranger.pid, server_pid=stranger.pid, worker_pids=[stranger.pid])
        file.write_text(json.dumps(told))
        assert "goes on with 2 jobs" in home.run("up").stderr
        assert stranger.poll() is None, "a stranger was taken for the pool"
    finally:
        stranger.kill()
        stranger.wait()
    assert home.jobs() == {1: "done", 2: "active"}
    tasks = [int(pid) for pid in pids.read_text().split()]
    home.until(lambda: sum(map(psutil.pid_exists, tasks)) <= 2, "tasks of an earlier pool go on")

    home.run("job", "cancel", "2")
    home.run("submit", "--wait", "--", "true")
    home.run("manager", "backup", "pool.backup")
    assert "deleted" in home.run("down", "--delete").stderr
    assert not directory.exists()
    assert "goes on" not in home.run("up").stderr
    assert home.jobs() == {}
    home.run("manager", "restore", "pool.backup", status=1)
    home.run("down")
    home.run("manager", "restore", "pool.backup")
    assert "goes on with 3 jobs" in home.run("up").stderr


def test_a_damaged_store_is_told_of_and_left_alone(home: Home) -> None:
    home.run("up", "--name", "hurt")
    home.run("submit", "--pool", "hurt", "--wait", "--", "true")
    home.run("down", "--name", "hurt")
    store = pool_directory("hurt") / "manager" / "kestrel.db"
    with contextlib.closing(sqlite3.connect(store)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damaged = b"\xff" * 4096 + store.read_bytes()[4096:]
    store.write_bytes(damaged)
    said = home.run("up", "--name", "hurt", status=14).stderr
    assert "kestrelctl manager restore --pool hurt FILE" in said
    assert store.read_bytes() == damaged


def test_a_hold_outlasts_a_killed_pool_and_ends_with_a_release(home: Home) -> None:
    home.run("up")
    script = 'echo "$1" >>ran; [ "$1" -lt 3 ] || [ -e mended ]'
    home.run("submit", "--hold", "--name", "first", "--", "touch", "started")
    home.run(
        "submit", "--hold-after", "5", "--max-failures", "50", "--backoff", "0.1",
        "--max-running", "2", "--array", "1-20", "--", "sh", "-c", script, "sh", "{n}",
    )  # fmt: skip
    home.until(lambda: home.json("job", "info", "2").get("hold"), "it was not held")
    by_pool = home.json("job", "info", "2")
    assert by_pool["hold"]["by"] == "pool"
    assert "attempts in a row failed, the last: exit code 1" in by_pool["hold"]["reason"]
    assert (by_pool["done"], by_pool["failed"]) == (2, 0)
    assert "put on hold by the pool" in home.run("job", "story", "2").stdout

    state = read_state(pool_directory("default"))
    assert state is not None
    for process in everything(state):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    home.run("up")
    held = home.json("job", "list", "--where", "Held")
    assert [(job["job_id"], job["done"]) for job in held] == [(1, 0), (2, 2)]
    assert held[1]["hold"] == by_pool["hold"]
    assert not (home.work / "started").exists()
    waits = home.run("job", "wait", "1,2", "--timeout", "2s", status=6)
    assert "job 1 is on hold by" in waits.stderr
    assert "it is on hold by pool" in home.run("job", "explain", "2").stdout

    (home.work / "mended").touch()
    kept = home.run("job", "hold", "1", "--reason", "another")
    assert "on hold before" in kept.stderr
    assert home.run("job", "release", "all").stdout == "released jobs 1, 2 (19 tasks)\n"
    home.run("job", "wait", "1,2", "--timeout", "1m")
    assert (home.work / "started").exists()
    assert {int(line) for line in (home.work / "ran").read_text().split()} == set(range(1, 21))


FIRST_TRIGGER = """
[busy]
expr = queue.running > 0
cmd = hold(queue.jobs)
ticks = 30
"""


def test_a_pool_shows_what_there_is_and_what_there_is_not(home: Home) -> None:
    home.run("--pool", "lab", "up")
    assert read_state(pool_directory("lab")) is not None
    assert not pool_directory("default").exists()
    for line in ("trigger list", "trigger log", "environment list", "flock pools"):
        assert home.json(*line.split()) == [], line
    assert home.run("trigger", "list").stderr == "no triggers\n"

    (home.work / "items").write_text("alpha.csv\nbeta.csv\n")
    home.run("submit", "--each-line", "items", "--", "sleep", "1000")
    home.until(lambda: home.json("job", "tasks", "1", "--state", "running"), "no task ran")
    first, _ = home.json("job", "tasks", "1")
    assert (first["item"], first["said_at"]) == ("alpha.csv", None)
    assert first["wall_seconds"] >= 0
    assert "task 0 has the item alpha.csv" in home.run("job", "story", "1", "0").stdout

    (home.work / "first.ini").write_text(FIRST_TRIGGER)
    tried = home.json("trigger", "test", "busy", "--file", "first.ini")
    assert (tried["is_true"], tried["actions"], tried["problem"]) == (True, ["hold(1)"], "")
    assert home.json("trigger", "list") == []
    assert home.json("job", "list")[0]["hold"] is None, "nothing is done"
    ended = home.run("down", "lab", status=2)
    assert "hint: kestrelctl down --name lab" in ended.stderr
