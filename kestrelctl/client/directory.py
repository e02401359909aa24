"""The directory in which the tasks of a job start."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from kestrelctl.errors import UsageError
from kestrelctl.grammar.job_options import SCRATCH


def start_directory(
    given: str | None, *, has_inputs: bool, leaves_files: bool, has_own: Callable[[], bool]
) -> str:
    """Returns the directory where tasks start: an absolute path, or empty for a scratch directory.

    Args:
        given: the directory that the user or a job file says.
        has_inputs: whether tasks find files, which are put into scratch directories, too.
        leaves_files: whether tasks leave files, which they do only in scratch directories.
        has_own: tells whether workers of the pool run tasks in the directory that a job names.

    Raises:
        UsageError: a directory is given, and tasks find files; or the current one is gone, or its
            name cannot be written in JSON.
    """
    if has_inputs and given not in (None, SCRATCH):
        raise UsageError(
            "inputs are put into scratch directories, and --workdir has the tasks start elsewhere",
            hint="leave one of --input and --workdir out",
        )
    if given == SCRATCH or (given is None and (leaves_files or has_inputs)):
        return ""
    if given is None and not has_own():
        return ""
    try:
        directory = Path(given or ".").resolve(strict=given is None)
        str(directory).encode()
    except (OSError, UnicodeEncodeError) as error:
        raise UsageError(
            f"the {'current directory' if given is None else 'directory'} cannot be the job's",
            cause=error.strerror if isinstance(error, OSError) else "its name is not UTF-8",
            hint=f"--workdir DIR, or --workdir {SCRATCH}",
        ) from None
    scratch = os.environ.get("KESTREL_SCRATCH")  # this is a task; it is emptied when that ends
    if given is None and scratch and directory.is_relative_to(Path(scratch).resolve()):
        return ""
    return str(directory)
