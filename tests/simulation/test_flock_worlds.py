"""Flocks of two to six pools, each on a day when everything goes wrong.

A failing seed tells its story; `kestrelctl.simulate.flock_worlds.run_flock(seed)` tells it again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kestrelctl.simulate.flock_worlds import run_flock

ROOT = Path(__file__).parents[2]
#: A world with many guests and faults, and what it is called.
BUSY = 7


@pytest.mark.parametrize("seed", range(40))
def test_all_promises_are_kept_between_pools(seed: int) -> None:
    run_flock(seed).raise_problems()


def test_a_flock_of_one_seed_has_one_story() -> None:
    first, again = run_flock(BUSY), run_flock(BUSY)
    assert first.guests > 5
    assert first.story == again.story


def test_the_order_of_hashes_does_not_matter_to_a_flock() -> None:
    program = (
        f"from kestrelctl.simulate.flock_worlds import run_flock;print(run_flock({BUSY}).digest)"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert told == {run_flock(BUSY).digest}
