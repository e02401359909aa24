"""Work on many hosts: bounded, with an outcome for each, and stopped when nobody listens."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest
from fleetkit import FakeFleet

from kestrelctl.errors import Unreachable
from kestrelctl.fleet import fan_out
from kestrelctl.fleet.fan_out import HostOutcome, Said, each, stream
from kestrelctl.fleet.shell import Shell


async def test_each_host_has_an_outcome_of_its_own() -> None:
    fleet = FakeFleet(a={"echo": "hi"}, b=Unreachable("b cannot be reached"), c={"echo": "ho"})

    def work(shell: Shell) -> str:
        return shell.run("echo").stdout

    outcomes = {o.host: o async for o in each(fleet.hosts, fleet.connect, work, at_once=2)}
    assert outcomes["a"] == HostOutcome("a", value="hi")
    assert outcomes["c"] == HostOutcome("c", value="ho")
    error = outcomes["b"].error
    assert error is not None
    assert error.message == "b cannot be reached"
    assert all(shell.closed.is_set() for shell in fleet.shells.values())


async def test_no_more_hosts_than_that_at_once() -> None:
    fleet = FakeFleet(**{f"h{n}": {} for n in range(6)})
    at_work, most, lock = 0, 0, threading.Lock()
    both = threading.Barrier(2)

    def work(_shell: Shell) -> None:
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        both.wait(10)
        with lock:
            at_work -= 1

    assert len([o async for o in each(fleet.hosts, fleet.connect, work, at_once=2)]) == 6
    assert most == 2


async def test_what_is_said_on_the_way_comes_before_the_outcome() -> None:
    fleet = FakeFleet(a={"seq": "1\n2\n"})
    events = stream(
        fleet.hosts, fleet.connect,
        lambda shell, say: shell.run("seq", on_line=say).status, at_once=1,
    )  # fmt: skip
    assert [event async for event in events] == [
        Said("a", "1"),
        Said("a", "2"),
        HostOutcome("a", 0),
    ]


async def test_whoever_stops_listening_ends_what_runs() -> None:
    fleet = FakeFleet(a={"date": "now"}, b={"date": None})
    outcomes = each(fleet.hosts, fleet.connect, lambda shell: shell.run("date"), at_once=2)
    async with contextlib.aclosing(outcomes):
        async for outcome in outcomes:
            assert outcome.host == "a"
            break
    assert await asyncio.to_thread(fleet.shells["b"].closed.wait, 10)


async def test_a_host_that_does_not_let_go_keeps_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fan_out, "CLOSE_SECONDS", 0.01)
    fleet = FakeFleet(a={"date": "now"}, b={"date": None})
    let_go = threading.Event()
    closed: list[bool] = []
    outcomes = each(fleet.hosts, fleet.connect, lambda shell: shell.run("date"), at_once=2)
    async with contextlib.aclosing(outcomes):
        async for _ in outcomes:
            stuck = fleet.shells["b"]
            monkeypatch.setattr(stuck, "close", lambda: closed.append(let_go.wait(10)))
            break
    assert closed == [], "the caller is back, and the host has still not let go"
    let_go.set()


async def test_an_error_in_the_program_is_no_outcome() -> None:
    fleet = FakeFleet(a={})

    def work(_shell: Shell) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        [o async for o in each(fleet.hosts, fleet.connect, work, at_once=1)]
