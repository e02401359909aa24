"""The model of a pool in a simulated flock does what the core of a pool does."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest
from poolkit import PoolDriver

from kestrel_experiments.flock_simulation.agenda import Agenda
from kestrel_experiments.flock_simulation.pool_model import PoolModel, UnaccountedTask
from kestrel_experiments.flock_simulation.simulated_pool import Neighbourhood
from kestrel_experiments.flock_simulation.trace import Arrival, trace
from kestrelctl.core import effects as fx

SECOND = 60.0


class Nobody(Neighbourhood):
    """A flock that does nothing, and remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def waits(self) -> None:
        self.told.append("waits")

    def changed(self) -> None:
        self.told.append("changed")

    def uses(self, lender: int, running: int) -> None:
        self.told.append(f"uses {running} of {lender}")

    def used(self, borrower: int, running: int) -> None:
        self.told.append(f"{borrower} uses {running}")


def a_pool(
    agenda: Agenda, machines: int, *tasks: tuple[float, float], number: int = 0
) -> PoolModel:
    return PoolModel(number, machines, [t[0] for t in tasks], [t[1] for t in tasks], agenda)


def two_pools(agenda: Agenda, home: PoolModel, lender: PoolModel) -> tuple[Nobody, Nobody]:
    """They are a second apart."""
    around = Nobody(), Nobody()
    for pool, nobody in zip((home, lender), around, strict=True):
        pool.meet([home, lender], [0.0 if p is pool else 1.0 for p in (home, lender)], nobody)
    return around


def starts_in_the_core(tasks: list[Arrival], machines: int) -> list[float]:
    """When the core starts each task, on workers of one processor that need no time to answer."""
    pool = PoolDriver()
    began = pool.now
    pool.join(*(f"w{n}" for n in range(machines)))
    ahead: list[tuple[float, str, tuple[int, int, int] | int]] = []
    for place, task in enumerate(tasks):
        heappush(ahead, (began + task.at * SECOND, "", place))
    starts = [0.0] * len(tasks)
    jobs: dict[int, int] = {}
    while ahead:
        pool.now, worker, what = heappop(ahead)
        if isinstance(what, int):
            jobs[pool.submit()] = what
        else:
            pool.report(worker, what, seconds=tasks[jobs[what[1]]].seconds * SECOND)
        for run in pool.of(fx.Run):
            for number, job_id, index, n, _ in run.spans:
                assert n == 1
                place = jobs.get(job_id, len(jobs) - 1)
                starts[place] = pool.now - began
                end = pool.now + tasks[place].seconds * SECOND
                heappush(ahead, (end, run.worker, (number, job_id, index)))
    return starts


@pytest.mark.parametrize(("machines", "sequences"), [(2, 1), (2, 2), (1, 2)])
def test_tasks_wait_as_long_as_in_the_core(machines: int, sequences: int) -> None:
    """A hundredth of the source's pools: idle, just busy, and with twice the work it can do."""
    tasks = trace(Random(sequences), sequences)
    starts = starts_in_the_core(tasks, machines)
    waits = [start - task.at * SECOND for start, task in zip(starts, tasks, strict=True)]

    agenda = Agenda()
    pool = a_pool(agenda, machines, *((t.at * SECOND, t.seconds * SECOND) for t in tasks))
    agenda.run(1e9)

    assert pool.done == len(tasks)
    assert pool.most_wait == pytest.approx(max(waits), abs=1e-6)
    assert pool.sum_wait == pytest.approx(sum(waits), abs=1e-6)


def test_who_waits_goes_where_a_machine_is_lent_and_home_hears_when_it_has_ended() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10)), a_pool(agenda, 1, number=1)
    around, _ = two_pools(agenda, home, lender)
    agenda.run(5)
    assert home.waiting == 1
    assert "waits" in around.told
    home.offered(1, 1)
    assert (home.waiting, lender.free) == (0, 0)
    agenda.run(1000)
    assert home.ran_at == {0: 1, 1: 1}
    # submitted at 2, sent at 5, there from 6 to 16, heard of at 17; the one at home ended at 51
    assert home.most_wait == 4
    assert home.last_end == 51
    assert lender.free == 1


def test_a_lender_notices_at_once_that_a_guest_has_taken_a_machine() -> None:
    """It may have been promised to somebody else, who is to hear that it is gone."""
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10)), a_pool(agenda, 1, number=1)
    _, around = two_pools(agenda, home, lender)
    agenda.run(5)
    home.offered(1, 1)
    assert around.told == ["0 uses 1", "changed"]


def test_owners_come_first_and_take_a_machine_back_with_what_runs_there() -> None:
    agenda = Agenda()
    home = a_pool(agenda, 1, (1, 500), (2, 100))
    lender = a_pool(agenda, 1, (20, 30), number=1)
    two_pools(agenda, home, lender)
    agenda.run(5)
    home.offered(1, 1)
    agenda.run(25)
    assert lender.waiting == 1
    home.offered(1, 0)
    lender.reclaim(1)
    assert (lender.waiting, lender.killed) == (0, 1)
    agenda.run(27)
    assert home.waiting == 1
    agenda.run(1000)
    assert (home.done, lender.done) == (2, 1)
    assert home.last_end == 601


def test_a_task_that_comes_too_late_is_given_back() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10)), a_pool(agenda, 1, (3, 30), number=1)
    two_pools(agenda, home, lender)
    agenda.run(5)
    home.offered(1, 1)
    agenda.run(6)
    assert home.waiting == 0
    home.offered(1, 0)
    agenda.run(8)
    assert home.waiting == 1
    agenda.run(1000)
    assert home.ran_at == {0: 2}


def test_what_a_pool_ran_when_it_failed_runs_again() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10)), a_pool(agenda, 1, number=1)
    two_pools(agenda, home, lender)
    agenda.run(5)
    home.offered(1, 1)
    agenda.run(8)
    lender.fail(notice_seconds=15)
    agenda.run(22)
    assert home.waiting == 0
    agenda.run(24)
    assert home.waiting == 1
    home.fail(notice_seconds=15)
    assert home.waiting == 2
    agenda.run(100)
    home.recover()
    agenda.run(1000)
    assert home.ran_at == {0: 2}
    assert home.last_end == 160


def test_the_model_notices_a_machine_that_runs_two() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 1, (1, 50), (2, 10))
    agenda.run(1.5)
    with pytest.raises(UnaccountedTask):
        pool._start(1)


def test_the_model_notices_a_task_that_is_sent_where_nothing_is_lent() -> None:
    agenda = Agenda()
    home, lender = a_pool(agenda, 1, (1, 50), (2, 10), (3, 10)), a_pool(agenda, 1, number=1)
    two_pools(agenda, home, lender)
    agenda.run(5)
    home.offered(1, 1)
    with pytest.raises(UnaccountedTask, match="no machine is lent"):
        home._send(2)


def test_the_model_notices_a_task_that_ends_twice() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 2, (1, 5))
    agenda.run(10)
    with pytest.raises(UnaccountedTask):
        pool._end(0, 0)


def test_events_come_in_the_order_of_moments_and_within_one_as_they_were_asked_for() -> None:
    agenda = Agenda(-2.0)
    heard: list[tuple[float, int]] = []

    def hear(number: int, again_after: float | None) -> None:
        heard.append((agenda.now, number))
        if again_after is not None:
            agenda.at(agenda.now + again_after, hear, number + 10, None)

    for number, (moment, again) in enumerate([(5.0, None), (-1.9, 0.1), (5.0, 0.0), (0.3, 9.0)]):
        agenda.at(moment, hear, number, again)
    agenda.run(5.0)
    assert agenda.now == 5.0
    assert heard == [(-1.9, 1), (pytest.approx(-1.8), 11), (0.3, 3)]
    agenda.run(100.0)
    assert heard[3:] == [(5.0, 0), (5.0, 2), (5.0, 12), (9.3, 13)]


def test_changes_are_told_only_where_somebody_has_to_hear_of_them() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 4, (1, 50), (2, 50), (3, 50), (4, 50), (5, 3), (6, 50))
    pool.meet([pool], [0.0], around := Nobody())
    pool.quiet_for(1, 3)
    agenda.run(3.5)
    assert (pool.free, around.told) == (1, [])
    agenda.run(4.5)
    assert (pool.free, around.told) == (0, ["changed"])
    agenda.run(5.5)
    assert around.told[1:] == ["changed", "waits"], "own tasks that wait are no quiet thing"


def test_of_more_that_wait_is_told_when_they_are_more_than_was_asked_for() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 1, (1, 7.5), *((2 + n, 100) for n in range(9)))
    pool.meet([pool], [0.0], around := Nobody())
    agenda.run(2.5)
    assert around.told.count("waits") == 1
    pool.tell_beyond(4)
    agenda.run(5.5)
    assert (pool.waiting, around.told.count("waits")) == (4, 1)
    agenda.run(6.5)
    assert (pool.waiting, around.told.count("waits")) == (5, 2)
    agenda.run(7.5)
    assert around.told.count("waits") == 2, "it was told once, and nothing was asked for since"
    pool.tell_beyond(7)
    agenda.run(9.5)
    assert (pool.waiting, around.told.count("waits")) == (7, 2), "one has started since"
    agenda.run(10.5)
    assert (pool.waiting, around.told.count("waits")) == (8, 3)


def test_what_comes_while_a_pool_is_down_runs_when_it_is_back() -> None:
    agenda = Agenda()
    pool = a_pool(agenda, 2, (1, 5), (20, 5), (21, 5), (50, 5))
    pool.meet([pool], [0.0], Nobody())
    agenda.run(10)
    pool.fail(notice_seconds=1)
    agenda.run(30)
    pool.recover()
    agenda.run(31)
    assert pool.free == 0
    agenda.run(1000)
    assert (pool.done, pool.most_wait, pool.last_end) == (4, 10, 55)
