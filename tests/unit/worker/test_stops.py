"""A process that is stopped goes on, unless it is stopped all the time."""

from __future__ import annotations

from signal import SIGCONT, SIGKILL

from kestrelctl.worker.stops import MOST_STOPS, STOPS_SECONDS, Stops


def test_a_stopped_process_goes_on() -> None:
    stops = Stops()
    pause_seconds = STOPS_SECONDS / MOST_STOPS
    assert {stops.answer(i * pause_seconds) for i in range(10 * MOST_STOPS)} == {SIGCONT}


def test_a_process_that_is_stopped_all_the_time_is_killed() -> None:
    stops = Stops()
    assert [stops.answer(i * 0.01) for i in range(MOST_STOPS)] == [SIGCONT] * MOST_STOPS
    assert stops.answer(STOPS_SECONDS - 0.01) == SIGKILL
    assert stops.answer(STOPS_SECONDS) == SIGCONT
