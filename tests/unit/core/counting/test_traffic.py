"""Advertisement traffic, told from intervals alone."""

from __future__ import annotations

import math
import random

import pytest

from kestrelctl.core.counting.traffic import (
    condor_traffic,
    heartbeat_traffic,
    mean_interval_seconds,
    usage_traffic,
)
from kestrelctl.core.model.config import Config


def test_the_figures_of_the_source_come_out() -> None:
    traffic = condor_traffic(nodes=10_000, cores=4, running=40_000)
    assert round(traffic.ads_per_second) == 167
    # The text says "~= 45" and "~= 134": it rounds up.
    assert traffic.schedd_updates_per_second == pytest.approx(44.44, abs=0.01)
    assert math.ceil(traffic.schedd_updates_per_second) == 45
    assert math.ceil(traffic.shadow_updates_per_second) == 134


def test_more_cores_make_more_ads_there() -> None:
    assert condor_traffic(100, 64, 0).ads_per_second > 10 * condor_traffic(100, 4, 0).ads_per_second


@pytest.mark.parametrize("workers", [1, 100, 1_000, 5_000])
def test_the_pool_together_sends_a_bounded_number_of_signs_of_life(workers: int) -> None:
    traffic = heartbeat_traffic(workers, Config())
    assert traffic.heartbeats_per_second <= 1.25 * Config().heartbeats_per_second
    assert traffic.interval_seconds <= traffic.heartbeat_seconds < traffic.lease_seconds


def test_beyond_the_longest_interval_the_rate_grows_with_the_pool() -> None:
    small, large = heartbeat_traffic(10_000, Config()), heartbeat_traffic(20_000, Config())
    assert large.heartbeats_per_second == pytest.approx(2 * small.heartbeats_per_second)


@pytest.mark.parametrize("heartbeat_seconds", [0.5, 1.05, 3.0, 9.17, 12.0, 60.0])
def test_the_mean_interval_is_that_of_what_workers_do(heartbeat_seconds: float) -> None:
    dice = random.Random(1)
    waits = []
    for _ in range(20_000):
        due = heartbeat_seconds * dice.uniform(0.9, 1.0)
        waits.append(math.floor(due) if due >= 1.0 else due)
    mean = sum(waits) / len(waits)
    assert mean_interval_seconds(heartbeat_seconds) == pytest.approx(mean, rel=0.01)


def test_updates_of_running_tasks_are_one_message_for_each_worker_and_interval() -> None:
    """Four on each of ten thousand machines: a quarter of what one for each task would be."""
    traffic = usage_traffic(10_000, 40_000, 300.0)
    assert traffic.messages_per_second == pytest.approx(10_000 / 285.0)
    assert traffic.tasks_per_message == 4.0
    assert traffic.messages_per_second < condor_traffic(10_000, 4, 40_000).shadow_updates_per_second


def test_only_workers_with_running_tasks_send_updates() -> None:
    assert usage_traffic(10_000, 57, 300.0).messages_per_second == pytest.approx(57 / 285.0)
    assert usage_traffic(10_000, 0, 300.0).messages_per_second == 0.0
    assert usage_traffic(10_000, 40_000, 0.0).messages_per_second == 0.0


def test_the_mean_interval_of_updates_is_that_of_what_workers_do() -> None:
    dice = random.Random(1)
    waits = [300.0 * dice.uniform(0.9, 1.0) for _ in range(20_000)]
    mean = sum(waits) / len(waits)
    assert usage_traffic(1, 1, 300.0).interval_seconds == pytest.approx(mean, rel=0.01)
