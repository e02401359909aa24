"""Tests of what is read of a process whose name somebody has chosen with care."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kestrelctl.worker.run.process_tree import exact_memory, held_bytes
from kestrelctl.worker.run.usage import sample, used_now

_NAMES_ITSELF = """
import sys
open("/proc/self/comm", "w", newline="").write(sys.argv[1])
print(flush=True)
sys.stdin.read()
"""


@contextmanager
def a_process_named(name: str) -> Iterator[int]:
    """Runs a process of that name (15 characters at most); gives its id."""
    with subprocess.Popen(
        [sys.executable, "-Sc", _NAMES_ITSELF, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    "name", ["VmHWM:", "VmHWM: 1", "\nVmHWM: 1", "a\rRssAnon:", "a\rRssAnon: 1", "a\nRssShmem: 1"]
)
def test_the_name_of_a_process_is_no_figure_of_it(name: str) -> None:
    """/proc has it among the figures, in a line of its own in which a carriage return stays."""
    with a_process_named(name) as pid:
        held = held_bytes([pid])
        assert 1 << 20 < held < 1 << 30
        assert sample(pid) >= held
        used = used_now([pid])[1]  # it may grow by a page while it begins to wait
        assert held <= used <= held_bytes([pid])
        assert sum(exact_memory([pid])) > 1 << 20
