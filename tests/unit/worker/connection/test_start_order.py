"""Which session starts an attempt next."""

from __future__ import annotations

import pytest

from kestrelctl.worker.connection import start_order
from kestrelctl.worker.connection.start_order import StartOrder


@pytest.fixture(autouse=True)
def _turns_of_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_order, "STARTS_IN_A_TURN", 3)


def order_of(names: str) -> StartOrder[str]:
    order: StartOrder[str] = StartOrder()
    for name in names:
        order.add(name)
    return order


def taken(order: StartOrder[str], n: int, *, comes_back: bool) -> str:
    """The next n sessions.

    Args:
        comes_back: whether each is added again at once, as one with more to start is.
    """
    names = ""
    for _ in range(n):
        name = order.take() or "-"
        names += name
        if comes_back and name != "-":
            order.add(name)
    return names


def test_sessions_start_in_the_order_in_which_they_came() -> None:
    assert taken(order_of("ABC"), 4, comes_back=False) == "ABC-"


def test_a_session_has_its_turn_of_several_starts_and_goes_to_the_end_of_the_line() -> None:
    assert taken(order_of("AB"), 10, comes_back=True) == "AAABBBAAAB"


def test_a_session_that_comes_back_within_its_turn_goes_before_the_others() -> None:
    order = order_of("ABC")
    assert taken(order, 2, comes_back=False) == "AB"
    order.add("A")
    order.add("B")
    assert taken(order, 4, comes_back=False) == "BAC-", "of those the one that joined last"


def test_nobody_is_kept_waiting_by_sessions_that_always_have_more() -> None:
    order = order_of("ABCDE")
    seen = taken(order, 15, comes_back=True)
    assert sorted(set(seen)) == list("ABCDE")


def test_a_session_waits_once_and_keeps_its_place() -> None:
    order = order_of("AB")
    order.add("A")
    assert len(order) == 2
    assert taken(order, 3, comes_back=False) == "AB-"
    assert not order
