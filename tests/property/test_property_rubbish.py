"""Whatever is written in a definition or printed by a plugin costs its own value only."""

from __future__ import annotations

import contextlib
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from kestrelctl.core.properties.definition import read_definitions
from kestrelctl.core.properties.reading import (
    LARGEST_FLOAT,
    LARGEST_INT,
    MOST_TEXT_BYTES,
    RETURN_TYPES,
    PropertyReading,
    PropertyValue,
    read_printed,
)
from kestrelctl.core.properties.summary import summary_of
from kestrelctl.errors import UsageError

#: For a long run 100,000.
EXAMPLES = 2_000

_RUBBISH = st.one_of(st.text(max_size=8), st.sampled_from(["'", '"', "\\", "#", "\0", "\n "]))
_LINES = st.one_of(
    _RUBBISH,
    st.builds(
        "{} = {}".format,
        st.sampled_from(["command", "parameters", "return_type", "ticks", "timeout"]),
        st.one_of(_RUBBISH, st.sampled_from(["ram", "int", "1", "60", "1e3", "'a b' c"])),
    ),
)
#: A whole definition, with lines put in and out of it.
_NEARLY_RIGHT = st.builds(
    lambda lines, cut: "\n".join(
        line
        for number, line in enumerate(
            ["[ram_free]", "command = ram", "return_type = int", "ticks = 60", *lines]
        )
        if number != cut
    ),
    st.lists(_LINES, max_size=2),
    st.integers(1, 12),
)
_TEXTS = st.one_of(st.text(), st.lists(_LINES).map("\n".join))
_NUMBERS = st.one_of(st.integers(), st.floats()).map(str)
_PRINTED = st.one_of(
    st.binary(max_size=4096),
    st.one_of(_NUMBERS, st.text(), st.sampled_from(["yes", "off", "1e999", "--1"])).map(
        lambda text: text.encode(errors="replace")
    ),
)
_VALUES = st.one_of(
    st.integers(-LARGEST_INT, LARGEST_INT),
    st.floats(-LARGEST_FLOAT, LARGEST_FLOAT),
    st.booleans(),
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(_TEXTS)
def test_a_text_is_definitions_or_an_error_of_the_user(text: str) -> None:
    _is_definitions_or_an_error_of_the_user(text)


@settings(max_examples=EXAMPLES, deadline=None)
@given(_NEARLY_RIGHT)
def test_what_is_nearly_right_is_too(text: str) -> None:
    _is_definitions_or_an_error_of_the_user(text)


def _is_definitions_or_an_error_of_the_user(text: str) -> None:
    with contextlib.suppress(UsageError):
        for found in read_definitions(text, "rubbish.ini"):
            assert found.words
            assert all(word.isprintable() for word in found.words)
            assert found.return_type in RETURN_TYPES
            assert found.tick_seconds >= 1
            assert found.timeout_seconds >= 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(_PRINTED, st.sampled_from(RETURN_TYPES))
def test_what_is_printed_is_a_value_of_its_type_or_missing(printed: bytes, kind: str) -> None:
    reading = read_printed(printed, kind, at=1.0)
    if reading.value is None:
        assert reading.missing.isprintable()
        assert reading.missing
        return
    assert type(reading.value).__name__ == kind
    assert isinstance(reading.value, get_args(PropertyValue))
    assert len(str(reading.value).encode()) <= MOST_TEXT_BYTES


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(_VALUES, min_size=1, max_size=50))
def test_the_mean_lies_between_the_least_and_the_greatest(values: list[int | float]) -> None:
    found = summary_of([PropertyReading(1.0, value) for value in values])
    assert found.min is not None
    assert found.mean is not None
    assert found.max is not None
    assert found.min <= found.mean <= found.max
