"""Workers that are sent no more than they ask for."""

from __future__ import annotations

from agentkit import WALL, end, give, start, template
from poolkit import PoolDriver

from kestrelctl.core import events as ev
from kestrelctl.core.agent.agent import WANTED_PER_CPU, Agent
from kestrelctl.core.model.refusal import Reason


def want(driver: PoolDriver, worker: str, attempts: int) -> None:
    driver.tell(ev.Wanted(at=driver.now, worker=worker, attempts=attempts))


def test_a_worker_that_pulls_gets_what_it_asks_for() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, wants=3)
    driver.submit(10)
    assert len(driver.held("w")) == 3
    want(driver, "w", 2)
    assert len(driver.held("w")) == 5


def test_what_it_ends_is_not_asked_for() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, wants=3)
    driver.submit(10)
    driver.report("w")
    assert len(driver.held("w")) == 2
    want(driver, "w", 1)
    assert len(driver.held("w")) == 3


def test_asking_for_more_than_it_has_room_for_brings_no_more() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=2, wants=1 << 62)
    driver.submit(10)
    assert len(driver.held("w")) == 2


def test_what_it_asked_for_stays_asked_for_while_nothing_waits() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, wants=3)
    driver.submit(2)
    driver.submit(5)
    assert len(driver.held("w")) == 3


def test_one_that_asks_for_nothing_leaves_the_work_to_others() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, wants=0)
    job = driver.submit(4)
    (group,) = driver.pool.explain(driver.pool.state.jobs[job], driver.now).groups
    assert (group.refusal.reason, group.refusal.found) == (
        Reason.BUSY,
        "it asks for nothing more",
    )
    driver.join("other", cpus=8)
    assert (len(driver.held("w")), len(driver.held("other"))) == (0, 4)


def test_short_tasks_wait_there_only_as_far_as_it_asked() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=1, wants=2)
    job = driver.submit(1000)
    asked = 2
    for _ in range(5):
        driver.report("w", seconds=0.001)
        want(driver, "w", 3)
        asked += 3
        assert driver.pool.state.jobs[job].cursor <= asked
    assert len(driver.held("w")) > 5


def test_a_hello_begins_anew() -> None:
    driver = PoolDriver()
    driver.join("w", cpus=8, wants=0)
    driver.submit(10)
    driver.join("w", cpus=8, wants=1)
    assert len(driver.held("w")) == 1
    driver.join("w", cpus=8)
    want(driver, "w", 1)
    assert driver.worker("w").wants is None


# -- the worker's side -----------------------------------------------------------------------------


def pulling(cpus: float = 2.0) -> Agent:
    agent = Agent({"cpus": cpus}, pulls=True)
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    return agent


def test_it_asks_for_two_for_each_processor_with_its_hello() -> None:
    agent = pulling(cpus=2.5)
    assert agent.wanted == 3 * WANTED_PER_CPU
    assert agent.ask() == 0


def test_it_asks_for_more_when_half_is_gone() -> None:
    agent = pulling(cpus=2)
    give(agent, 4)
    assert agent.wanted == 0
    start(agent)
    assert agent.ask() == 2
    assert agent.ask() == 0
    end(agent, 100)
    start(agent)
    assert agent.ask() == 0, "one message asks for several"
    end(agent, 101)
    start(agent)
    assert agent.ask() == 2


def test_it_asks_for_nothing_while_it_leaves_or_is_not_welcome() -> None:
    agent = pulling()
    agent.holds()
    give(agent, 4)
    start(agent)
    assert agent.ask() == 0
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    agent.drain()
    assert agent.ask() == 0
    agent.holds()
    assert agent.wanted == 0


def test_one_that_does_not_pull_never_asks() -> None:
    agent = Agent({"cpus": 2.0})
    agent.holds()
    assert agent.wanted is None
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    give(agent, 1, job=template())
    assert agent.ask() == 0
