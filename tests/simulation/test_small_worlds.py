"""A thousand small pools, each on a day when everything goes wrong.

A failing seed tells its story; `kestrelctl.simulate.run(seed)` tells it again.
"""

from __future__ import annotations

import pytest

from kestrelctl import simulate

SEEDS = 1000
BLOCK = 50


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_all_promises_are_kept(first: int) -> None:
    for seed in range(first, first + BLOCK):
        simulate.run(seed).raise_problems()
