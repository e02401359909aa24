"""Workers of a real pool are polled, with and without a limit."""

from __future__ import annotations

from msgspec.structs import replace

from kestrel_experiments.polls.run import PollPlan, poll_run


async def test_replies_come_as_often_as_the_limit_lets_polls_go() -> None:
    """Workers collect what they tell for a second, so polls come less often than that."""
    said: list[str] = []
    plan = PollPlan(clients=8, reply_bytes=3_000, poll_seconds=2.0, run_seconds=8)
    free = await poll_run(plan, said.append)
    limited = await poll_run(replace(plan, limit_per_second=1.0), said.append)
    assert said == ["8 workers are there"] * 2
    assert free.most_waiting == 0
    assert limited.most_waiting <= 8, "of each worker one poll waits"
    assert sum(free.received_bytes) > 2 * sum(limited.received_bytes)
    assert 0 < limited.mean_in_a_second < 4 * 3_500
    assert free.cpu_ratio > 0
    assert free.rss_bytes > 10_000_000
