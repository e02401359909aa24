"""`--since`: a time back from now, or a date."""

from __future__ import annotations

import pytest
from cli_fake_pool import NOW, FakePool, run

from kestrelctl.protocol import requests as rq
from kestrelctl.protocol.requests import ListEvents


@pytest.mark.parametrize(
    ("command", "since"),
    [
        (["job", "history"], lambda pool: pool.last(rq.ListJobs).ended_since),
        (["user", "usage"], lambda pool: pool.last(rq.UserUsage).since),
    ],
)
def test_since_is_a_time_back_from_now_or_a_date(command: list[str], since: object) -> None:
    assert callable(since)
    pool = FakePool()
    run(pool, *command, "--since", "7d")
    assert since(pool) == NOW - 7 * 86400
    run(pool, *command, "--since", "1970-01-05T00:00+00:00")
    assert since(pool) == 4 * 86400
    result = run(pool, *command, "--since", "2030-01-01")
    assert (result.exit_code, "lies ahead" in result.stderr) == (2, True)
    assert "write 7d, 2026-11-01" in run(pool, *command, "--since", "2026-13-01").stderr


def test_events_are_listed_since_a_date() -> None:
    pool = FakePool()
    run(pool, "pool", "events", "--since", "1970-01-05T00:00+00:00")
    assert pool.last(ListEvents).query.since == 4 * 86400
