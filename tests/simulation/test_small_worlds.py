"""A thousand small pools, each on a day when everything goes wrong.

A failing seed tells its story; `kestrelctl.simulate.run(seed)` tells it again.
"""

from __future__ import annotations

import pytest

from kestrelctl import simulate


@pytest.mark.parametrize("seed", range(1000))
def test_all_promises_are_kept(seed: int) -> None:
    simulate.run(seed).raise_problems()
