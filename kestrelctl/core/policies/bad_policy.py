"""The refusal of a policy: what is wrong with it, and where."""

from __future__ import annotations

from kestrelctl.core.classad.rules import pointed_at


class BadPolicy(ValueError):
    """A policy that is refused.

    Attributes:
        what: in words.
        line, column: of the mistake, from 1.
        pointer: that line, and a line with a caret below the mistake.
    """

    def __init__(self, what: str, text: str, position: int) -> None:
        super().__init__(what)
        self.what = what
        before = text[:position]
        self.line = before.count("\n") + 1
        start = before.rfind("\n") + 1
        self.column = position - start + 1
        line = text[start:].partition("\n")[0].replace("\t", " ")
        self.pointer = pointed_at(line, position - start)

    @property
    def place(self) -> str:
        """The place of the mistake, for a message of several lines."""
        return f"line {self.line}, column {self.column}\n{self.pointer}"
