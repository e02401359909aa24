"""Puts the values with which a program describes a job into the words of a command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kestrelctl.core.model.job.shell_text import SHELL
from kestrelctl.errors import UsageError


def words_of(command: str | Sequence[str]) -> tuple[str, ...]:
    """Returns the words of a command; a text is one line for the shell.

    Raises:
        UsageError: there are none.
    """
    argv = (*SHELL, command) if isinstance(command, str) else tuple(map(str, command))
    if not argv:
        raise UsageError("there is no command", hint='["sleep", "1"], or "sleep 1"')
    return argv


def plain(value: Any) -> Any:
    """Replaces a job by its id, also in a list."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    job_id = getattr(value, "id", None)
    return str(job_id) if isinstance(job_id, int) else value


def line_of(item: object) -> str:
    """Writes an item as one line: a text as it is, anything else as compact JSON.

    Raises:
        UsageError: JSON cannot say it.
    """
    try:
        return item if isinstance(item, str) else msgspec.json.encode(item).decode()
    except (TypeError, msgspec.EncodeError) as error:
        raise UsageError(f"an item cannot be {str(item)[:80]!r}", cause=str(error)) from None
