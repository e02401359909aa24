"""The refusal of an expression: what is wrong with it, and where."""

from __future__ import annotations


class BadExpression(ValueError):
    """An expression that is refused.

    Attributes:
        what: in words.
        position: of the mistake in the text, in characters from 0.
    """

    def __init__(self, what: str, position: int) -> None:
        super().__init__(f"{what}, at character {position + 1}")
        self.what = what
        self.position = position
