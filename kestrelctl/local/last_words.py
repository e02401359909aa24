"""Reads from the last words in the logs of a local pool why it did not come up."""

from __future__ import annotations

import re
from pathlib import Path

#: The beginning of an error: as the command line says it, as a daemon logs it, or as Prosody does.
_ERROR = re.compile(r"error: |[\d:]+ (?:ERROR|CRITICAL) +|.*\terror\t")
_CAUSE, _HINT, _TRACEBACK = "cause: ", "hint: ", "Traceback "
#: How many lines are read from the end of a log: a traceback, and what was said before it.
_MOST_LINES = 200


def last_words(directory: Path, of: str = "*") -> str:
    """The last error of each log of a pool; where there is none, the last line of each.

    Args:
        of: a glob of names of logs, without `.log`.
    """
    errors: list[str] = []
    lines: list[str] = []
    for log in sorted(directory.glob(f"{of}.log")):
        found = log.read_text(errors="replace").strip().splitlines()[-_MOST_LINES:]
        if found:
            lines.append(f"{log.stem}: {found[-1]}")
        if error := _last_error(found):
            errors.append(f"{log.stem}: {error}")
    # The supervisor says which process failed, and that process says why.
    if len(errors) > 1:
        errors = [error for error in errors if not error.startswith("supervisor: ")]
    return "; ".join(errors or lines) or "its processes left no word"


def _last_error(lines: list[str]) -> str:
    """The last error in these lines, with its cause and hint if they were said; empty for none."""
    place, text = -1, ""
    for number, line in enumerate(lines):
        if found := _ERROR.match(line):
            place, text = number, line[found.end() :]
    after = lines[place + 1 :] if text else []
    if after and after[0].startswith(_CAUSE):
        text += f": {after.pop(0).removeprefix(_CAUSE)}"
        while after and after[0].startswith("  "):
            text += f" {after.pop(0).strip()}"
    if after and after[0].startswith(_HINT):
        text += f" ({after[0].removeprefix(_HINT)})"
    if any(line.startswith(_TRACEBACK) for line in after):
        text += f": {after[-1]}"
    return text
