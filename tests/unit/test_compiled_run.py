"""Compiling a simulation: what is needed for it, and what is compiled."""

from __future__ import annotations

import importlib.util

import pytest

from kestrel_experiments.flock_simulation import compiled as compiled_run
from kestrelctl.errors import KestrelError, MissingTool


def test_python_that_has_no_mypyc_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingTool, match="mypyc is needed") as caught:
        compiled_run.run_compiled(["bench", "flock-sim"], compiled_run.OF_FLOCKS)
    assert "mypy[mypyc]" in (caught.value.hint or "")


def test_a_machine_without_a_c_compiler_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "cc-that-nobody-has -O2")
    with pytest.raises(MissingTool, match="there is no 'cc-that-nobody-has'"):
        compiled_run.run_compiled(["bench", "flock-sim"], compiled_run.OF_FLOCKS)


def test_what_is_not_the_copy_does_not_make_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KESTREL_COMPILED", "1")
    assert not compiled_run.is_compiled()
    with pytest.raises(KestrelError, match="not what runs"):
        compiled_run.run_compiled(["bench", "flock-sim"], compiled_run.OF_FLOCKS)
