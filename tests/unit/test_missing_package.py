"""Who lacks a package is told the command that brings it, where and as Kestrel was installed."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from kestrelctl.errors import MissingTool
from kestrelctl.local import control
from kestrelctl.missing_package import missing_package, require_classads
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


@pytest.fixture
def _without_classads(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "classad2" else find(name)
    )


@pytest.mark.usefixtures("_without_classads")
def test_a_machine_without_classads_is_told_where_they_are() -> None:
    with pytest.raises(MissingTool, match="ClassAd library of HTCondor, which a manager") as raised:
        require_classads()
    assert str(raised.value.hint).endswith(" install htcondor")


@pytest.mark.usefixtures("_without_classads")
async def test_a_pool_without_a_manager_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(MissingTool, match="HTCondor"):
        await control.up("default", 1)
    with pytest.raises(MissingTool, match="HTCondor"):
        async with control.throw_away_pool(1):
            pass
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_prosody_is_told_what_to_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(prosody, "_DIRECTORIES_BESIDE_PATH", ())
    with pytest.raises(MissingTool, match="Prosody") as raised:
        prosody.find_prosody()
    assert str(raised.value.hint).startswith("as root: apt-get install prosody && ")
