"""Small flocks in which each pool is a core: alone as with the model, in a flock close to it."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from kestrel_experiments.flock_simulation.agenda import Agenda
from kestrel_experiments.flock_simulation.core_pool import CorePool
from kestrel_experiments.flock_simulation.flock_tally import FlockTally, tally
from kestrel_experiments.flock_simulation.flock_world import FlockWorld, FlockWorldPlan
from kestrel_experiments.flock_simulation.member import CLASS, MACHINE, domain_of
from kestrel_experiments.flock_simulation.pool_model import DONE, PoolModel, UnaccountedTask
from kestrel_experiments.flock_simulation.runs import simulate
from kestrel_experiments.flock_simulation.simulated_pool import Neighbourhood
from kestrel_experiments.flock_simulation.trace import trace
from kestrelctl.core import events as ev
from kestrelctl.core.model.worker.ad import WorkerAd
from kestrelctl.errors import UsageError
from kestrelctl.protocol.pools import LentClass


def flock_of(*, core: bool, flocking: bool = True, joining: float = 0.0) -> FlockWorldPlan:
    """A dozen pools of a hundredth of the source's size."""
    return FlockWorldPlan(
        pools=12, scale=0.01, seed=3, flocking=flocking, joining=joining, core=core
    )


@cache
def lived(plan: FlockWorldPlan) -> FlockWorld:
    world = FlockWorld(plan)
    world.run()
    return world


def told(plan: FlockWorldPlan) -> FlockTally:
    return tally(lived(plan))


def cores(plan: FlockWorldPlan) -> list[CorePool]:
    return [pool for pool in lived(plan).models if isinstance(pool, CorePool)]


def a_pool(agenda: Agenda, machines: int, *tasks: tuple[float, float], number: int = 0) -> CorePool:
    return CorePool(number, machines, [t[0] for t in tasks], [t[1] for t in tasks], agenda)


def two_pools(home: CorePool, lender: CorePool) -> None:
    """They are a second apart."""
    for pool in (home, lender):
        pool.meet(
            [home, lender], [0.0 if p is pool else 1.0 for p in (home, lender)], Neighbourhood()
        )


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_alone_its_tasks_wait_as_long_as_those_of_the_model(sequences: int) -> None:
    tasks = trace(Random(sequences), sequences)
    at, lengths = [60 * t.at for t in tasks], [60 * t.seconds for t in tasks]
    agenda = Agenda()
    core, model = (kind(0, 2, at, lengths, agenda) for kind in (CorePool, PoolModel))
    agenda.run(1e9)
    assert core.done == model.done == len(tasks)
    assert core.sum_wait == pytest.approx(model.sum_wait)
    assert core.most_wait == pytest.approx(model.most_wait)
    assert core.last_end == pytest.approx(model.last_end)


def test_pools_that_are_alone_come_to_the_same_figures() -> None:
    with_cores = told(flock_of(core=True, flocking=False))
    with_models = told(flock_of(core=False, flocking=False))
    assert with_cores.completions == pytest.approx(with_models.completions)
    assert with_cores.most_wait == with_models.most_wait


def test_a_flock_comes_close_to_what_it_does_with_models() -> None:
    with_cores, with_models = told(flock_of(core=True)), told(flock_of(core=False))
    assert with_cores.lost == 0
    assert with_cores.minutes == pytest.approx(with_models.minutes, rel=0.05)
    assert with_cores.completion.p50 == pytest.approx(with_models.completion.p50, rel=0.05)
    assert with_cores.local == pytest.approx(with_models.local, abs=0.05)
    assert mean_wait(flock_of(core=True)) == pytest.approx(
        mean_wait(flock_of(core=False)), rel=0.25
    )


def mean_wait(plan: FlockWorldPlan) -> float:
    models = lived(plan).models
    return sum(model.sum_wait for model in models) / sum(model.done for model in models)


@pytest.mark.parametrize("joining", [0.0, 0.3], ids=["calm", "some come late"])
def test_every_task_ends_once_and_the_cores_are_sound(joining: float) -> None:
    pools = cores(flock_of(core=True, joining=joining))
    assert pools
    for pool in pools:
        assert set(pool.states) == {DONE}
        assert pool.done == len(pool.states) == sum(pool.ran_at.values())
        assert (len(pool.guests), pool.guests_of, pool.waiting) == (0, {}, 0)
        assert pool.free == pool.machines
        assert not pool.core.jobs
        pool.core.check()


def test_one_seed_tells_one_story() -> None:
    again = FlockWorld(flock_of(core=True))
    again.run()
    assert tally(again) == told(flock_of(core=True))


def test_who_waits_goes_to_the_nearer_lender_and_home_hears_when_it_has_ended() -> None:
    agenda = Agenda()
    pools = [a_pool(agenda, 1, (1, 50), (2, 10))]
    pools += [a_pool(agenda, 1, number=number) for number in (1, 2)]
    far = [0.0, 3.0, 1.0]
    for pool in pools:
        pool.meet(pools, far, Neighbourhood())
    agenda.run(5)
    assert (pools[0].waiting, pools[0].oldest, pools[0].waiting_since(1.5)) == (1, 2, 0)
    for pool in pools[1:]:
        pools[0].offered(pool.number, 0)
    pools[0].offered(1, 1)
    agenda.run(6)
    assert pools[0].borrowed[1].running == 1
    agenda.run(1000)
    # submitted at 2, sent at 5, there from 8 to 18, heard of at 21; the one at home ended at 51
    assert (pools[0].ran_at, pools[0].most_wait, pools[0].last_end) == ({0: 1, 1: 1}, 6, 51)

    agenda = Agenda()
    pools = [a_pool(agenda, 1, (1, 50), (9, 10))]
    pools += [a_pool(agenda, 1, number=number) for number in (1, 2)]
    for pool in pools:
        pool.meet(pools, far, Neighbourhood())
    agenda.run(5)
    pools[0].offered(1, 1)
    pools[0].offered(2, 1)
    agenda.run(1000)
    assert pools[0].ran_at == {0: 1, 2: 1}


def test_owners_come_first_and_what_they_end_runs_again() -> None:
    agenda = Agenda()
    home = a_pool(agenda, 1, (1, 500), (2, 100))
    lender = a_pool(agenda, 1, (20, 30), number=1)
    two_pools(home, lender)
    agenda.run(5)
    home.offered(1, 1)
    agenda.run(25)
    assert (lender.waiting, len(lender.guests), lender.free) == (1, 1, 0)
    home.offered(1, 0)
    lender.reclaim(1)
    assert (lender.waiting, lender.killed, len(lender.guests)) == (0, 1, 0)
    agenda.run(27)
    assert (home.waiting, home.borrowed) == (1, {})
    agenda.run(1000)
    assert (home.done, lender.done) == (2, 1)
    assert home.last_end == 601
    home.core.check()
    lender.core.check()


def test_a_guest_that_comes_too_late_is_given_back_and_none_is_kept() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10)), a_pool(agenda, 1, (3, 30), number=1)
    two_pools(home, lender)
    agenda.run(5)
    home.offered(1, 1)
    assert (home.waiting, len(lender.guests), lender.waiting) == (0, 0, 0)
    home.offered(1, 0)
    agenda.run(8)
    assert home.waiting == 1
    agenda.run(1000)
    assert home.ran_at == {0: 2}


def test_a_lender_that_sends_a_guest_back_tells_what_it_has_left() -> None:
    class Watched(Neighbourhood):
        told = 0

        def changed(self) -> None:
            self.told += 1

    agenda, around = Agenda(), Watched()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10)), a_pool(agenda, 1, (3, 30), number=1)
    two_pools(home, lender)
    agenda.run(5)
    lender.around, before = around, around.told
    home.offered(1, 1)
    assert (home.waiting, len(lender.guests), around.told) == (0, 0, before + 1)


def test_pools_that_lend_run_guests_behind_their_own() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 500), (2, 100)), a_pool(agenda, 1, number=1)
    two_pools(home, lender)
    agenda.run(5)
    home.offered(1, 1)
    [guest] = lender.core.jobs
    assert guest.spec.guest is not None
    assert (guest.spec.guest.pool, guest.spec.guest.loan) == (domain_of(0), CLASS)
    agenda.run(1000)
    assert home.ran_at == {0: 1, 1: 1}


def test_a_loan_that_is_over_can_be_made_again() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 500), (10, 20)), a_pool(agenda, 1, number=1)
    two_pools(home, lender)
    agenda.run(5)
    for machines in (1, 0, 1):
        home.offered(1, machines)
    agenda.run(1000)
    assert home.ran_at == {0: 1, 1: 1}


def test_what_waits_fits_only_machines_that_have_what_it_asks_for() -> None:
    agenda = Agenda()
    home = a_pool(agenda, 1, (1, 50), (2, 10))
    agenda.run(5)
    half = WorkerAd(assets={"cpus": 0.5})
    fit = [
        home.fits(domain_of(1), LentClass(id=CLASS, ad=ad, machines=1, free={"cpus": 1.0}))
        for ad in (MACHINE, half)
    ]
    assert fit == [True, False]


def test_a_machine_that_is_drained_is_not_lent() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 3)
    assert pool.free == 3
    [worker, *_] = pool.core.workers
    pool._handle(ev.Drain(at=pool._now, worker=worker, by="ada"))
    pool._schedule()
    assert pool.free == 2


def test_a_core_that_calls_a_task_over_which_has_not_run_is_noticed() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 1, (1, 50), (2, 10))
    agenda.run(5)
    with pytest.raises(UnaccountedTask):
        pool._count(1, agenda.now, 0)
    with pytest.raises(UnaccountedTask):
        pool._leaves(min(pool._running), 0)


def test_pools_with_cores_do_not_fail() -> None:
    plan = FlockWorldPlan(pools=2, scale=0.01, core=True, failing=0.5)
    with pytest.raises(UsageError, match="--failing"):
        simulate([plan], lambda _: None)
