"""Numbers and names of files as click parses them, in words that users understand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

from kestrelctl.grammar.quantities import MOST_WHOLE


class Number(click.FloatRange):
    """Any number from a range; click calls it a "float range" to users.

    For click, `nan` is in every range, and `inf` in those without an end; here they are refused.
    """

    name = "number"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value!r} is no number", param, ctx)
        return number


class WholeNumber(click.IntRange):
    """A whole number from a range; click calls it an "integer range" to users.

    A number that no message can hold is refused here, in words about the option, and so is one with
    a fraction, which job files can have and click would cut off.
    """

    name = "whole number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, float):
            self.fail(f"{value!r} is no whole number", param, ctx)
        number = int(super().convert(value, param, ctx))
        if number > MOST_WHOLE:
            self.fail(f"{number} is more than {MOST_WHOLE:,}, the largest number", param, ctx)
        return number


class FileName(click.ParamType):
    """The name of a file or a directory, as it was written."""

    name = "file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value):
            self.fail("it is empty, and names no file", param, ctx)
        if "\0" in str(value):
            self.fail("it has a null byte, and no file can have such a name", param, ctx)
        return str(value)


class FilePath(FileName):
    """The path of a file or a directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return Path(super().convert(value, param, ctx))
