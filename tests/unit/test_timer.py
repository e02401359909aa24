"""At most one call is to come, and it comes when the latest wish says."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, cast

import pytest

from kestrelctl.timer import Timer


class Handle:
    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self._at, self.call, self.is_cancelled = at, call, False

    def when(self) -> float:
        return self._at

    def cancel(self) -> None:
        self.is_cancelled = True

    def __lt__(self, other: Handle) -> bool:
        return self._at < other._at


class Loop:
    """As much of an event loop as calls something later."""

    def __init__(self) -> None:
        self.now = 0.0
        self._handles: list[Handle] = []

    def call_later(self, seconds: float, call: Callable[[], object]) -> Handle:
        return self.call_at(self.now + seconds, call)

    def call_at(self, moment: float, call: Callable[[], object]) -> Handle:
        handle = Handle(moment, call)
        heapq.heappush(self._handles, handle)
        return handle

    def pass_to(self, moment: float) -> None:
        while self._handles and self._handles[0].when() <= moment:
            handle = heapq.heappop(self._handles)
            self.now = handle.when()
            if not handle.is_cancelled:
                handle.call()
        self.now = moment


class Bell:
    """Rings at the moments that it notes."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.rang: list[float] = []
        self.timer = Timer(lambda: self.rang.append(self.loop.now), cast(Any, self.loop))


@pytest.fixture
def bell() -> Bell:
    return Bell()


def test_it_calls_once(bell: Bell) -> None:
    assert not bell.timer.is_set
    bell.timer.set(2.0)
    assert bell.timer.is_set
    bell.loop.pass_to(9.0)
    assert (bell.rang, bell.timer.is_set) == ([2.0], False)


def test_a_later_wish_takes_the_place_of_an_earlier_one(bell: Bell) -> None:
    bell.timer.set(2.0)
    bell.timer.set(5.0)
    bell.loop.pass_to(9.0)
    assert bell.rang == [5.0]


def test_who_wishes_it_once_leaves_what_is_to_come(bell: Bell) -> None:
    bell.timer.set_once(2.0)
    bell.timer.set_once(1.0)
    bell.loop.pass_to(9.0)
    bell.timer.set_once(1.0)
    bell.loop.pass_to(20.0)
    assert bell.rang == [2.0, 10.0]


def test_by_a_moment_is_not_later_and_may_be_earlier(bell: Bell) -> None:
    bell.timer.set_by(5.0)
    bell.timer.set_by(7.0)
    bell.timer.set_by(3.0)
    bell.loop.pass_to(9.0)
    assert bell.rang == [3.0]


def test_what_is_stopped_is_not_called(bell: Bell) -> None:
    bell.timer.stop()
    bell.timer.set(2.0)
    bell.timer.stop()
    bell.loop.pass_to(9.0)
    assert (bell.rang, bell.timer.is_set) == ([], False)


def test_what_is_called_may_set_it_again() -> None:
    loop = Loop()
    rang: list[float] = []

    def ring() -> None:
        rang.append(loop.now)
        timer.set_once(1.0)

    timer = Timer(ring, cast(Any, loop))
    timer.set(1.0)
    loop.pass_to(3.0)
    assert rang == [1.0, 2.0, 3.0]
