"""Reasons for what could not be started."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kestrelctl.worker.run.programs import Programs, why_not_started


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (
            errno.ENOENT,
            "cannot-start: No such file or directory: 'tool' (in no directory of the task's PATH)",
        ),
        (errno.EACCES, "cannot-start: Permission denied: 'tool'"),
        (
            errno.ENOEXEC,
            "cannot-start: Exec format error: 'tool' (a script needs a first line like #!/bin/sh)",
        ),
        (
            errno.E2BIG,
            "cannot-start: Argument list too long: 'tool'"
            " (arguments and environment together are too large)",
        ),
        (errno.EAGAIN, "no-resources: Resource temporarily unavailable: 'tool'"),
        (errno.ENOMEM, "no-resources: Cannot allocate memory: 'tool'"),
        (errno.EMFILE, "no-resources: Too many open files: 'tool'"),
        (errno.EROFS, "no-resources: Read-only file system: 'tool'"),
        (errno.EIO, "no-resources: Input/output error: 'tool'"),
        (errno.ENAMETOOLONG, "cannot-start: File name too long: 'tool'"),
        (errno.ENOSPC, "no-space: No space left on device"),
        (errno.EDQUOT, "no-space: Disk quota exceeded"),
    ],
)
def test_a_reason_names_whose_fault_it_is(code: int, reason: str) -> None:
    assert why_not_started(OSError(code, os.strerror(code)), "tool", "", "/") == reason


def test_a_program_in_the_current_directory_is_not_there() -> None:
    reason = why_not_started(
        FileNotFoundError(errno.ENOENT, "No such file"), "./tool", "", "/nonexistent"
    )
    assert reason == (
        "cannot-start: No such file: './tool'"
        " (a task begins in an empty directory; name the program by its whole path)"
    )


def test_what_is_no_system_error_speaks_for_itself() -> None:
    reason = why_not_started(ValueError("embedded null byte"), "tool", "", "/")
    assert reason == "cannot-start: embedded null byte"


def test_a_program_that_leads_where_tasks_see_nothing_is_taken_last(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    hidden = tmp_path / "home" / "python"
    for directory in ("environment", "system"):
        (tmp_path / directory).mkdir()
    for program in (hidden, tmp_path / "system" / "python"):
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    linked = tmp_path / "environment" / "python"
    linked.symlink_to(hidden)
    programs = Programs(lambda path: not os.path.realpath(path).startswith(str(hidden.parent)))
    both = f"{tmp_path}/home:{tmp_path}/environment:{tmp_path}/system"
    assert programs.find("python", both) == f"{tmp_path}/system/python"
    assert programs.find("python", f"{tmp_path}/environment") == str(linked), "its reason says why"
    with pytest.raises(FileNotFoundError):
        programs.find("python", f"{tmp_path}/home")
