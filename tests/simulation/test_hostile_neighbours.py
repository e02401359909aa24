"""A pool that borrows sends what no honest pool sends, while its tasks run at the lender."""

from __future__ import annotations

import pytest
from flockworldkit import TwoPools, job, two_pools

from kestrel_worlds.flock_worlds import hostile_neighbours
from kestrelctl.flock.service import loan
from kestrelctl.protocol import directions
from kestrelctl.worker.connection import session

#: Enough that each kind comes many times.
MESSAGES = 400


def world() -> TwoPools:
    """A home whose tasks fill its loan, and which means no good."""
    return TwoPools(two_pools([job("medium", 40)], hostile=MESSAGES))


def hostile(pools: TwoPools) -> int:
    """How often it has sent such a thing."""
    return sum(what == "means no good" for _, _, what, _ in pools.world.clock.story)


def test_whatever_a_neighbour_makes_up_comes_to_nothing_and_honest_tasks_run() -> None:
    with world() as pools:
        pools.to_the_end()
        assert hostile(pools) > MESSAGES / 4
        assert len(pools.guests) > 10


def test_a_resize_that_a_loan_obeys_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directions, "to_loan", directions.to_worker)
    with TwoPools(two_pools([job("medium", 40)])) as pools:
        pools.until(10.0)
        flock = pools.lender.manager.flock
        assert flock is not None
        [(_, loan)] = flock.keeper.loans
        hostile_neighbours.say(pools.home, pools.lender, loan, hostile_neighbours.RESIZE)
        pools.until(10.2)
        assert any("offers 400.0 cpus" in problem for problem in pools.world.problems)


def test_what_a_worker_lets_through_is_refused_before_it_becomes_a_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What runs for a guest is a job of the lender, with the whole program that it was sent."""
    monkeypatch.setattr(session, "problem_with_template", lambda template: None)
    with world() as pools:
        pools.to_the_end()
        assert hostile(pools) > MESSAGES / 4


def test_a_made_up_attempt_that_becomes_a_job_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loan, "why_refused", lambda spec, home: "")
    with world() as pools:
        pools.world.run()
        problems = pools.world.problems
    assert any("a guest of alder, is of a job that is not durable there" in p for p in problems)
