"""What running tasks use, as far as their workers say so."""

from __future__ import annotations

import msgspec
import pytest
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core import events as ev
from kestrelctl.core.model.result import CLOCK_SLACK_SECONDS, MOST_BYTES
from kestrelctl.core.model.worker.use import Use
from kestrelctl.protocol import codec, directions, workers

W, OTHER = "w1", "w2"


def driver_with_task() -> tuple[PoolDriver, int]:
    """A task runs at a worker for ten minutes."""
    pool = PoolDriver()
    pool.join(W, OTHER)
    pool.submit()
    [number] = pool.worker(W).held or pool.worker(OTHER).held
    pool.now += 600.0
    return pool, number


def say(pool: PoolDriver, who: str, *uses: Use) -> None:
    pool.tell(ev.Using(at=pool.now, worker=who, uses=list(uses)))
    pool.pool.check()


def holder(pool: PoolDriver) -> str:
    return W if pool.worker(W).held else OTHER


def test_what_a_task_uses_is_known_until_its_worker_says_something_else() -> None:
    pool, number = driver_with_task()
    who = holder(pool)
    say(pool, who, Use(number, 600.0, 300.0, 1 << 20))
    assert pool.worker(who).uses == {number: (pool.now, Use(number, 600.0, 300.0, 1 << 20))}
    pool.now += 60.0
    say(pool, who, Use(number, 660.0, 350.0, 1 << 19))
    assert pool.worker(who).uses == {number: (pool.now, Use(number, 660.0, 350.0, 1 << 19))}


def test_of_what_a_worker_does_not_hold_it_can_say_nothing() -> None:
    pool, number = driver_with_task()
    who = holder(pool)
    another = OTHER if who == W else W
    say(pool, another, Use(number, 1.0, 1.0, 1), Use(77, 1.0, 1.0, 1))
    assert pool.worker(another).uses == {}
    pool.tell(ev.Using(at=pool.now, worker="stranger", uses=[Use(number, 1.0, 1.0, 1)]))
    assert pool.worker(who).uses == {}


def test_what_cannot_be_is_not_believed() -> None:
    pool, number = driver_with_task()
    who = holder(pool)
    say(pool, who, Use(number, 1e12, 1e12, (1 << 63) - 1))
    [(_, use)] = pool.worker(who).uses.values()
    assert use.wall_seconds <= 600.0 + CLOCK_SLACK_SECONDS
    assert use.cpu_seconds <= 4096 * (600.0 + CLOCK_SLACK_SECONDS) + 1
    assert use.memory_bytes == MOST_BYTES


@pytest.mark.parametrize("figure", ["NaN", "-1", "1e30", "Infinity", '"1"', "null"])
def test_what_is_no_figure_is_refused_when_it_is_read(figure: str) -> None:
    for place in range(4):
        use = ["1", "1", "1", "1"]
        use[place] = figure
        with pytest.raises(codec.BadMessage):
            directions.from_worker.decode(f'{{"type": "usage", "uses": [[{", ".join(use)}]]}}')


def test_what_was_said_of_tasks_that_are_over_goes_with_the_next_word() -> None:
    pool, number = driver_with_task()
    who = holder(pool)
    say(pool, who, Use(number, 600.0, 1.0, 1))
    pool.report(who)
    say(pool, who)
    assert pool.worker(who).uses == {}


def test_a_worker_that_says_hello_again_need_not_say_it_again() -> None:
    """Its attempts go on, also when it offers something else now."""
    pool, number = driver_with_task()
    who = holder(pool)
    attempts = pool.held(who)
    say(pool, who, Use(number, 600.0, 1.0, 1))
    pool.join(who, cpus=2, holds=attempts)
    assert list(pool.worker(who).uses) == [number]


def test_it_is_a_sign_of_life() -> None:
    pool, number = driver_with_task()
    who = holder(pool)
    before = pool.worker(who).lease_until
    pool.now += 1.0
    say(pool, who, Use(number, 1.0, 1.0, 1))
    assert pool.worker(who).lease_until > before


def test_workers_are_told_how_often() -> None:
    pool = PoolDriver()
    pool.join(W)
    [welcome] = pool.of(fx.Welcome)
    assert welcome.usage_seconds == pool.pool.config.usage_seconds == 300.0


def test_an_older_worker_or_manager_knows_nothing_of_it() -> None:
    """Nobody says what nobody asks for."""
    old = {"type": "welcome", "incarnation": "x", "heartbeat_seconds": 3.0}
    found = directions.to_worker.decode(msgspec.json.encode(old))
    assert isinstance(found, workers.Welcome)
    assert found.usage_seconds == 0.0


def test_the_census_counts_what_is_said_of_running_tasks() -> None:
    pool, number = driver_with_task()
    who = holder(pool)
    say(pool, who, Use(number, 600.0, 1.0, 1 << 20))
    found = pool.pool.census(pool.now)
    assert (found.long_tasks, found.long_tasks_bytes) == (1, 1 << 20)
    pool.report(who)
    found = pool.pool.census(pool.now)
    assert (found.long_tasks, found.long_tasks_bytes) == (0, 0)
