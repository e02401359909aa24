"""The directory in which the tasks of a job start.

A task starts in a scratch directory of its own, unless its job names a directory. That is only for
workers whose owner lets users choose: those of a pool that a user runs for themselves. They
advertise a tag, and a job with a directory asks for it like for any other.
"""

from __future__ import annotations

#: The tag of workers that let jobs choose a directory. Nobody else can give it.
TAG = "workdir"

#: The longest path that Linux takes (PATH_MAX, with its end).
MOST_CHARACTERS = 4095


def problem_with_workdir(path: str) -> str | None:
    """Says what is wrong with the directory of a job, for its user; None if all is well."""
    if not path:
        return None
    if not path.startswith("/"):
        return f"the directory of a job is an absolute path, not {path[:80]!r}"
    if "\0" in path or len(path) > MOST_CHARACTERS:
        return f"the directory of a job has up to {MOST_CHARACTERS:,} characters, none of them NUL"
    return None
