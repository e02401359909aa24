"""Tables: aligned, and cut where a terminal ends."""

from __future__ import annotations

import pytest

from kestrelctl.cli.show.grid import Grid
from kestrelctl.cli.show.screen import Screen
from kestrelctl.grammar.one_line import one_line

HEADINGS = [("NAME", False), ("N", True), ("WHY", False)]


class Paper(Screen):
    """A screen that keeps what is printed; 30 columns wide if it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(color=False)
        self.text = ""
        self.terminal = terminal

    def write(self, text: str) -> None:
        self.text += text

    @property
    def is_terminal(self) -> bool:
        return self.terminal


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")


def printed(rows: list[list[str]], *, terminal: bool = False) -> list[str]:
    paper = Paper(terminal=terminal)
    Grid(HEADINGS).print(rows, paper)
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
    grid = Grid(HEADINGS)
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


def test_later_pages_keep_the_widths_and_have_no_headings() -> None:
    paper = Paper(terminal=False)
    grid = Grid(HEADINGS)
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
