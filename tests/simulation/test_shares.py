"""Owners who want more than there is: what each gets, and how long he waits.

The audit of these worlds (`kestrelctl.simulate.share_audit`) holds what machines really ran against
weights, and waiting against bounds that it derives.
"""

from __future__ import annotations

import pytest
from seeds import due

from kestrelctl import simulate


@pytest.mark.parametrize("seed", due(4, parts=2))
def test_everybody_gets_his_share_of_an_hour_and_nobody_starves(seed: int) -> None:
    report = simulate.run(seed, simulate.shared(seed))
    report.raise_problems()
    assert report.seconds > 3600


@pytest.mark.parametrize("seed", due(12, parts=3))
def test_ten_tasks_do_not_wait_for_twenty_thousand(seed: int) -> None:
    world = simulate.crowded(seed)
    report = simulate.run(seed, world)
    report.raise_problems()
    assert report.jobs == len(world.submissions)


@pytest.mark.parametrize("seed", due(12, parts=3))
def test_a_task_that_needs_a_whole_worker_gets_one_in_a_stream_of_small_ones(seed: int) -> None:
    report = simulate.run(seed, simulate.streaming(seed))
    report.raise_problems()
