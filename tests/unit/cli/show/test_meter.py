"""How far the runs of a bench are said to be, where no bar can be drawn."""

from __future__ import annotations

from kestrelctl.cli.show.meter import now_and_then


def test_a_run_is_told_of_every_ten_seconds_with_its_rate_and_what_is_left() -> None:
    said: list[str] = []
    now = [100.0]
    show = now_and_then(said.append, lambda: now[0])
    for half_seconds in range(60):
        now[0] = 100.0 + half_seconds / 2
        show("0, 2x8 workers", 50_000, 500 * half_seconds)
    assert said == [
        "sleep 0, 2x8 workers: 10,000/50,000 done, 1,000/s, 40 s left",
        "sleep 0, 2x8 workers: 20,000/50,000 done, 1,000/s, 30 s left",
    ]


def test_the_next_run_is_told_of_ten_seconds_after_its_start_and_no_full_one() -> None:
    said: list[str] = []
    now = [0.0]
    show = now_and_then(said.append, lambda: now[0])
    for run, second, done in (
        ("0", 0, 0),
        ("0", 9, 100),
        ("1", 12, 0),
        ("1", 20, 50),
        ("1", 23, 100),
    ):
        now[0] = float(second)
        show(run, 100, done)
    assert said == []
