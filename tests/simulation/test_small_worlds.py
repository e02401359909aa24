"""A thousand small pools in four days, each on one when everything goes wrong.

A failing seed tells its story; `kestrelctl.simulate.run(seed)` tells it again.
"""

from __future__ import annotations

import pytest
from seeds import due

from kestrelctl import simulate


@pytest.mark.parametrize("seed", due(1000, parts=4))
def test_all_promises_are_kept(seed: int) -> None:
    simulate.run(seed).raise_problems()
