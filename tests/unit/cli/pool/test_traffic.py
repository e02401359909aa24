"""`pool traffic`: a forecast without a pool, and a look at a live one."""

from __future__ import annotations

import json

import pytest
from cli_fake_pool import FakePool, run

from kestrelctl.cli.pool import traffic
from kestrelctl.protocol import answers as an


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> FakePool:
    """917 workers that sent 1,120 signs of life in ten seconds; nobody waits for them here."""

    async def at_once(seconds: float) -> None:
        assert seconds == 10.0

    monkeypatch.setattr(traffic.asyncio, "sleep", at_once)
    answers = iter([_counted(0.0, 5_000), _counted(10.0, 6_120)])
    return FakePool(PoolTraffic=lambda _: next(answers))


def _counted(at: float, beats: int, epoch: int = 3) -> an.Traffic:
    messages = [("heartbeat", "in", beats, 15 * beats), ("hello", "in", 917, 300_000)]
    return an.Traffic(id="", at=at, epoch=epoch, workers=917, messages=messages)


def test_the_pool_of_the_source_is_told_from_intervals_alone() -> None:
    pool = FakePool()
    result = run(pool, "pool", "traffic", "--workers", "10000", "--cores", "4")
    assert result.exit_code == 0
    assert "167 ads/s; of running jobs 45 and 134 updates/s" in result.stdout
    assert not pool.opened


def test_more_cores_make_no_difference_here() -> None:
    lines = [
        run(FakePool(), "-o", "json", "pool", "traffic", "--cores", cores).stdout
        for cores in ("4", "64")
    ]
    few, many = (json.loads(line) for line in lines)
    assert few["idle"] == many["idle"]
    assert many["condor"]["ads_per_second"] > 10 * few["condor"]["ads_per_second"]


def test_a_live_pool_is_put_beside_what_was_predicted(pool: FakePool) -> None:
    found = run(pool, "-o", "json", "pool", "traffic", "--measure", "--seconds", "10")
    measured = json.loads(found.stdout)["measured"]
    assert measured["rates"] == [
        {
            "kind": "heartbeat",
            "direction": "in",
            "messages_per_second": 112.0,
            "bytes_per_second": 1680.0,
        }
    ]
    assert measured["predicted"]["heartbeats_per_second"] == pytest.approx(112.0, rel=0.01)


def test_a_manager_that_started_anew_cannot_be_measured(pool: FakePool) -> None:
    answers = iter([_counted(0.0, 5_000), _counted(10.0, 7, epoch=4)])
    pool.answers["PoolTraffic"] = lambda _: next(answers)
    result = run(pool, "pool", "traffic", "--measure", "--seconds", "10")
    assert result.exit_code == 5
    assert "started anew" in result.stderr


def test_sizes_are_those_of_what_travels() -> None:
    found = traffic.sizes()
    assert found.heartbeat_sent < found.heartbeat_received < 200
    assert found.heartbeat_received < found.ad_received < 1000


def test_updates_of_running_tasks_are_among_what_is_predicted() -> None:
    words = ("-o", "json", "pool", "traffic", "--workers", "10000", "--running")
    told = [json.loads(run(FakePool(), *words, running).stdout) for running in ("0", "40000")]
    rest, busy = (each["messages_per_second"] for each in told)
    assert busy - rest == pytest.approx(10_000 / 285)
    assert told[0]["usage"]["messages_per_second"] == 0
    assert told[1]["received_bytes_per_second"] > told[0]["received_bytes_per_second"]
