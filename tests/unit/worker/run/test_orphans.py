"""Tests of whose a process is that lost its parent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kestrelctl.worker.run.orphans import ATTEMPT_VARIABLE, attempt_of


@contextmanager
def a_process_that_says(attempt: str) -> Iterator[int]:
    """Runs a process whose environment names an attempt; gives its id."""
    with subprocess.Popen(
        ["cat"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        env={"PATH": "/usr/bin:/bin", ATTEMPT_VARIABLE: attempt},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdout.read(1)  # from now on it is the program, and has its environment
        yield process.pid
        process.kill()


def test_a_process_says_which_attempt_it_belongs_to() -> None:
    with a_process_that_says("17") as pid:
        assert attempt_of(pid) == 17


@pytest.mark.parametrize("said", ["", "-1", "1 7", "9" * 21, "9" * 5000])
def test_what_is_no_number_of_an_attempt_belongs_to_none(said: str) -> None:
    """Python refuses to read a number of more than 4,300 digits, and a task writes what it likes:
    no end of any task would be noticed any more."""
    with a_process_that_says(said) as pid:
        assert attempt_of(pid) is None
