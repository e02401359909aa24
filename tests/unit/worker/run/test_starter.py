"""Tests of what is put into a scratch directory before a task finds it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from workerkit import files_limited_to

from kestrelctl.core.model.job.program import Program
from kestrelctl.worker.run.executor import CommandSpec
from kestrelctl.worker.run.starter import HOST_FILE, _furnish


def test_a_task_finds_all_hosts_or_does_not_start(tmp_path: Path) -> None:
    command = CommandSpec(1, Program(argv=("true",)), {}, host_lines=("host-1", "host-2", "host-3"))
    with files_limited_to(15), pytest.raises(OSError, match="File too large"):
        _furnish(command, os.open(tmp_path, os.O_RDONLY))
    (tmp_path / HOST_FILE).unlink()
    _furnish(command, os.open(tmp_path, os.O_RDONLY))
    assert (tmp_path / HOST_FILE).read_text() == "host-1\nhost-2\nhost-3\n"
