"""What is wrong with an expression of a trigger."""

from __future__ import annotations


class ExpressionError(Exception):
    """It is not taken, or comes to nothing; the text says why, in one line."""
