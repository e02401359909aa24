"""Halting and exit statuses are those of GNU parallel."""

from __future__ import annotations

import pytest

from kestrelctl.cli.map.halting import Halting
from kestrelctl.errors import UsageError


def after(text: str, *exits: int, total: int = 5, signal: int = 0) -> tuple[int | None, int]:
    """After how many tasks all is halted, and the status with which it ends."""
    halting = Halting(text)
    halting.total = total
    for number, exit_value in enumerate(exits, 1):
        if halting.add(exit_value, signal):
            return number, halting.status
    return None, halting.status


@pytest.mark.parametrize(
    ("text", "exits", "found"),
    [
        # each as parallel 20221122 does with -j1
        ("never", (0, 7, 0, 8), (None, 2)),
        ("now,fail=1", (0, 7, 0), (2, 7)),
        ("soon,fail=2", (0, 7, 0, 8, 0), (4, 2)),
        ("soon,fail=20%", (0, 7, 0, 8, 0), (2, 7)),
        ("soon,fail=40%", (0, 7, 0, 8, 0), (4, 40)),
        ("40%", (0, 7, 0, 8, 0), (4, 40)),
        ("now,success=1", (3, 0, 4), (2, 0)),
        ("now,success=2", (3, 0, 4), (None, 2)),
        ("now,done=2", (3, 0, 4), (2, 1)),
        ("2", (0, 7), (2, 7)),
        ("1", (0, 7), (2, 7)),
        ("-1", (7, 0), (2, 0)),
        ("0", (7, 7), (None, 2)),
    ],
)
def test_when_it_halts_and_how_it_ends(
    text: str, exits: tuple[int, ...], found: tuple[int | None, int]
) -> None:
    assert after(text, *exits) == found


def test_more_than_a_hundred_failures_have_one_status() -> None:
    assert after("never", *[1] * 100)[1] == 100
    assert after("never", *[1] * 101)[1] == 101
    assert after("never", *[1] * 300)[1] == 101


def test_a_signal_is_a_failure_with_the_status_that_a_shell_has() -> None:
    assert after("now,fail=1", 0, signal=9) == (1, 137)


def test_running_tasks_are_ended_now_or_waited_for() -> None:
    assert Halting("now,fail=1").is_now
    assert not Halting("soon,fail=1").is_now


def test_what_an_earlier_run_has_done_counts_as_ended() -> None:
    halting = Halting("now,done=3")
    halting.ended = 2
    assert halting.add(0, 0)


@pytest.mark.parametrize(
    "text", ["sometimes", "now", "now,fail", "later,fail=1", "now,fail=x", f"now,fail={'9' * 5000}"]
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--halt cannot be"):
        Halting(text)
