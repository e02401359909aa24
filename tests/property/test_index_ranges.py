"""Ranges of indexes are the set that they stand for, whatever is added, taken out and taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.model.index_ranges import IndexRanges, as_ranges

INDEXES = st.integers(0, 60)
RANGES = st.tuples(INDEXES, INDEXES).map(lambda ends: (min(ends), max(ends)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), RANGES),
        st.tuples(st.just("discard"), RANGES),
        st.tuples(st.just("take"), st.integers(0, 20)),
    ),
    max_size=150,
)


def members(ranges: list[tuple[int, int]]) -> list[int]:
    return [index for first, last in ranges for index in range(first, last + 1)]


@given(STEPS, RANGES)
def test_they_are_the_set_that_they_stand_for(
    steps: list[tuple[str, object]], window: tuple[int, int]
) -> None:
    ranges, model = IndexRanges(), set[int]()
    for what, how in steps:
        if what == "take":
            assert isinstance(how, int)
            taken = members(ranges.take(how))
            assert taken == sorted(model)[:how]
            model.difference_update(taken)
        else:
            assert isinstance(how, tuple)
            meant = set(range(how[0], how[1] + 1))
            if what == "add":
                assert ranges.add(*how) == len(meant - model)
                model |= meant
            else:
                assert ranges.discard(*how) == len(meant & model)
                model -= meant
        assert ranges.total == len(model)
        assert bool(ranges) == bool(model)
    assert list(ranges) == as_ranges(sorted(model))
    inside = set(range(window[0], window[1] + 1))
    assert members(ranges.within(*window)) == sorted(model & inside)
    assert members(ranges.gaps(*window)) == sorted(inside - model)
    assert [index for index in range(61) if index in ranges] == sorted(model)


def test_what_ends_mostly_in_order_is_few_ranges() -> None:
    ranges = IndexRanges()
    for index in range(10_000):
        ranges.add(index ^ 3, index ^ 3)
        assert len(list(ranges)) <= 3
    assert list(ranges) == [(0, 9_999)]


def test_many_ranges_are_taken_from_the_front_one_by_one() -> None:
    ranges = IndexRanges((index, index) for index in range(0, 2_000, 2))
    for index in range(0, 2_000, 2):
        assert ranges.take(1) == [(index, index)]
        assert index not in ranges
    assert not ranges
    assert list(ranges) == []
