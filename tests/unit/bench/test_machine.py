"""What is said of the machine of a bench."""

from __future__ import annotations

from pathlib import Path

import pytest

from kestrelctl.bench import machine
from kestrelctl.bench.machine import prosody_version


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A server that nobody starts."""
    found = tmp_path / "prosody"
    monkeypatch.setattr(machine, "find_prosody", lambda: found)
    return found


def test_a_server_without_its_tool_has_no_version(server: Path) -> None:
    """Whoever has measured for hours must still get the result."""
    assert prosody_version() == ""


def test_a_server_has_the_version_that_its_tool_says(server: Path) -> None:
    tool = server.with_name("prosodyctl")
    tool.write_text("#!/bin/sh\necho Prosody 0.12.3\n")
    tool.chmod(0o755)
    assert prosody_version() == "0.12.3"
