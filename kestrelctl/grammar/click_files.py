"""Names of files as click parses them: an empty one is refused, and one with a null byte.

A shell makes an empty one of a variable that is not set, and to Python it means the current
directory. A null byte comes from job files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


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
