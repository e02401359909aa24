"""Owners who want more than there is: what each gets, and how long he waits.

The audit of these worlds (`kestrel_worlds.share_audit`) holds what machines really ran against
weights, and waiting against bounds that it derives.
"""

from __future__ import annotations

import pytest
from seeds import due

import kestrel_worlds


@pytest.mark.parametrize("seed", due(4, parts=2))
def test_everybody_gets_his_share_of_an_hour_and_nobody_starves(seed: int) -> None:
    report = kestrel_worlds.run(seed, kestrel_worlds.shared(seed))
    report.raise_problems()
    assert report.seconds > 3600


@pytest.mark.parametrize("seed", due(12, parts=3))
def test_ten_tasks_do_not_wait_for_twenty_thousand(seed: int) -> None:
    world = kestrel_worlds.crowded(seed)
    report = kestrel_worlds.run(seed, world)
    report.raise_problems()
    assert report.jobs == len(world.submissions)


@pytest.mark.parametrize("seed", due(12, parts=3))
def test_a_task_that_needs_a_whole_worker_gets_one_in_a_stream_of_small_ones(seed: int) -> None:
    report = kestrel_worlds.run(seed, kestrel_worlds.streaming(seed))
    report.raise_problems()
