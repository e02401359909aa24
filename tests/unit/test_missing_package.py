"""Who lacks a package is told the command that brings it, where and as Kestrel was installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kestrelctl.errors import MissingTool
from kestrelctl.missing_package import missing_package
from kestrelctl.xmpp import prosody


@pytest.mark.parametrize(
    ("made_by", "hint"),
    [
        ("pipx_metadata.json", "pipx inject kestrelctl ansible-core fabric"),
        ("uv-receipt.toml", "uv pip install --python {}/bin/python ansible-core fabric"),
        ("pyvenv.cfg", "{}/bin/python -m pip install ansible-core fabric"),
    ],
)
def test_the_command_is_that_of_the_tool_that_installed_kestrelctl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_by: str, hint: str
) -> None:
    (tmp_path / made_by).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    error = missing_package("there is no Fabric", "ansible-core", "fabric")
    assert error.hint == hint.format(tmp_path)
    assert error.exit_status == 9


@pytest.mark.parametrize(
    "command", ["up", "bench", "manager run --domain pool.example.org --secret-file /dev/null"]
)
def test_a_machine_without_classads_is_told_where_they_are(tmp_path: Path, command: str) -> None:
    """And nothing is begun there."""
    without = (
        "import sys; sys.modules['classad2'] = None; from kestrelctl.cli.main import main; main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", without, *command.split()],
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == MissingTool.exit_status
    assert "error: the ClassAd library of HTCondor, which a manager needs, is not" in result.stderr
    assert result.stderr.endswith(" install htcondor\n")
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_prosody_is_told_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(prosody, "_DIRECTORIES_BESIDE_PATH", ())
    with pytest.raises(MissingTool, match="Prosody") as raised:
        prosody.find_prosody()
    assert str(raised.value.hint).startswith("as root: apt-get install prosody && ")
