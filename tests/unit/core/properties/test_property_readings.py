"""What plugins print becomes values; tables tell what changed, summaries what it adds up to."""

from __future__ import annotations

import pytest

from kestrelctl.core.properties.changes import PropertyTable
from kestrelctl.core.properties.definition import MOST_PROPERTIES
from kestrelctl.core.properties.reading import (
    PropertyReading,
    PropertyValue,
    missing_reading,
    read_printed,
)
from kestrelctl.core.properties.summary import PropertySummary, summary_of


@pytest.mark.parametrize(
    ("printed", "return_type", "value"),
    [
        (b" 2048\n", "int", 2048),
        (b"-9223372036854775807", "int", -(2**63) + 1),
        (b"0.25\n", "float", 0.25),
        (b"3", "float", 3.0),
        (b"1e3", "float", 1000.0),
        (b"Yes\n", "bool", True),
        (b"0", "bool", False),
        ("grün\n".encode(), "str", "grün"),
        (b"x" * 1024, "str", "x" * 1024),
    ],
)
def test_what_is_printed_is_read_as_its_type(
    printed: bytes, return_type: str, value: PropertyValue
) -> None:
    reading = read_printed(printed, return_type, at=5.0)
    assert reading == PropertyReading(5.0, value)
    assert type(reading.value) is type(value)


@pytest.mark.parametrize(
    ("printed", "return_type"),
    [
        (b"", "str"),
        (b"  \n", "int"),
        (b"\xff\xfe", "str"),
        (b"2048 kB", "int"),
        (b"1_000", "int"),
        ("٣".encode(), "int"),
        (b"9223372036854775808", "int"),
        (b"1.5", "int"),
        (b"nan", "float"),
        (b"inf", "float"),
        (b"1e301", "float"),
        (b"1" * 4096, "float"),
        (b"maybe", "bool"),
        (b"two\nlines", "str"),
        (b"\x1b[31mred", "str"),
        (b"x" * 1025, "str"),
    ],
)
def test_rubbish_is_a_missing_value_with_a_reason(printed: bytes, return_type: str) -> None:
    reading = read_printed(printed, return_type, at=5.0)
    assert reading.value is None
    assert 0 < len(reading.missing) <= 200
    assert reading.missing.isprintable()


def test_of_a_reason_one_short_line_is_kept() -> None:
    assert missing_reading(1.0, "cannot\n\topen\x1b").missing == "cannot open"
    assert len(missing_reading(1.0, "x" * 5000).missing) == 200
    assert missing_reading(1.0, "").missing


def test_only_what_changed_is_told() -> None:
    table = PropertyTable()
    table.put("load", PropertyReading(1.0, 1))
    table.put("users", PropertyReading(1.0, 0))
    assert list(table.tell_changes()) == ["load", "users"]
    table.put("load", PropertyReading(2.0, 1))
    table.put("users", PropertyReading(2.0, 3))
    assert table.tell_changes() == {"users": PropertyReading(2.0, 3)}
    assert table.tell_changes() == {}


def test_a_value_that_goes_missing_or_changes_its_type_is_a_change() -> None:
    table = PropertyTable()
    for reading in (
        PropertyReading(1.0, 1),
        PropertyReading(2.0, True),
        missing_reading(3.0, "it hung"),
        missing_reading(4.0, "it died"),
    ):
        table.put("p", reading)
        assert table.tell_changes() == {"p": reading}


def test_all_is_told_to_those_who_know_nothing() -> None:
    table = PropertyTable()
    table.put("b", PropertyReading(1.0, 1))
    table.put("a", PropertyReading(1.0, 2))
    table.tell_changes()
    table.put("a", PropertyReading(2.0, 3))
    assert list(table.tell_all().items()) == [
        ("a", PropertyReading(2.0, 3)),
        ("b", PropertyReading(1.0, 1)),
    ]
    assert table.tell_changes() == {}


def test_a_table_holds_no_more_than_a_worker_may_have() -> None:
    table = PropertyTable()
    for number in range(MOST_PROPERTIES):
        table.put(f"p{number}", PropertyReading(1.0, number))
    table.put("p0", PropertyReading(2.0, 7))
    with pytest.raises(ValueError, match="more than"):
        table.put("one_more", PropertyReading(1.0, 1))


def test_a_summary_counts_those_without_a_value() -> None:
    readings = [PropertyReading(1.0, 2), PropertyReading(1.0, 4), missing_reading(1.0, "x"), None]
    assert summary_of(readings) == PropertySummary(count=2, missing=2, min=2, mean=3, max=4)


def test_texts_are_counted_but_not_added_up() -> None:
    assert summary_of([PropertyReading(1.0, "6.1")]) == PropertySummary(count=1, missing=0)


def test_of_truth_values_the_mean_is_the_share_that_is_true() -> None:
    readings = [PropertyReading(1.0, value) for value in (True, True, False, False)]
    assert summary_of(readings).mean == 0.5


def test_a_group_of_nobody_has_an_empty_summary() -> None:
    assert summary_of([]) == PropertySummary(count=0, missing=0)
