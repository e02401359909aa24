"""One kind of trouble between pools at a time."""

from __future__ import annotations

from flockworldkit import HOME, LENDER, TwoPools, job, two_pools
from msgspec.structs import replace

from kestrelctl.core.model.config import Config
from kestrelctl.protocol import requests


def test_what_finds_no_place_at_home_runs_at_the_neighbour_once() -> None:
    with TwoPools(two_pools([job("medium", 40)])) as pools:
        pools.to_the_end()
        tasks = [(guest.job_id, guest.index) for guest in pools.guests]
        assert len(tasks) > 10
        assert len(tasks) == len(set(tasks))


def test_a_pool_that_has_left_says_so_to_who_did_not_hear_of_it() -> None:
    with TwoPools(two_pools([], leaves=5.0)) as pools:
        pools.until(4.9)
        flock = pools.home.manager.flock
        assert flock is not None
        assert flock.overlay.known() == [LENDER]
        stream = pools.lender.server.streams[HOME]
        stream.hold()
        pools.until(5.5)
        stream.drop()
        stream.heal()
        pools.to_the_end()


def test_guests_go_on_when_the_manager_of_their_lender_dies() -> None:
    """Some ask for memory, and others do not."""
    with TwoPools(two_pools([job("minute", 2), job("minute", 3, memory=100)])) as pools:
        pools.until(8.0)
        begun = {guest.number for guest in pools.guests if guest.running}
        assert len(begun) == 4
        pools.restart(pools.lender)
        pools.until(15.0)
        assert {guest.number for guest in pools.guests if guest.running} == begun
        pools.to_the_end()
        assert len(pools.guests) == len({(guest.job_id, guest.index) for guest in pools.guests})


def test_what_was_reported_long_ago_is_not_reported_again_by_a_new_manager() -> None:
    later = job("second", 1, at_seconds=80.0)
    with TwoPools(two_pools([job("medium", 40)], [later])) as pools:
        pools.until(100.0)
        assert pools.guests
        pools.restart(pools.lender)
        pools.until(105.0)
        clock = pools.world.clock
        said = [what for at, _, what, _ in clock.story if at > clock.start + 100.0]
        assert "says as a worker" not in said
        pools.to_the_end()


def test_a_loan_that_ends_unheard_keeps_its_results() -> None:
    """The home is cut off for less than it waits for its workers."""
    patient = Config(min_heartbeat_seconds=60.0, away_seconds=60.0)
    with TwoPools(two_pools([job("long", 5)], minute_seconds=20.0, config=patient)) as pools:
        pools.until(3.0)
        running = [guest for guest in pools.guests if guest.running]
        assert len(running) == 4
        streams = pools.home.server.streams[LENDER], pools.lender.server.streams[HOME]
        for stream in streams:
            stream.hold()
        pools.until(55.0)
        assert not any(guest.running for guest in pools.guests)
        for stream in streams:
            stream.heal()
        pools.to_the_end()
        assert len(pools.guests) == len({(guest.job_id, guest.index) for guest in pools.guests})


def test_guests_of_a_loan_that_is_refused_come_to_an_end() -> None:
    """Their home has given them up and forgotten the loan, and what it asked for."""
    forgetful = Config(
        min_heartbeat_seconds=2.0, late_seconds=1.5, away_seconds=1.0, forget_worker_seconds=2.0
    )
    with TwoPools(two_pools([job("minute", 3)], minute_seconds=20.0, config=forgetful)) as pools:
        pools.until(4.0)
        assert any(guest.running for guest in pools.guests)
        streams = pools.home.server.streams[LENDER], pools.lender.server.streams[HOME]
        for stream in streams:
            stream.hold()
        pools.home.operator.ask(requests.CancelJobs(jobs="1"))
        pools.until(16.0)
        assert any(guest.running for guest in pools.guests)
        flock = pools.home.manager.flock
        assert flock is not None
        flock.desk.borrower.wishes.clear()
        for stream in streams:
            stream.drop()
            stream.heal()
        pools.until(24.0)
        assert not any(guest.running for guest in pools.guests)
        pools.to_the_end()


def test_a_pool_that_all_have_left_finds_the_flock_by_those_that_it_remembers() -> None:
    """The only pool that it knows leaves, and later joins another flock."""
    whole = two_pools([], minute_seconds=2.0)
    home, lender = whole.pools
    home = replace(home, joins=((10.0, "cedar"),), leaves=(5.0,))
    cedar = replace(lender, domain="cedar", through="cedar", joins=())
    with TwoPools(replace(whole, pools=[home, lender, cedar])) as pools:
        pools.until(8.0)
        flock = pools.lender.manager.flock
        assert flock is not None
        assert flock.overlay.known() == []
        pools.to_the_end()


def test_what_is_lost_between_two_servers_is_said_again() -> None:
    """Results, attempts, and orders to end some: neither pool is told that a link broke."""
    for at_seconds in (1.4, 1.9, 2.4):
        with TwoPools(two_pools([job("second", 5)])) as pools:
            streams = pools.home.server.streams[LENDER], pools.lender.server.streams[HOME]
            pools.until(at_seconds)
            for stream in streams:
                stream.hold()
            pools.until(at_seconds + 0.4)
            for stream in streams:
                stream.drop()
                stream.heal()
            pools.until(15.0)
            assert pools.home.nodes.unrest == []
            pools.to_the_end()


def test_a_result_that_is_lost_between_two_servers_is_soon_reported_again() -> None:
    with TwoPools(two_pools([job("second", 5, at_seconds=3.0)], minute_seconds=60.0)) as pools:
        streams = pools.home.server.streams[LENDER], pools.lender.server.streams[HOME]
        pools.until(began := 3.0)
        while len([guest for guest in pools.guests if guest.running]) < 3:
            pools.until(began := began + 0.1)
        for stream in streams:
            stream.hold()
        pools.until(began + 1.5)
        assert not any(guest.running for guest in pools.guests)
        for stream in streams:
            stream.drop()
            stream.heal()
        pools.until(began + 14.0)
        assert pools.home.nodes.unrest == []
        pools.to_the_end()


def test_results_outlive_a_manager_that_is_stopped_in_order() -> None:
    with TwoPools(two_pools([job("second", 5)])) as pools:
        streams = pools.home.server.streams[LENDER], pools.lender.server.streams[HOME]
        pools.until(2.0)
        for stream in streams:
            stream.hold()
        pools.until(4.0)
        assert any(spool.records for spool in pools.lender.manager.spools.open_spools.values())
        pools.lender.manager.start_again(0.5)
        pools.lender.manager.terminate()
        pools.until(5.0)
        assert any(spool.records for spool in pools.lender.manager.spools.open_spools.values())
        for stream in streams:
            stream.heal()
        pools.to_the_end()
