"""Attempts that wait at the executor, which starts the next of them when one like it has ended."""

from __future__ import annotations

from agentkit import WALL, end, give, start

from kestrelctl.core.agent.agent import Agent
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.stage import Stage
from kestrelctl.core.model.job.template import Template
from kestrelctl.core.model.result import Outcome, Result

MOST = 3


def busy(cpus: float = 2.0, attempts: int = 8, pulls: bool = False) -> Agent:
    """An agent whose processors all run an attempt; 100 is the first."""
    agent = Agent({"cpus": cpus}, pulls=pulls)
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    give(agent, attempts)
    start(agent)
    return agent


def hand(agent: Agent, most: int = MOST) -> list[int]:
    """Has as many wait at the executor as may; their numbers."""
    found = []
    while (attempt := agent.hand_next(most)) is not None:
        found.append(attempt.number)
    return found


def test_so_many_wait_there_in_their_order() -> None:
    agent = busy()
    assert hand(agent) == [102, 103, 104]
    assert (agent.waiting, [each.number for each in agent.queue]) == (6, [105, 106, 107])
    assert hand(agent) == []


def test_none_waits_there_as_long_as_one_can_start() -> None:
    agent = busy(attempts=1)
    assert hand(agent) == [], "none is left"
    give(agent, 1, first=200)
    assert agent.can_start


def test_what_takes_something_else_than_what_runs_does_not_wait_there() -> None:
    agent = busy(attempts=2)
    give(agent, 1, first=200, claim={"cpus": 2000})
    give(agent, 1, first=300)
    assert hand(agent) == [], "and none passes it"


def test_what_has_more_to_do_than_its_command_does_not_wait_there_nor_gives_its_place() -> None:
    program = Program(argv=("true",), stages=(Stage(name="in", argv=("true",)),))
    staged = Template(job_id=2, program=program)
    agent = busy(attempts=2)
    give(agent, 1, first=200, job=staged)
    assert hand(agent) == []
    agent = busy(attempts=0)
    give(agent, 2, first=200, job=staged)
    start(agent)
    give(agent, 1, first=300)
    assert hand(agent) == []


def test_what_takes_units_of_its_own_does_not_wait_there() -> None:
    agent = Agent({"cpus": 9.0, "gpus": 1.0}, units={"gpus": ["a"]})
    agent.holds()
    agent.on_welcome(agent.greeting, [], 0.0, wall=WALL)
    give(agent, 2, claim={"cpus": 1000, "gpus": 1000})
    assert start(agent) == [100]
    assert hand(agent) == []


def test_one_that_begins_takes_the_place_of_the_one_that_ends() -> None:
    agent = busy()
    hand(agent)
    agent.on_begun(102, at=7.5)
    assert agent.free == {"cpus": -1000}, "for a moment: the end is told after it"
    end(agent, 100)
    assert agent.free == {"cpus": 0}
    assert sorted(agent.running) == [101, 102]
    assert agent.running[102].waited_seconds == 7.5 - agent.running[102].arrived_at


def test_the_first_there_starts_when_a_place_was_given_to_nobody() -> None:
    agent = busy()
    hand(agent)
    end(agent, 100)
    assert agent.can_start
    attempt = agent.start_next(now=9.0)
    assert attempt is not None
    assert (attempt.number, attempt.is_ahead) == (102, True)
    agent.on_begun(102, at=9.1)
    assert agent.free == {"cpus": 0}, "it is charged once"


def test_a_recall_reaches_what_waits_there() -> None:
    agent = busy()
    hand(agent)
    assert agent.on_recall([103, 104, 105]) == [105]
    assert agent.to_withdraw() == {104: True, 103: True}
    assert agent.on_withdrawn(103)
    agent.on_begun(104, at=3.0)
    assert (agent.to_withdraw(), sorted(agent.ahead)) == ({}, [102])


def test_what_is_recalled_does_not_start_in_a_place_that_is_free() -> None:
    agent = busy()
    hand(agent)
    agent.on_recall([102])
    end(agent, 100)
    attempt = agent.start_next(now=9.0)
    assert attempt is not None
    assert attempt.number == 103


def test_a_drain_reaches_what_waits_there() -> None:
    agent = busy()
    hand(agent)
    assert agent.drain() == [105, 106, 107]
    assert agent.to_withdraw() == {104: True, 103: True, 102: True}
    assert not agent.idle


def test_another_capacity_reaches_what_waits_there() -> None:
    agent = busy()
    hand(agent)
    agent.resize({"cpus": 1.0})
    assert list(agent.to_withdraw()) == [104, 103, 102], "an end may leave no place for the next"
    for number in agent.to_withdraw():
        assert not agent.on_withdrawn(number)
    assert [waiting.number for waiting in agent.queue] == list(range(102, 108))
    end(agent, 100)
    assert start(agent) == [], "one processor is left, and taken"
    assert hand(agent) == [102, 103, 104]
    agent = busy()
    agent.resize({"cpus": 1.0})
    assert hand(agent) == [], "two run where one has a place"
    end(agent, 100)
    end(agent, 101)
    assert start(agent) == [102]


def test_what_has_no_place_any_more_is_given_back_from_there() -> None:
    agent = busy()
    hand(agent)
    assert agent.resize({"cpus": 0.5}) == [105, 106, 107]
    assert [agent.on_withdrawn(number) for number in agent.to_withdraw()] == [True] * 3


def test_a_kill_reaches_what_waits_there() -> None:
    agent = busy()
    hand(agent)
    assert agent.on_kill([102, 105], 3.0, WALL) == [102]
    ended = Result(102, 1, 2, Outcome.KILLED, WALL, 0.0, reason="cancelled")
    assert agent.on_completion(ended, 3.0).waited_seconds == 0.0
    assert agent.free == {"cpus": 0}, "nothing was charged for it"


def test_what_waits_there_is_held_and_counts_as_waiting() -> None:
    agent = busy()
    hand(agent)
    assert agent.attempts == 8
    held, _, _ = agent.holds()
    assert [number for number, *_ in held] == list(range(100, 108))


def test_results_travel_together_while_some_wait_there() -> None:
    agent = busy(attempts=5)
    hand(agent)
    agent.on_begun(102, at=3.0)
    end(agent, 100)
    assert agent.report_at() != agent.fresh_since, "two wait"


def test_what_waits_there_is_not_asked_for_again() -> None:
    agent = busy(attempts=6, pulls=True)
    assert agent.ask() == 0, "four wait, twice as many as run"
    hand(agent)
    assert agent.ask() == 0
