"""The bare process-start rate of this machine."""

from __future__ import annotations

import pytest

from kestrelctl.bench.spawn_rate import measure_spawn_rate
from kestrelctl.errors import MissingTool


def test_every_core_starts_processes() -> None:
    rate = measure_spawn_rate(rounds=3, round_seconds=0.05)
    assert 20 < rate < 200_000


def test_without_a_sleep_program_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingTool):
        measure_spawn_rate()
