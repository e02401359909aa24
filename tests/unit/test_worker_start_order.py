"""Which queued task starts next."""

from __future__ import annotations

from kestrelctl.worker.start_order import StartOrder


def queue_of(fresh: str, warm: str) -> StartOrder[str]:
    queue: StartOrder[str] = StartOrder()
    for name in fresh:
        queue.add(ord(name), name, warm=False)
    for name in warm:
        queue.add(ord(name), name, warm=True)
    return queue


def drained(queue: StartOrder[str]) -> str:
    names = ""
    while (name := queue.latest()) is not None:
        names += name
    return names


def test_slots_that_just_finished_go_first_and_new_ones_in_order() -> None:
    assert drained(queue_of(fresh="ABC", warm="xyz")) == "zyxABC"


def test_who_waits_longest_is_a_new_slot_before_a_used_one() -> None:
    queue = queue_of(fresh="AB", warm="xy")
    assert [queue.longest_waiting() for _ in range(5)] == ["A", "B", "x", "y", None]


def test_what_was_removed_is_not_taken() -> None:
    queue = queue_of(fresh="AB", warm="xy")
    assert queue.remove(ord("A")) == "A"
    assert queue.remove(ord("y")) == "y"
    assert queue.remove(ord("y")) is None
    assert len(queue) == 2
    assert queue.longest_waiting() == "B"
    assert drained(queue) == "x"
    assert not queue
