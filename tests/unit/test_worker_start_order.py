"""Which session starts an attempt next."""

from __future__ import annotations

from kestrelctl.worker.start_order import StartOrder


def order_of(fresh: str, warm: str) -> StartOrder[str]:
    order: StartOrder[str] = StartOrder()
    for name in warm:
        order.add(name)
        order.take_latest()
    for name in fresh + warm:
        order.add(name)
    return order


def drained(order: StartOrder[str]) -> str:
    names = ""
    while (name := order.take_latest()) is not None:
        names += name
    return names


def test_sessions_that_just_finished_go_first_and_new_ones_in_order() -> None:
    assert drained(order_of(fresh="ABC", warm="xyz")) == "zyxABC"


def test_who_waits_longest_is_a_new_session_before_a_used_one() -> None:
    order = order_of(fresh="AB", warm="xy")
    assert [order.take_longest_waiting() for _ in range(5)] == ["A", "B", "x", "y", None]


def test_a_session_waits_once_and_keeps_its_place() -> None:
    order = order_of(fresh="AB", warm="xy")
    order.add("A")
    order.add("x")
    assert len(order) == 4
    assert order.take_longest_waiting() == "A"
    assert drained(order) == "yxB"
    assert not order


def test_a_session_with_more_to_start_is_served_before_the_others() -> None:
    order = order_of(fresh="AB", warm="")
    assert order.take_longest_waiting() == "A"
    order.add("A")
    assert drained(order) == "AB"
