"""Namespaces of files, processes and IPC, made by bubblewrap (bwrap(1)).

bwrap reads its options from a file in memory, not from its command line: the environment of a task
is nobody else's business. Its own environment is empty: a job's LD_PRELOAD is for the task, and
must not be obeyed by bwrap, which still sees everything.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from pathlib import Path

from kestrelctl.core.model.end_reason import EndKind, ReasonText
from kestrelctl.worker.isolation.file_view import FileView
from kestrelctl.worker.isolation.rung import (
    Ending,
    InitReport,
    Namespaced,
    Start,
    told_code,
)
from kestrelctl.worker.launch.launcher import (
    OPTIONS_DESCRIPTOR,
    STATUS_DESCRIPTOR,
    Launch,
    Tree,
    read_status,
)
from kestrelctl.worker.run.orphans import ATTEMPT_VARIABLE
from kestrelctl.worker.run.process_tree import init_of
from kestrelctl.worker.run.programs import check_executable

MOST_WORDS = 9000
"""More options and arguments together are an error to bwrap (MAX_ARGS in bubblewrap.c)."""

_FLAGS = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
)
#: Options with our init, and without.
_AS_INIT = ("--as-pid-1",)
_SAYS_STATUS = ("--json-status-fd", str(STATUS_DESCRIPTOR))
_NOT_EXECUTED = re.compile(r"bwrap: execvp (?P<program>.*): (?P<why>[^:]+)\n?\Z", re.DOTALL)
_MESSAGE_BYTES = 4096
_HIDDEN = "the isolation of tasks hides that place; the worker may share it: --share"
_IN_MEMORY = ("tmp", "var/tmp", "dev/shm")


class Bubblewrap(Namespaced):
    """Rung `bubblewrap`."""

    name = "bubblewrap"
    tree = Tree.INIT
    hides_files = True
    #: Exit codes by which a program that runs ahead of the task may say that it has failed itself.
    own_failures = frozenset({1})

    def __init__(self, view: FileView, program: str | None = None, init: str = "") -> None:
        super().__init__(init)
        self.program = program or shutil.which("bwrap") or "/usr/bin/bwrap"
        self._view = view
        self._around: dict[str, tuple[list[str], list[str]]] = {}  # by working directory

    def shows(self, path: str) -> bool:
        return self._view.shows(path)

    def launch(self, place: str, start: Start) -> Launch:
        program, argv, env, _, workdir, inputs_dir = start
        scratch = f"{place}/scratch"
        check_executable(program, workdir or scratch)
        directory = os.path.realpath(workdir) if workdir else ""
        before, after = self._around_scratch(directory)
        inputs = ("--ro-bind", inputs_dir, inputs_dir) if inputs_dir else ()
        words = [*before, "--bind", scratch, scratch, *inputs, *after]
        words += ["--chdir", directory or scratch]
        for name, value in env.items():
            if not name or "=" in name:
                raise ValueError("illegal environment variable name")
            words += ("--setenv", name, value)
        first = self.init_words if self.init else ()
        options_from = ("bwrap", "--args", str(OPTIONS_DESCRIPTOR), "--")
        command = (*options_from, *first, program, *argv[1:])
        if len(command) + len(words) > MOST_WORDS:
            raise ValueError(
                f"bubblewrap takes {MOST_WORDS:,} words at most: those of the command, and three"
                " for each variable; let the task read long lists from a file"
            )
        options = os.fsencode("\0".join(words)) + b"\0"
        if options.count(b"\0") != len(words):  # it would end one option and begin another
            raise ValueError("embedded null byte")
        return Launch(
            self.program,
            command,
            {ATTEMPT_VARIABLE: env.get(ATTEMPT_VARIABLE, "")},
            options,
            self.init,
            has_status=True,
        )

    def _around_scratch(self, workdir: str) -> tuple[list[str], list[str]]:
        """The options before and after those for the scratch directory.

        Args:
            workdir: as the kernel names it, or empty: the target of a link could change.
        """
        found = self._around.get(workdir)
        if found is None:
            if len(self._around) > 1000:
                self._around.clear()
            view = self._view
            init = _AS_INIT if self.init else _SAYS_STATUS
            before = [*_FLAGS, *init, *view.before_scratch(workdir)]
            found = self._around[workdir] = (before, view.after_scratch(workdir))
        return found

    def memory_files_bytes(self, pid: int) -> int:
        init = init_of(pid)
        total = 0
        for directory in _IN_MEMORY if init else ():
            with contextlib.suppress(OSError):
                total += _used_bytes(f"/proc/{init}/root/{directory}", f"/{directory}")
        return total

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        if self.init:
            return self._ended_with_init(place, code, asked=asked)
        if code not in self.own_failures or asked or _has_exit_code(place):
            return Ending(told_code(code))
        missing = _NOT_EXECUTED.search(_said(place))
        if missing is None:
            return _not_made(place, code)
        return Ending(
            code, self._why_not_executed(missing["program"], missing["why"].strip()), ran=False
        )

    def _ended_with_init(self, place: str, code: int, *, asked: bool) -> Ending:
        if not code:
            return Ending(code)
        told = InitReport.read(place)
        if told is None and asked:
            return Ending(told_code(code))
        if told is None:
            too_long = os.strerror(errno.E2BIG)
            if _said(place).rstrip().endswith(f"{self.init_words[0]}: {too_long}"):
                return Ending(code, EndKind.CANNOT_START.text(too_long), ran=False)
            return _not_made(place, code)
        if told.error:
            why = self._why_not_executed(told.program, os.strerror(told.error))
            return Ending(code, why, ran=False)
        return Ending(told_code(code) if told.code is None else told.code)

    def _why_not_executed(self, program: str, why: str) -> ReasonText:
        hint = ""
        if not self._view.shows(program):
            hint = f" ({_HIDDEN})"
        elif why == os.strerror(errno.ENOENT):  # the worker has found both
            hint = f" (the interpreter named in its first line: {_HIDDEN})"
        return EndKind.CANNOT_START.text(f"{why}: {program!r}{hint}")


def _used_bytes(path: str, machines_path: str) -> int:
    """Bytes in a file system; 0 for the machine's own, which is seen until the sandbox is made.

    OSError if there is none.
    """
    directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(directory).st_dev == os.stat(machines_path).st_dev:
            return 0
        state = os.fstatvfs(directory)
        return (state.f_blocks - state.f_bfree) * state.f_frsize
    finally:
        os.close(directory)


def _has_exit_code(place: str) -> bool:
    """Whether the program was executed; bwrap says so in a file that the program cannot reach."""
    return b'"exit-code"' in read_status(place)


def _not_made(place: str, code: int) -> Ending:
    """The end of a task whose sandbox could not be made."""
    why = EndKind.NO_RESOURCES.text(_said(place).strip() or "bwrap failed")
    return Ending(code, why, ran=False)


def _said(place: str) -> str:
    return _tail(f"{place}/stderr") or _tail(f"{place}/stdout")  # where they are joined


def _tail(file: str) -> str:
    try:
        data = Path(file).read_bytes()
    except OSError:
        return ""
    return data[-_MESSAGE_BYTES:].decode("utf-8", "replace")
