"""Words for people: counts, and texts of others that fit into a line of one's own."""

from __future__ import annotations


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Writes `1 task`, `1,000 tasks`; `nouns` is the plural of a noun that needs more than an s."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {nouns or noun + 's'}"


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
