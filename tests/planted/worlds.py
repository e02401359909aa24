"""Small pools on days when everything goes wrong, one test each: for planted defects to name.

They are those of `tests/simulation/test_small_worlds.py`, where all of them run.
"""

from __future__ import annotations

import pytest

from kestrelctl import simulate


@pytest.mark.parametrize("seed", range(1000))
def test_all_promises_are_kept(seed: int) -> None:
    simulate.run(seed).raise_problems()
