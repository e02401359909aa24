"""Small flocks from the first task to the last: nothing is lost, and near machines are used."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from kestrel_experiments.flock_simulation.flock_tally import NEAR_SHARES, FlockTally, tally
from kestrel_experiments.flock_simulation.flock_world import FlockWorld, FlockWorldPlan
from kestrel_experiments.flock_simulation.pool_model import DONE, PoolModel
from kestrelctl.flock.rules.announcing import Announcer
from kestrelctl.flock.rules.borrowing import Borrower

TINY = FlockWorldPlan(pools=24, scale=0.02, seed=3)


@cache
def lived(plan: FlockWorldPlan) -> FlockWorld:
    world = FlockWorld(plan)
    world.run()
    return world


def told(plan: FlockWorldPlan) -> FlockTally:
    return tally(lived(plan))


@pytest.mark.parametrize(
    "plan",
    [
        TINY,
        FlockWorldPlan(pools=24, scale=0.02, seed=4, ttl=2),
        FlockWorldPlan(pools=24, scale=0.02, seed=5, failing=0.3, joining=0.3),
    ],
    ids=["calm", "ttl", "coming and going"],
)
def test_every_task_ends_exactly_once_and_machines_are_idle_in_the_end(
    plan: FlockWorldPlan,
) -> None:
    world = lived(plan)
    for model in world.models:
        assert isinstance(model, PoolModel)
        assert set(model.states) == {DONE}
        assert model.done == len(model.states) == sum(model.ran_at.values())
        assert model.free == model.machines
        assert (model.guests, model.guests_of, model.waiting) == ({}, {}, 0)
    assert tally(world).lost == 0


def test_one_seed_tells_one_story() -> None:
    again = FlockWorld(TINY)
    again.run()
    assert tally(again) == told(TINY)
    assert told(FlockWorldPlan(pools=24, scale=0.02, seed=4)) != told(TINY)


def test_pools_that_flock_are_done_sooner_than_pools_that_are_alone() -> None:
    alone = told(FlockWorldPlan(pools=24, scale=0.02, seed=3, flocking=False))
    flock = told(TINY)
    assert alone.local == 1
    assert flock.tasks == alone.tasks
    assert flock.minutes < alone.minutes / 2
    assert flock.most_wait.most < alone.most_wait.most / 2


def test_guests_that_may_go_on_longer_than_any_task_are_never_run_again() -> None:
    short = told(FlockWorldPlan(pools=24, scale=0.02, seed=3, reclaim_minutes=0.5))
    assert told(TINY).run_again == 0 < short.run_again


@pytest.mark.parametrize("look_seconds", [20.0, 60.0])
def test_a_pool_looks_no_sooner_again_than_it_may(
    look_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks others, and lends what has fallen idle, so often; what is taken back, at once."""
    asked: dict[str, list[float]] = {}
    lent: dict[str, list[float]] = {}
    decide, offered = Borrower.decide, PoolModel.offered

    def decides(self: Borrower, now: float, *about: Any) -> Any:
        asked.setdefault(str(id(self)), []).append(now)
        return decide(self, now, *about)

    def is_offered(self: PoolModel, lender: int, machines: int) -> None:
        loan = self.borrowed.get(lender)
        if machines > (loan.machines if loan is not None else 0):
            now = world.agenda.now - world.network.seconds(self.number, lender)
            lent.setdefault(str(lender), []).append(round(now, 6))
        offered(self, lender, machines)

    monkeypatch.setattr(Borrower, "decide", decides)
    monkeypatch.setattr(PoolModel, "offered", is_offered)
    world = FlockWorld(replace(TINY, look_seconds=look_seconds))
    world.run()
    assert tally(world).lost == 0
    assert lent
    for moments in asked.values():
        assert all(later - now >= look_seconds - 1e-6 for now, later in pairwise(moments))
    soon = [
        later - now
        for moments in lent.values()
        for now, later in pairwise(sorted(set(moments)))
        if later - now < look_seconds - 1e-3
    ]
    assert len(soon) < sum(map(len, lent.values())) / 4, "where somebody's loan is taken back"


def test_how_near_tasks_ran_is_counted_from_where_each_ran() -> None:
    world, found = lived(TINY), told(TINY)
    far = [
        world.network.seconds(model.number, pool) / world.network.diameter_seconds
        for model in world.models
        for pool, count in model.ran_at.items()
        for _ in range(count)
    ]
    assert len(far) == found.tasks
    for share, near in zip(NEAR_SHARES, found.near, strict=True):
        assert near == pytest.approx(sum(each <= share for each in far) / len(far))
    assert found.near[0] == found.local < found.within(0.5) <= found.near[-1] == 1


def test_a_pool_that_joins_late_lends_and_borrows_from_then_on() -> None:
    world = lived(FlockWorldPlan(pools=24, scale=0.02, seed=5, failing=0.3, joining=0.3))
    assert all(member.member for member in world.members)
    assert min(len(member.overlay.known()) for member in world.members) > 3


def test_the_short_cut_to_what_is_news_agrees_with_the_rule() -> None:
    """A member asks its announcer only when the idle machines left a band around those told."""
    world = FlockWorld(TINY)
    world.agenda.run(6_000.0)
    compared = 0
    for member in world.members:
        said = member.said.last
        assert said is not None
        [cls] = said.classes or [None]
        if cls is None:
            continue
        announcer = Announcer(member.domain, 1, member._settings)
        announcer.next(0.0, (cls,), willing=True, ttl=1)
        for free in range(member.model.machines + 1):
            now = cls.__class__(
                id=cls.id, ad=cls.ad, machines=cls.machines, free={"cpus": float(free)}
            )
            is_news = announcer._is_news((now,), willing=True)
            assert is_news == (not member._fewest <= free <= member._most)
            compared += 1
    assert compared


def test_a_pool_tells_a_number_of_others_that_grows_like_a_logarithm() -> None:
    hearers = []
    for pools in (20, 40, 80, 160):
        world = FlockWorld(FlockWorldPlan(pools=pools, scale=0.001, seed=1))
        hearers.append(sum(len(member.hearers) for member in world.members) / pools)
    steps = [later - earlier for earlier, later in pairwise(hearers)]
    assert len(steps) == 3
    assert all(step < 8 for step in steps), hearers
