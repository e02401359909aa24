"""What a submission costs the manager does not depend on how many tasks it brings."""

from __future__ import annotations

from poolkit import PoolDriver
from stepcount import steps


def steps_to_submit(tasks: int) -> int:
    driver = PoolDriver()
    driver.join("w1")
    return steps(lambda: driver.submit(tasks))


def test_ten_million_tasks_are_submitted_in_as_many_steps_as_two() -> None:
    """How soon a client has its answer is measured by tests/bench/latency.py."""
    assert steps_to_submit(10_000_000) == steps_to_submit(2)
