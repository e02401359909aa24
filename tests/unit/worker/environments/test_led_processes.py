"""What is told of environments that are processes of this machine."""

from __future__ import annotations

from pathlib import Path

from kestrelctl.worker.environments.environment_driver import EnvironmentStatus
from kestrelctl.worker.environments.led_processes import LEADER_FILE, LOG_FILE, status_of_leader


def test_only_one_that_has_ended_is_told_of_with_what_it_has_said(tmp_path: Path) -> None:
    """The states of a thousand that run fit into the line that the worker reads each second."""
    (tmp_path / LOG_FILE).write_text("no route to the server\n")
    (tmp_path / LEADER_FILE).write_text(Path("/proc/self/stat").read_text())
    assert status_of_leader(tmp_path) == EnvironmentStatus(True)
    (tmp_path / LEADER_FILE).unlink()
    assert status_of_leader(tmp_path) == EnvironmentStatus(False, "no route to the server")
