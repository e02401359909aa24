"""Flocks of two to six pools, each on a day when everything goes wrong.

A failing seed tells its story; `kestrel_worlds.flock_worlds.run_flock(seed)` tells it again.
"""

from __future__ import annotations

import pytest
from golden_traces import KINDS
from hashseeds import printed_with_other_hashes
from seeds import due

from kestrel_worlds.flock_worlds import run_flock

#: A world with many guests and faults, and what it is called.
BUSY = 7


@pytest.mark.parametrize("seed", due(40, parts=2, first=KINDS["flock"][0]))
def test_all_promises_are_kept_between_pools(seed: int) -> None:
    run_flock(seed).raise_problems()


def test_a_flock_of_one_seed_has_one_story() -> None:
    first, again = run_flock(BUSY), run_flock(BUSY)
    assert first.guests > 5
    assert first.story == again.story


def test_the_order_of_hashes_does_not_matter_to_a_flock() -> None:
    program = f"from kestrel_worlds.flock_worlds import run_flock;print(run_flock({BUSY}).digest)"
    assert printed_with_other_hashes(program) == {run_flock(BUSY).digest}
