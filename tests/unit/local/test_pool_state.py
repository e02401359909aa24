"""Which processes of a pool on this machine run."""

from __future__ import annotations

import subprocess
from typing import TextIO

import pytest

from kestrelctl.local import pool_state
from kestrelctl.local.pool_state import is_alive


def test_a_process_that_is_reaped_while_it_is_looked_at_does_not_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between opening /proc/PID/stat and reading it: `down` failed with ESRCH then."""
    child = subprocess.Popen(["sleep", "1000"])
    assert is_alive(child.pid)

    def opened(path: str) -> TextIO:
        file = open(path)  # noqa: SIM115  (who calls closes it)
        child.kill()
        child.wait()
        return file

    monkeypatch.setattr(pool_state, "open", opened, raising=False)
    assert not is_alive(child.pid)
