"""Tables: aligned, and cut where a terminal ends."""

from __future__ import annotations

import pytest
from paperkit import Paper

from kestrelctl.cli.show.grid import Column, Grid, cell_columns, cut, text_width
from kestrelctl.core.model.wording import one_line

HEADINGS = [("NAME", False), ("N", True), ("WHY", False)]


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal has 30 columns."""
    monkeypatch.setenv("COLUMNS", "30")


def printed(rows: list[list[str]], *, terminal: bool = False) -> list[str]:
    paper = Paper(terminal=terminal)
    Grid(cell_columns(HEADINGS)).print(rows, paper)
    return paper.text.splitlines()


def test_text_is_left_and_numbers_are_right() -> None:
    assert printed([["a", "1,000", "x"], ["bbbbb", "7", ""]]) == [
        "NAME       N  WHY",
        "a      1,000  x",
        "bbbbb      7",
    ]


def test_in_a_pipe_nothing_is_cut() -> None:
    assert printed([["x" * 50, "1", "y" * 50]])[1] == f"{'x' * 50}  1  {'y' * 50}"


def test_on_a_terminal_the_widest_texts_are_cut_until_all_fit() -> None:
    lines = printed([["short", "1,000,000", "y" * 50]], terminal=True)
    assert lines[1] == "short  1,000,000  yyyyyyyyyyy…"
    assert max(map(len, lines)) == 30


def test_an_empty_column_takes_no_room_from_a_name() -> None:
    lines = printed([["x" * 25, "1", ""], ["y", "2", ""]], terminal=True)
    assert lines[0].split() == ["NAME", "N"]
    assert lines[1] == "x" * 25 + "  1"
    assert printed([["x", "1", ""]], terminal=True)[0].split() == ["NAME", "N", "WHY"]


def test_a_column_that_was_empty_comes_back_with_its_first_content() -> None:
    paper = Paper(terminal=True)
    grid = Grid(cell_columns(HEADINGS))
    grid.print([["x" * 28, "1", ""]], paper)
    grid.print([["z", "3", "because"]], paper)
    assert paper.text.splitlines()[2:] == ["NAME  N  WHY", "z     3  because"]


def test_numbers_are_never_cut() -> None:
    lines = printed([["x" * 20, "1" * 40, "y" * 20]], terminal=True)
    assert "1" * 40 in lines[1]


def test_wide_characters_take_two_columns() -> None:
    assert printed([["日本", "1", "x"], ["e\u0301", "2", "y"]]) == [
        "NAME  N  WHY",
        "日本  1  x",
        "e\u0301     2  y",
    ]
    assert printed([["日" * 30, "1", "x"]], terminal=True)[1] == f"{'日' * 10}…   1  x"


def test_a_later_number_that_is_wider_is_whole_on_a_terminal_too() -> None:
    paper = Paper(terminal=True)
    grid = Grid(cell_columns(HEADINGS))
    grid.print([["a", "1", "x"]], paper)
    grid.print([["b", "1,000", "y"]], paper)
    assert paper.text.splitlines()[-1] == "b     1,000  y"


@pytest.mark.parametrize(
    ("text", "width"),
    [("plain", 5), ("日本", 4), ("e\u0301", 1), ("👩\u200d🔬", 2), ("❤\ufe0f", 2), ("ä", 1)],
)
def test_a_text_is_as_wide_as_a_terminal_shows_it(text: str, width: int) -> None:
    assert text_width(text) == width


def test_a_text_is_cut_between_characters() -> None:
    assert cut("日本語", 4) == "日…", "half of a wide one is not shown"
    assert cut("e\u0301e\u0301e\u0301", 2) == "e\u0301…", "an accent stays with its letter"
    assert [cut("abc", width) for width in (3, 2, 1)] == ["abc", "a…", "…"]


def test_what_a_cell_says_to_a_terminal_is_shown_as_an_escape() -> None:
    assert printed([["\x1b[2J", "1", "two\nlines"]])[1] == "\\x1b[2J  1  two lines"


def test_states_are_coloured_by_their_words_and_other_cells_as_their_columns_say() -> None:
    columns: list[Column[str]] = [
        Column("STATE", lambda state: state),
        Column("N", lambda state: "7", right=True, style=lambda state: "bold red"),
    ]
    paper = Paper(terminal=True, color=True)
    heading, running, odd = list(Grid(columns).lines(["running", "odd"]))
    assert [style for _, style in heading if style] == ["bold", "bold"]
    assert [piece for piece in running if piece[1]] == [("running", "cyan"), ("7", "bold red")]
    assert [piece for piece in odd if piece[1]] == [("7", "bold red")]
    Grid(columns).print(["running"], paper)
    assert paper.text.splitlines()[1] == "\x1b[36mrunning\x1b[0m  \x1b[1m\x1b[31m7\x1b[0m"


def test_later_pages_keep_the_widths_and_have_no_headings() -> None:
    paper = Paper(terminal=False)
    grid = Grid(cell_columns(HEADINGS))
    grid.print([["aaaaaa", "1", "x"]], paper)
    grid.print([["b", "2", "y"]], paper)
    assert paper.text == "NAME    N  WHY\naaaaaa  1  x\nb       2  y\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ä 日", "plain ä 日"),
        ("two\nlines\tand\r", "two lines and "),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp", "\\u202egnp"),
    ],
)
def test_what_could_move_the_cursor_is_shown_instead(text: str, shown: str) -> None:
    assert one_line(text) == shown
