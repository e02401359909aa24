"""The seeds of some days are all seeds."""

from __future__ import annotations

import pytest
from seeds import ALL, due


def test_after_some_days_each_seed_was_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL, raising=False)
    tried = [seed for day in range(739_000, 739_004) for seed in due(1000, 4, day)]
    assert sorted(tried) == list(range(1000))
    assert len(due(1000, 4)) == 250


def test_all_seeds_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALL, "all")
    assert due(1000, 4) == list(range(1000))
