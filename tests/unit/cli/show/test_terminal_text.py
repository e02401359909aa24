"""What tasks wrote, on a terminal."""

from __future__ import annotations

import pytest

from kestrelctl.cli.show.terminal_text import TerminalText


def shown(*pieces: bytes) -> str:
    text = TerminalText()
    return "".join(map(text.add, pieces)) + text.end()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\tb\r\nc\n", "a\tb\r\nc\n"),
        ("Grüße 好\n".encode(), "Grüße 好\n"),
        (b"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m"),
        (b"\x1b[8mhidden", "\x1b[8mhidden\x1b[0m"),
        (b"\x1b]0;title\x07", r"\x1b]0;title\x07"),
        (b"\x1b]52;c;Zm9v\x07", r"\x1b]52;c;Zm9v\x07"),
        (b"\x1b[2J\x1b[6n\x1bc", r"\x1b[2J\x1b[6n\x1bc"),
        ("\x9b6n".encode(), r"\x9b6n"),
        (b"\x9b6n", r"\x9b6n"),
        (b"a\x08b\x7f\x00", r"a\x08b\x7f\x00"),
        ("\u202egnp.exe".encode(), r"\u202egnp.exe"),
        (b"cut \xc3", r"cut \xc3"),
    ],
)
def test_a_terminal_is_told_colours_and_nothing_else(data: bytes, text: str) -> None:
    assert shown(data) == text


def test_a_character_that_is_cut_between_two_pieces_is_whole() -> None:
    assert shown(b"\xc2", b"\x9b6n") == r"\x9b6n"
    assert shown("ü".encode()[:1], "ü".encode()[1:]) == "ü"
