"""Why a local pool did not come up is in the logs of its processes: what, why, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.errors import KestrelError, MissingTool, UsageError
from kestrelctl.local.last_words import last_words
from kestrelctl.local.supervisor import Child

ERROR = """\
12:00:00 INFO    manager of p.localhost, start 3: 0 active jobs
error: metrics cannot be served at 127.0.0.1:9437
cause: Address already in use
hint: give --metrics another address, or '' for none
"""


@pytest.mark.parametrize(
    ("starts", "status", "ends_the_pool"),
    [
        (1, UsageError.exit_status, True),
        (1, MissingTool.exit_status, True),
        (1, KestrelError.exit_status, False),
        (2, UsageError.exit_status, False),
    ],
)
def test_a_process_that_was_told_wrong_is_not_started_again_until_time_is_up(
    tmp_path: Path, starts: int, status: int, *, ends_the_pool: bool
) -> None:
    child = Child("worker-1", ["true"], tmp_path)
    child.starts = starts
    assert child.is_told_wrong(status) is ends_the_pool


def logs(directory: Path, **texts: str) -> Path:
    for name, text in texts.items():
        (directory / f"{name}.log").write_text(text)
    return directory


def test_an_error_is_told_with_its_cause_and_its_hint(tmp_path: Path) -> None:
    logs(tmp_path, manager=ERROR * 2, worker="12:00:01 INFO    connecting\n")
    assert last_words(tmp_path) == (
        "manager: metrics cannot be served at 127.0.0.1:9437: Address already in use (give "
        "--metrics another address, or '' for none)"
    )


def test_of_each_process_the_last_one_counts(tmp_path: Path) -> None:
    later = "error: no room\ncause: the disk is full\n  at /home\n12:00:05 INFO    stopped\n"
    server = "Nov 27 12:00:00 portmanager\terror\tFailed to open port 5222, this port is in use\n"
    traceback = "Traceback (most recent call last):\n  File x\nOSError: y\n"
    daemon = f"12:00:00 ERROR   the store: locked\n{traceback}"
    logs(tmp_path, manager=ERROR + later, server=server, worker=daemon)
    assert last_words(tmp_path) == (
        "manager: no room: the disk is full at /home; "
        "server: Failed to open port 5222, this port is in use; "
        "worker: the store: locked: OSError: y"
    )
    assert last_words(tmp_path, "manager") == "manager: no room: the disk is full at /home"


def test_the_supervisor_speaks_where_the_others_are_silent(tmp_path: Path) -> None:
    logs(tmp_path, supervisor="12:00:00 ERROR   the pool is starting or stopping\n", server="x")
    assert last_words(tmp_path) == "supervisor: the pool is starting or stopping"
    logs(tmp_path, manager=ERROR)
    assert last_words(tmp_path).startswith("manager: metrics cannot be served")


def test_without_an_error_the_last_lines_are_told(tmp_path: Path) -> None:
    assert last_words(tmp_path) == "its processes left no word"
    logs(tmp_path, server="one\ntwo\n", worker="Traceback\nMemoryError\n", manager="")
    assert last_words(tmp_path) == "server: two; worker: MemoryError"
