"""Of two managers of a pool the older one is told by an epoch that no worker can make up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kestrelctl.core.model.records import Snapshot
from kestrelctl.core.model.seal import SECRET_BYTES
from kestrelctl.core.model.sealed_epoch import Rank
from kestrelctl.core.pool import Pool

SECRET, OTHER = b"1" * SECRET_BYTES, b"2" * SECRET_BYTES
numbers = st.integers(0, 2**63 - 1)


@given(st.tuples(numbers, numbers), st.tuples(numbers, numbers))
def test_of_two_managers_of_a_pool_exactly_the_older_one_makes_room(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    first, second = Rank(SECRET, *one), Rank(SECRET, *other)
    assert first.is_below(second.sealed) == (one < other)
    assert second.is_below(first.sealed) == (other < one)


def test_a_restore_outranks_any_number_of_starts_of_the_store_that_was_left_behind() -> None:
    left_behind, restored = Rank(SECRET, 0, 900_000), Rank(SECRET, 1_795_806_368, 11_488)
    assert left_behind.is_below(restored.sealed)
    assert not restored.is_below(left_behind.sealed)


def test_a_manager_that_is_shown_its_own_epoch_stays() -> None:
    rank = Rank(SECRET, 5, 7)
    assert rank.is_genuine(rank.sealed)
    assert not rank.is_below(rank.sealed)


@given(numbers, numbers, numbers)
def test_nothing_that_was_not_sealed_deposes_a_manager(term: int, epoch: int, mark: int) -> None:
    rank = Rank(SECRET, 5, 7)
    assert not rank.is_below((term, epoch, mark))


@given(numbers, numbers, st.data())
def test_nothing_in_a_sealed_epoch_can_be_changed(
    term: int, epoch: int, data: st.DataObject
) -> None:
    shown = list(Rank(SECRET, term, epoch).sealed)
    place = data.draw(st.integers(0, 2))
    shown[place] = data.draw(numbers.filter(lambda value: value != shown[place]))
    changed = (shown[0], shown[1], shown[2])
    assert not Rank(SECRET, 0, 0).is_genuine(changed)


def test_an_epoch_of_another_pool_deposes_nobody() -> None:
    """As after a pool was begun anew: its workers have been told of the one before."""
    assert not Rank(SECRET, 0, 1).is_below(Rank(OTHER, 9, 9).sealed)


@pytest.mark.parametrize("term", [0, 3])
def test_a_pool_has_the_rank_of_its_store(term: int) -> None:
    snapshot = Snapshot(epoch=4, term=term, secret=SECRET, next_job_id=1, jobs=[], workers=[])
    assert Pool(snapshot).rank.sealed == Rank(SECRET, term, 4).sealed
