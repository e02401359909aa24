"""When a pool tells others what it has free."""

from __future__ import annotations

import pytest
from flockruleskit import LARGE, MINUTE, SMALL, machines

from kestrelctl.flock.rules.announcing import Announcer, whole_of
from kestrelctl.flock.rules.flock_settings import FlockSettings
from kestrelctl.protocol.pools import MOST_CLASSES, LentClass, PoolAnnouncement

PACE = MINUTE / 20


class Telling:
    """A pool that lends, and a clock set by hand."""

    def __init__(self, epoch: int = 1, settings: FlockSettings | None = None) -> None:
        self.announcer = Announcer("a.test", epoch, settings or FlockSettings())
        self.now = 1000.0

    def tell(self, *classes: LentClass, willing: bool = True) -> PoolAnnouncement | None:
        return self.announcer.next(self.now, classes, willing=willing, ttl=1)

    def later(
        self, seconds: float, *classes: LentClass, willing: bool = True
    ) -> PoolAnnouncement | None:
        self.now += seconds
        return self.tell(*classes, willing=willing)


@pytest.fixture
def telling() -> Telling:
    """A pool that has told of four free processors."""
    found = Telling()
    assert found.tell(machines(4)) is not None
    return found


def test_the_first_announcement_says_all_and_goes_at_once() -> None:
    said = Telling().tell(machines(4))
    assert said is not None
    assert (said.pool, said.willing, said.ttl, said.expires_seconds) == ("a.test", True, 1, 150.0)
    assert said.classes == (machines(4),)


def test_what_has_not_changed_is_told_again_after_a_minute(telling: Telling) -> None:
    assert telling.later(MINUTE - 0.1, machines(4)) is None
    assert telling.announcer.wake_at == pytest.approx(telling.now + 0.1)
    assert telling.later(0.1, machines(4)) is not None
    assert telling.announcer.wake_at == telling.now + MINUTE


def test_one_lost_announcement_lets_nothing_expire() -> None:
    settings = FlockSettings()
    assert settings.expiry_seconds > 2 * settings.announce_seconds


def test_a_pool_that_looks_once_a_minute_tells_no_news_sooner() -> None:
    telling = Telling(settings=FlockSettings(look_minutes=1.0))
    assert telling.tell(machines(4)) is not None
    assert telling.later(MINUTE - 0.1, machines(9)) is None
    assert telling.later(0.1, machines(9)) is not None


def test_a_pool_looks_every_20_ms_at_most() -> None:
    assert FlockSettings().look_seconds == pytest.approx(0.02)
    assert FlockSettings(minute_seconds=6.0).look_seconds == pytest.approx(0.002)


def test_news_goes_as_soon_as_the_pace_allows(telling: Telling) -> None:
    assert telling.later(PACE - 0.1, machines(9)) is None
    assert telling.announcer.wake_at == pytest.approx(telling.now + 0.1)
    said = telling.later(0.1, machines(9))
    assert said is not None
    assert said.classes == (machines(9),)


def test_a_scaled_minute_scales_it_all() -> None:
    telling = Telling(settings=FlockSettings(minute_seconds=1.0))
    said = telling.tell(machines(4))
    assert said is not None
    assert said.expires_seconds == 2.5
    assert telling.later(0.04, machines(9)) is None
    assert telling.later(0.01, machines(9)) is not None
    assert telling.later(0.99, machines(9)) is None
    assert telling.later(0.01, machines(9)) is not None


@pytest.mark.parametrize("free", [2.5, 3, 5, 5.5])
def test_a_little_more_or_less_is_no_news(telling: Telling, free: float) -> None:
    assert telling.later(PACE, machines(free)) is None


@pytest.mark.parametrize("free", [0, 1.5, 6.5])
def test_by_half_more_or_less_or_none_is_news(telling: Telling, free: float) -> None:
    assert telling.later(PACE, machines(free)) is not None


def test_any_is_news_where_there_was_none() -> None:
    telling = Telling()
    telling.tell(machines(0))
    assert telling.later(PACE, machines(0.1)) is not None


def test_small_changes_add_up_to_news(telling: Telling) -> None:
    for free in (5, 6):
        assert telling.later(PACE, machines(free)) is None
    assert telling.later(PACE, machines(7)) is not None


def test_a_class_that_comes_or_goes_is_news(telling: Telling) -> None:
    other = machines(1, cls=LARGE)
    assert telling.later(PACE, machines(4), other) is not None
    assert telling.later(PACE, machines(4)) is not None


def test_that_a_pool_lends_nothing_any_more_is_news_and_names_no_class(telling: Telling) -> None:
    said = telling.later(PACE, machines(4), willing=False)
    assert said is not None
    assert not said.willing
    assert said.classes == ()


def test_what_is_free_of_a_pool_that_lends_nothing_is_no_news() -> None:
    telling = Telling()
    telling.tell(machines(4), willing=False)
    assert telling.later(PACE, machines(9), willing=False) is None
    assert telling.later(PACE, machines(9), willing=True) is not None


def test_numbers_rise_and_those_of_a_later_start_are_above_all_before(telling: Telling) -> None:
    first, second = telling.later(MINUTE, machines(4)), telling.later(MINUTE, machines(4))
    restarted = Telling(epoch=2).tell(machines(4))
    assert first is not None
    assert second is not None
    assert restarted is not None
    assert first.seq < second.seq < telling.announcer.farewell().seq < restarted.seq


def test_the_classes_with_most_machines_are_told_if_there_are_too_many() -> None:
    ids = [f"{number:012x}" for number in range(MOST_CLASSES + 3)]
    classes = [machines(1, count=number + 1, cls=cls) for number, cls in enumerate(ids)]
    telling = Telling()
    said = telling.tell(*classes)
    assert said is not None
    assert [each.id for each in said.classes] == ids[:2:-1]
    assert telling.later(PACE, *classes) is None, "what was never told is no news each time"


def test_a_farewell_holds_no_longer_than_it_takes_to_hear(telling: Telling) -> None:
    said = telling.announcer.farewell()
    assert (said.willing, said.expires_seconds, said.classes) == (False, 0.0, ())


def test_a_pool_that_comes_back_after_a_farewell_says_so_at_once(telling: Telling) -> None:
    telling.announcer.farewell()
    assert telling.later(0.1, machines(4)) is not None


def test_what_was_told_by_hand_is_all_of_it() -> None:
    assert whole_of(machines(1, count=3, cpus=4)).free == {"cpus": 12.0}
    assert whole_of(machines(1, count=3)).id == SMALL
