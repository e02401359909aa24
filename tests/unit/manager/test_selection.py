"""Which jobs `3,5-9` names."""

from __future__ import annotations

import pytest

from kestrelctl.errors import KestrelError, NotFound, UsageError
from kestrelctl.manager.selection import MAX_JOB_ID, MAX_SELECTED, parse_ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("3", [3]),
        ("3,5-9", [3, 5, 6, 7, 8, 9]),
        ("9, 3 ,9", [3, 9]),
        ("4-4", [4]),
        (f"1-{MAX_SELECTED}", list(range(1, MAX_SELECTED + 1))),
    ],
)
def test_numbers_and_ranges_name_jobs_ascending_each_once(text: str, ids: list[int]) -> None:
    named, ranged = parse_ids(text)
    assert sorted(named) + sorted(ranged) == ids


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", UsageError),
        ("three", UsageError),
        ("-3", UsageError),
        ("3-", UsageError),
        ("9-3", UsageError),
        (f"1-{MAX_SELECTED + 1}", UsageError),
        (f"1-{MAX_SELECTED},{MAX_SELECTED + 1}", UsageError),
        (str(MAX_JOB_ID), NotFound),
        pytest.param("9" * 5000, NotFound, id="digits"),
        pytest.param(f"1-{'9' * 5000}", NotFound, id="digits-in-a-range"),
    ],
)
def test_anything_else_names_none(text: str, error: type[KestrelError]) -> None:
    with pytest.raises(error):
        parse_ids(text)


@pytest.mark.parametrize("text", ["x" * 400_000, "1-9999," * 50_000 + "1"], ids=["words", "ranges"])
def test_a_refusal_does_not_repeat_a_long_selection(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_ids(text)
    assert len(str(refused.value)) < 200
