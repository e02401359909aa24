"""Guests run on what the pool's own leave, and share that fairly."""

from __future__ import annotations

import msgspec
import pytest
from flockkit import guest, join, lend, recalled, run, visit
from poolkit import PoolDriver

from kestrelctl.core import effects as fx
from kestrelctl.core.model.config import Config
from kestrelctl.core.model.job.guest import GuestOf
from kestrelctl.core.model.job.program import Program
from kestrelctl.core.model.job.spec import JobSpec
from kestrelctl.core.model.refusal import Reason
from kestrelctl.core.model.validate import problem_with_job

STARVING = Config(starving_seconds=10.0)


def test_a_guest_comes_behind_every_job_of_the_pools_own_whatever_their_priorities() -> None:
    driver = PoolDriver()
    visitor = visit(driver, 3, priority=255)
    own = driver.submit(2, priority=0)
    join(driver, "w1", "w2")
    assert run(driver) == {"w1": [own], "w2": [own]}
    driver.report("w1")
    assert run(driver) == {"w1": [visitor], "w2": [own]}


def test_a_guest_comes_behind_the_pools_own_that_ask_for_something_else() -> None:
    driver = PoolDriver()
    visit(driver, 3, priority=255)
    own = driver.submit(2, cpus=2, priority=0)
    join(driver, "w1", "w2", cpus=2)
    assert run(driver) == {"w1": [own], "w2": [own]}


def test_a_guest_is_behind_the_pools_own_after_a_restart_too() -> None:
    driver = PoolDriver()
    visitor = visit(driver, 1, priority=255)
    own = driver.submit(1, priority=0)
    driver.restart()
    job = driver.pool.job(visitor)
    assert job is not None
    assert job.spec.guest == guest()
    join(driver, "w1")
    assert driver.jobs_at("w1") == [own]


def test_guests_share_fairly_what_is_left() -> None:
    driver = PoolDriver()
    first = visit(driver, 100, user="bob@home.example", priority=255)
    second = visit(driver, 100, user="eve@away.example", priority=1)
    join(driver, "w1", "w2", "w3", "w4")
    held = [job_id for jobs in run(driver).values() for job_id in jobs]
    assert (held.count(first), held.count(second)) == (2, 2)


@pytest.mark.parametrize("guests", [False, True], ids=["alone", "beside guests"])
def test_what_guests_have_used_tilts_no_share_of_the_pools_own(guests: bool) -> None:
    driver = PoolDriver()
    join(driver, "w1", "w2", tags=("HOME",))
    join(driver, *(f"v{n}" for n in range(20)))
    driver.submit(100, owner="ada", requires=("HOME",))
    if guests:
        visit(driver, 100)
    driver.live(60.0)
    driver.submit(100, owner="grace", requires=("HOME",))
    driver.live(2.0)
    # Who used all of it lately has half of his weight now, who used nothing twice his.
    sharers = driver.pool.sharers
    assert (sharers.of("ada").share, sharers.of("grace").share) == (0.5, 2.0)
    shares = driver.pool.census(driver.now).shares
    assert (shares["ada"][0], shares["grace"][0]) == (0.2, 0.8)


@pytest.mark.parametrize("is_guest", [False, True], ids=["own", "guest"])
def test_no_worker_is_kept_for_a_guest_that_starves(is_guest: bool) -> None:
    driver = PoolDriver(STARVING)
    join(driver, "w", cpus=2)
    driver.submit(2)
    if is_guest:
        visit(driver, cpus=2)
    else:
        driver.submit(cpus=2, owner="grace")
    driver.live(30.0)
    assert (driver.worker("w").kept_for is None) is is_guest


@pytest.mark.parametrize("is_guest", [False, True], ids=["own", "guest"])
def test_no_tokens_are_kept_for_a_guest_that_starves(is_guest: bool) -> None:
    driver = PoolDriver(STARVING)
    driver.own("seats", 2)
    join(driver, "w", cpus=8)
    driver.submit(50, seats=1)
    if is_guest:
        visit(driver, seats=2)
    else:
        driver.submit(seats=2, owner="grace")
    driver.live(30.0)
    assert (not driver.pool.state.tokens.kept) is is_guest


def short_guests_at(driver: PoolDriver, name: str) -> int:
    """A guest whose tasks are short, so that some of them wait at a worker; returns its id."""
    join(driver, name)
    visitor = visit(driver, 10_000)
    for _ in range(3):
        driver.now += 0.01
        driver.report(name, seconds=0.01)
    assert driver.worker(name).queued > 0
    return visitor


def test_guests_that_wait_at_a_worker_are_recalled_when_own_tasks_wait() -> None:
    driver = PoolDriver()
    short_guests_at(driver, "w")
    waiting = driver.worker("w").queued_numbers()
    driver.submit(1)
    driver.wait(0.1)
    assert recalled(driver) == {"w": waiting}


def test_guests_are_not_recalled_for_other_guests() -> None:
    driver = PoolDriver()
    short_guests_at(driver, "w")
    visit(driver, 5, user="eve@away.example")
    driver.wait(0.1)
    assert recalled(driver) == {}


def test_guests_stay_where_they_wait_if_no_own_task_could_run_there() -> None:
    driver = PoolDriver()
    short_guests_at(driver, "w")
    driver.submit(1, cpus=64)
    driver.wait(0.1)
    assert recalled(driver) == {}


def test_own_tasks_that_wait_at_a_worker_are_not_recalled_for_others() -> None:
    driver = PoolDriver()
    join(driver, "w")
    driver.submit(10_000)
    for _ in range(3):
        driver.now += 0.01
        driver.report("w", seconds=0.01)
    visitor = visit(driver, 5)
    driver.submit(1, cpus=1, memory_bytes=0, owner="grace", name="other")
    driver.wait(0.1)
    assert recalled(driver) == {}
    assert driver.pool.job(visitor)


def test_a_guest_never_goes_to_a_neighbour() -> None:
    driver = PoolDriver()
    lend(driver, cpus=8)
    visitor = visit(driver, 2)
    assert driver.of(fx.Run) == []
    job = driver.pool.job(visitor)
    assert job is not None
    (group,) = driver.pool.explain(job, driver.now).groups
    assert group.refusal.reason is Reason.STAYS_HOME
    own = driver.submit(2)
    assert set(*run(driver).values()) == {own}


def test_no_user_can_say_that_a_job_is_a_guest() -> None:
    assert problem_with_job(JobSpec(program=Program(argv=("true",)), guest=guest())) == (
        "no user can say that a job is a guest of the pool"
    )


def test_a_spec_that_was_stored_before_there_were_guests_is_of_the_pools_own() -> None:
    old = msgspec.json.decode(b'{"program": {"argv": ["true"]}, "count": 3}', type=JobSpec)
    assert (old.guest, old.stays, old.precedence) == (None, False, 100)


def test_what_is_kept_with_a_guest_is_stored_and_not_shown() -> None:
    spec = JobSpec(
        program=Program(argv=("true",)), guest=msgspec.structs.replace(guest(), memo=b"\0\xff")
    )
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec
    assert spec.head().guest == guest()
    assert JobSpec(program=Program(argv=("true",))).head().guest is None


def test_a_guest_that_has_ended_is_none_any_more() -> None:
    driver = PoolDriver()
    join(driver, "w")
    visit(driver)
    assert driver.pool.state.guests
    driver.report("w")
    assert not driver.pool.state.guests


def test_whose_guest_a_job_is_says_where_it_is_from() -> None:
    assert guest("eve@b.example", "lab") == GuestOf(
        pool="home.example", job_id=7, user="eve@b.example", group="lab", loan="0a1b2c3d4e5f"
    )
