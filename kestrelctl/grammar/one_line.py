"""Makes text of others fit for a line of one's own."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text without anything that begins a line, turns the direction of others, or tells a
    terminal to do something.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable()
        else " "
        if char in "\r\n\t"
        else char.encode("unicode_escape").decode()
        for char in text
    )
