"""What a local pool left is told from what belongs to others."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kestrelctl.local import pool_state
from kestrelctl.local.left_over import end_left_over, tasks_of
from kestrelctl.local.pool_state import (
    PoolState,
    last_state,
    process_mark,
    read_state,
    write_state,
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that may be taken for one of a pool."""
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def state_of(directory: Path, pid: int, marks: dict[int, str]) -> PoolState:
    """A pool whose supervisor is gone, and whose manager and keeper have that number."""
    state = PoolState(
        name="p", pid=2**22 + 1, domain="d", host="h", port=1, user="u",
        password_file=str(directory / "user.password"), admin="a",
        admin_password_file=str(directory / "admin.password"), workers=1, server_pid=0,
        manager_pid=pid, worker_pids=[pid], marks=marks,
    )  # fmt: skip
    write_state(directory, state)
    return state


def test_what_a_pool_left_is_ended_though_it_is_stopped(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    state_of(tmp_path, sleeper.pid, {sleeper.pid: process_mark(sleeper.pid)})
    (tmp_path / "manager").mkdir()
    sleeper.send_signal(signal.SIGSTOP)
    asyncio.run(end_left_over(tmp_path))
    assert sleeper.poll() is not None
    assert last_state(tmp_path) is None
    assert (tmp_path / "manager").exists(), "what it stored stays"


@pytest.mark.parametrize("marked", [False, True], ids=["of an older version", "of this"])
def test_a_stranger_with_the_number_is_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], marked: bool
) -> None:
    state = state_of(tmp_path, sleeper.pid, {sleeper.pid: "another boot 7"} if marked else {})
    asyncio.run(end_left_over(tmp_path))
    assert sleeper.poll() is None
    write_state(
        tmp_path, msgspec.structs.replace(state, pid=sleeper.pid, marks={sleeper.pid: "other"})
    )
    assert read_state(tmp_path) is None, "its number is not the pool"


@pytest.mark.parametrize("way", ["copied", "under another name"])
def test_a_copy_of_the_directory_of_a_pool_that_runs_has_none_of_its_processes(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], way: str
) -> None:
    original = tmp_path / "pools/one"
    original.mkdir(parents=True)
    marks = {sleeper.pid: process_mark(sleeper.pid)}
    state = state_of(original, sleeper.pid, marks)
    write_state(original, msgspec.structs.replace(state, pid=sleeper.pid))
    copy = tmp_path / ("elsewhere/one" if way == "copied" else "pools/two")
    shutil.copytree(original, copy)
    assert read_state(original) is not None
    assert read_state(copy) is None
    asyncio.run(end_left_over(copy))
    assert sleeper.poll() is None
    assert read_state(original) is not None


def test_a_directory_is_known_again_by_another_path(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "pool").mkdir()
    state_of(tmp_path / "pool", sleeper.pid, {})
    (tmp_path / "link").symlink_to("pool")
    assert last_state(tmp_path / "link") is not None


def test_a_number_alone_ends_nobody(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_state, "process_mark", lambda _: "")  # as where there is no /proc
    state_of(tmp_path, sleeper.pid, {sleeper.pid: ""})
    asyncio.run(end_left_over(tmp_path))
    assert sleeper.poll() is None


def test_tasks_are_known_by_their_scratch_directory(tmp_path: Path) -> None:
    script = "import time; print(flush=True); time.sleep(1000)"
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, "KESTREL_SCRATCH": f"{where}/worker-1/tasks/sandboxes/0/scratch"},
            stdout=subprocess.PIPE,
        )
        for where in (tmp_path / "pool", tmp_path / "pool-2")
    ]
    try:
        for task in tasks:
            assert task.stdout is not None
            task.stdout.readline()
        assert tasks_of(tmp_path / "pool") == [tasks[0].pid]
    finally:
        for task in tasks:
            task.kill()
            task.communicate()
