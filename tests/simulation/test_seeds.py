"""A few commits in a row try all seeds."""

from __future__ import annotations

import pytest
from seeds import ALL, due


def test_a_row_of_commits_tries_each_seed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ALL, raising=False)
    tried = [seed for turn in range(739_000, 739_004) for seed in due(1000, 4, turn)]
    assert sorted(tried) == list(range(1000))
    assert len(due(1000, 4)) == 250


@pytest.mark.parametrize("first", [0, 1, 15, 150])
def test_seeds_that_are_tried_elsewhere_are_left_out(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALL, raising=False)
    tried = [seed for turn in range(739_000, 739_004) for seed in due(160, 4, turn, first=first)]
    assert sorted(tried) == list(range(first, 160))


def test_all_seeds_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALL, "all")
    assert due(1000, 4) == list(range(1000))
