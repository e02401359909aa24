"""Rates, time left and sparklines: arithmetic on counts that were seen now and then."""

from __future__ import annotations

import pytest

from kestrelctl.cli.show.series import HISTORY_SECONDS, Series, rate, sparkline


def series(*seen: tuple[float, int], window: float = 10.0, enough: float = 30.0) -> Series:
    found = Series(window, enough)
    for at, count in seen:
        found.add(at, count)
    return found


def steady(per_second: int, seconds: int) -> Series:
    return series(*((float(at), at * per_second) for at in range(seconds + 1)))


def test_nothing_is_known_before_the_second_sighting() -> None:
    for found in (series(), series((5.0, 100))):
        assert found.per_second is None
        assert found.seconds_for(10) is None


def test_the_rate_of_something_steady_is_its_rate() -> None:
    assert steady(7, 60).per_second == pytest.approx(7)
    assert steady(7, 2).per_second == pytest.approx(7)


def test_time_left_is_what_is_left_at_that_rate() -> None:
    assert steady(20, 30).seconds_for(1000) == pytest.approx(50)


def test_what_stands_still_takes_for_ever() -> None:
    found = series((0.0, 5), (1.0, 5), (60.0, 5))
    assert found.per_second == 0
    assert found.seconds_for(1) is None


def test_a_rate_is_that_of_late() -> None:
    fast_then_slow = [(float(at), at * 100) for at in range(11)]
    fast_then_slow += [(10.0 + at, 1000 + at * 4) for at in range(1, 31)]
    assert series(*fast_then_slow).per_second == pytest.approx(4)


def test_few_ends_far_apart_are_looked_at_for_longer() -> None:
    found = series(*((float(at), at // 20) for at in range(401)))
    assert found.per_second == pytest.approx(1 / 20, rel=0.05)


def test_a_burst_is_soon_forgotten_once_nothing_follows() -> None:
    found = series((0.0, 0), (1.0, 10_000), (61.0, 10_000))
    assert found.recent == 0
    assert found.per_second == pytest.approx(30 / 60, rel=0.01)


def test_a_count_that_begins_anew_takes_nothing_away() -> None:
    found = series((0.0, 1000), (10.0, 1500), window=5.0, enough=1)
    found.add(20.0, 100, anew=True)
    assert found.per_second == pytest.approx(10)
    found.add(30.0, 50)
    assert found.recent == 0
    found.add(40.0, 150)
    assert found.per_second == pytest.approx(10)


def test_the_same_sighting_twice_is_one() -> None:
    found = series((0.0, 0), (10.0, 100))
    found.add(10.0, 100)
    found.add(9.0, 900)
    assert found.per_second == pytest.approx(10)


def test_bars_share_what_came_between_two_sightings() -> None:
    found = series((0.0, 0), (10.0, 50), (20.0, 50), (22.5, 75))
    assert found.bars(6, 5.0) == [None, 5.0, 5.0, 0.0, 0.0, 10.0]


def test_bars_keep_their_heights_as_they_move() -> None:
    found = series(*((float(at), at * at) for at in range(31)))
    before = found.bars(6, 5.0)
    found.add(31.0, 31 * 31)
    assert found.bars(6, 5.0)[:5] == before[1:]


def test_nothing_grows_without_end() -> None:
    found = series(*((float(at), at) for at in range(int(HISTORY_SECONDS) * 5)))
    assert len(found._seen) < 2 * HISTORY_SECONDS + 2
    assert found.per_second == pytest.approx(1)


@pytest.mark.parametrize(
    ("bars", "shown"),
    [
        ([], ""),
        ([None, None], "  "),
        ([None, 0.0, 0.0], " ▁▁"),
        ([1, 2, 3, 4, 5, 6, 7, 8], "▁▂▃▄▅▆▇█"),
        ([0.0, 0.001, 1000.0], "▁▁█"),
        ([5.0], "█"),
    ],
)
def test_a_sparkline_reaches_from_nothing_to_the_highest(
    bars: list[float | None], shown: str
) -> None:
    assert sparkline(bars) == shown


@pytest.mark.parametrize(
    ("per_second", "shown"),
    [
        (None, "—"),
        (0.0, "0/s"),
        (0.004, "0/s"),
        (0.05, "0.05/s"),
        (0.997, "1.0/s"),
        (12.34, "12.3/s"),
        (99.96, "100/s"),
        (12345.6, "12,346/s"),
    ],
)
def test_rates_as_people_read_them(per_second: float | None, shown: str) -> None:
    assert rate(per_second) == shown
