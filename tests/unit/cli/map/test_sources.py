"""Input sources are combined as GNU parallel combines them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kestrelctl.cli.map.sources import (
    InputSource,
    column_separator,
    columns,
    combined,
    split_line,
)
from kestrelctl.errors import UsageError


def test_a_line_without_sources_reads_standard_input() -> None:
    assert split_line(["echo", "{}"]) == (("echo", "{}"), [InputSource(file="-")])


def test_what_follows_the_command_are_words_and_files_linked_or_not() -> None:
    command, sources = split_line(
        ["fit", "{1}", ":::", "a", "b", ":::+", "1", "2", "::::", "f", "-", "::::+", "g", ":::"]
    )
    assert command == ("fit", "{1}")
    assert sources == [
        InputSource(("a", "b")),
        InputSource(("1", "2"), linked=True),
        InputSource(file="f"),
        InputSource(file="-"),
        InputSource(file="g", linked=True),
        InputSource(()),
    ]


@pytest.mark.parametrize("words", [["::::", ":::", "a"], ["::::", ""], ["::::", "f", ""]])
def test_files_are_named(words: list[str]) -> None:
    with pytest.raises(UsageError, match="is followed by no file"):
        split_line(["echo", *words])


def words(arguments: list[list[str]], linked: list[bool] | None = None) -> list[str]:
    rows = combined(arguments, linked or [False] * len(arguments))
    return [" ".join(row) for row in rows]


def test_several_sources_give_all_combinations_the_last_changes_fastest() -> None:
    assert words([["a", "b"], ["1", "2"]]) == ["a 1", "a 2", "b 1", "b 2"]


def test_linked_sources_go_as_far_as_the_shortest() -> None:
    linked = [False, True, False, True]
    found = words([["a", "b", "c"], ["1", "2"], ["X", "Y"], ["11", "22", "33"]], linked)
    assert found == ["a 1 X 11", "a 1 Y 22", "b 2 X 11", "b 2 Y 22"]


def test_the_first_source_is_linked_to_none() -> None:
    assert words([["a", "b"], ["1"]], [True, False]) == ["a 1", "b 1"]


def test_an_empty_source_beside_others_has_an_empty_argument() -> None:
    assert words([["a", "b"], []]) == ["a ", "b "]
    assert words([[], ["a"]]) == [" a"]
    assert words([["a"], []], [False, True]) == ["a "]
    assert words([[], []]) == []
    assert words([[]]) == []


def test_the_first_source_is_read_as_its_arguments_are_needed() -> None:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for line in ("a", "b", "c"):
            read.append(line)
            yield line

    rows = combined([lines(), ["1"]], [False, False])
    assert next(rows) == ("a", "1")
    assert read == ["a"]


def test_columns_are_split_by_an_expression_and_have_no_blanks_around() -> None:
    assert columns(" c , d,e", column_separator(",")) == ["c", "d", "e"]
    assert columns(" c d ", column_separator(" ")) == ["", "c", "d", ""]
    assert columns("a1b22c", column_separator(r"(\d)+")) == ["a", "b", "c"]
    assert columns("", column_separator(",")) == [""]


def test_a_separator_that_is_no_expression_is_refused() -> None:
    with pytest.raises(UsageError, match="--colsep is a regular expression"):
        column_separator("(")
