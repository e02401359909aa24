"""Finds the program a task names, and says in words why one could not be started."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from kestrelctl.core.model.end_reason import EndKind, ReasonText
from kestrelctl.errors import NO_SPACE

_CACHE_ENTRIES = 10_000
_MACHINE_SHORT = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EIO}
_FIRST_LINE_BYTES = 256  # BINPRM_BUF_SIZE
_OTHER_FORMATS = "/proc/sys/fs/binfmt_misc/status"


class Programs:
    """PATH look-up with a memory: one search for each (name, PATH).

    Args:
        shows: whether tasks see what the machine has at a path.
    """

    def __init__(self, shows: Callable[[str], bool]) -> None:
        self._shows = shows
        self._found: dict[tuple[str, str], str] = {}

    def find(self, name: str, path: str | None) -> str:
        """The file to execute for `name`.

        A name with a slash stands for itself. Only absolute directories of PATH are searched: a
        relative one would mean the task's empty scratch directory. What tasks do not see counts
        only if there is nothing else: a program in a directory they see may be a link to a place
        they do not, such as a virtual environment's Python.

        Args:
            name: first word of the command.
            path: the task's own PATH; None for the system's default.

        Raises:
            FileNotFoundError: no directory has it.
            PermissionError: a directory has it, but it may not be executed.
        """
        if "/" in name:
            return name
        key = (name, os.defpath if path is None else path)
        program = self._found.get(key)
        if program is None:
            program = self._search(*key)
            if len(self._found) >= _CACHE_ENTRIES:
                self._found.clear()
            self._found[key] = program
        return program

    def _search(self, name: str, path: str) -> str:
        code, unseen = errno.ENOENT, ""
        for directory in path.split(":"):
            candidate = f"{directory}/{name}"
            if not (name and directory.startswith("/") and self._shows(directory)):
                continue
            if not os.path.isfile(candidate):
                continue
            if not os.access(candidate, os.X_OK):
                code = errno.EACCES
            elif self._shows(candidate):
                return candidate
            else:
                unseen = unseen or candidate
        if unseen:
            return unseen
        raise OSError(code, os.strerror(code), name)

    def forget(self, name: str, path: str | None) -> None:
        """Searches again next time: what was found could not be executed."""
        self._found.pop((name, os.defpath if path is None else path), None)


def check_executable(program: str, directory: str) -> None:
    """Finds out ahead what execve(2) would say to a file, for a program that is started by another.

    Args:
        directory: from where it is looked for, unless its path is absolute.

    Raises:
        OSError: as execve would.
    """
    program = os.path.join(directory, program)
    if os.path.exists(program) and not os.path.isfile(program):  # opening a FIFO would wait
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), program)
    if not os.access(program, os.F_OK | os.X_OK):
        code = errno.EACCES if os.path.lexists(program) else errno.ENOENT
        raise OSError(code, os.strerror(code), program)
    try:
        with open(program, "rb", buffering=0) as file:
            line = file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    except PermissionError:  # one that may be executed, and not read
        return
    if line.startswith(b"#!"):
        interpreter = os.fsdecode(line[2:].split()[0]) if line[2:].split() else ""
        if not interpreter or not os.access(os.path.join(directory, interpreter), os.X_OK):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    elif not line.startswith(b"\x7fELF") and not os.path.exists(_OTHER_FORMATS):
        raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC), program)


def why_not_started(error: Exception, program: str, workdir: str, scratch: str) -> ReasonText:
    """A reason for the report, which blames the machine or the task.

    Args:
        error: what posix_spawn or the preparation raised.
        program: first word of the command.
        workdir: where the task was to start; empty for its scratch directory.
        scratch: that directory.
    """
    if not isinstance(error, OSError):
        # ValueError and TypeError name the fault: embedded null byte, illegal variable name, ...
        return EndKind.CANNOT_START.text(str(error))
    text = f"{error.strerror}: {program!r}"
    if error.errno in NO_SPACE:
        return EndKind.NO_SPACE.text(str(error.strerror))
    if error.errno in _MACHINE_SHORT:
        return EndKind.NO_RESOURCES.text(text)
    there = os.path.join(workdir or scratch, program)
    if error.errno == errno.ENOENT and "/" in program and os.path.exists(there):
        text += " (the interpreter named in its first line is missing)"
    elif error.errno == errno.ENOENT and "/" in program and not program.startswith("/"):
        text += (
            f" (from {workdir!r}, where the task begins)"
            if workdir
            else " (a task begins in an empty directory; name the program by its whole path)"
        )
    elif error.errno == errno.ENOENT and program and "/" not in program:
        text += " (in no directory of the task's PATH)"
    elif error.errno == errno.ENOEXEC:
        text += " (a script needs a first line like #!/bin/sh)"
    elif error.errno == errno.E2BIG:
        text += " (arguments and environment together are too large)"
    return EndKind.CANNOT_START.text(text)
