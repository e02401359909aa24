"""The rungs of the ladder: each turns a task's command into the one that is spawned.

From `namespace` up, a process of the sandbox program stands between the worker and the task: the
*monitor*. It is what the worker spawns and waits for. Its only child is the *init* of a process
namespace (pid_namespaces(7)): when that is killed, the kernel kills everything in the namespace and
lets the monitor know after the last one has gone. Where our own program is the init (`init.c`), it
gives the task's group its grace; otherwise the end of the task's first process ends all others.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kestrelctl.core.model.end_reason import NO_REASON, ReasonText
from kestrelctl.worker.launch.launcher import INIT_DESCRIPTOR, Launch, Tree, read_status
from kestrelctl.worker.run.process_tree import descendants, init_of

MOST_PROCESSES = 4096
"""Of one task, threads included."""
_STANDARD_SIGNALS = range(1, 32)
_MOST_DIGITS = 4
"""Of an exit code, a signal or an errno: some tasks can write what a sandbox tells."""


@dataclass(frozen=True, kw_only=True)
class TaskLimits:
    """The most that one task may use.

    Attributes:
        memory_bytes, disk_bytes: 0 for no limit.
        files: in its scratch directory.
    """

    memory_bytes: int = 0
    disk_bytes: int = 0
    files: int = 1_000_000
    processes: int = MOST_PROCESSES


class Start(NamedTuple):
    """A task's command as the task is to see it.

    Attributes:
        program: the file to be executed, wherever `argv[0]` was found.
        workdir: where the task is to start; empty for its scratch directory.
        inputs_dir: a directory of the worker's that the task may read; empty for none.
    """

    program: str
    argv: tuple[str, ...]
    env: dict[str, str]
    limits: TaskLimits
    workdir: str = ""
    inputs_dir: str = ""


class Ending(NamedTuple):
    """The end of a task, as far as its rung can tell.

    Attributes:
        code: exit code, or minus the signal.
        reason: if not empty, why it ended, or why it never ran.
        ran: False if the task's program was never started.
        peak_bytes: of all its processes; 0 if the rung does not know.
    """

    code: int
    reason: ReasonText = NO_REASON
    ran: bool = True
    peak_bytes: int = 0


class Rung(Protocol):
    """One way to run tasks. `place` is the directory of a sandbox; a task's own is `scratch`."""

    name: str
    #: Where the processes of a task are.
    tree: Tree
    #: Whether the kernel enforces the limits of memory and processes.
    has_kernel_limits: bool
    #: Whether a task reaches no files of other tasks.
    hides_files: bool

    def shows(self, path: str) -> bool:
        """Whether tasks see what the machine has at that path."""

    def launch(self, place: str, start: Start) -> Launch:
        """Returns what to spawn for a command.

        Raises:
            OSError: it could not be executed, or the machine cannot start anything.
            ValueError: it holds what no kernel accepts.
        """

    def processes(self, pid: int, most: int) -> list[int]:
        """The task's processes; not much more than `most`, which keeps a fork bomb cheap to see."""

    def memory_files_bytes(self, pid: int) -> int:
        """Returns how much the task keeps in file systems that are made of memory."""

    def ended(self, place: str, code: int, *, asked: bool) -> Ending:
        """Returns what the end of the spawned process says about the task.

        Args:
            code: exit code, or minus the signal.
            asked: whether the worker has signalled it.
        """


class InitReport(NamedTuple):
    """The report of the init of a sandbox.

    Attributes:
        code: exit code of the task, or minus the signal; None if it told none.
        error: an errno, if the task's program could not be executed.
        program: that program.
    """

    code: int | None = None
    error: int = 0
    program: str = ""

    @classmethod
    def read(cls, place: str) -> InitReport | None:
        """Reads what it told of the last program in a sandbox; None if it never ran."""
        began, mark, told = read_status(place).partition(b"began\n")
        if began or not mark:
            return None
        what, _, detail = told.partition(b" ")
        number, _, rest = detail.partition(b"\n" if what != b"failed" else b" ")
        if not number.isdigit() or len(number) > _MOST_DIGITS:
            return cls()
        if what == b"failed":
            return cls(error=int(number), program=os.fsdecode(rest.rpartition(b"\nexited ")[0]))
        return cls(-int(number) if what == b"killed" else int(number))


class Namespaced:
    """The common part of all rungs with a process namespace.

    Args:
        init: our program that is the first in a namespace; empty for the one of the sandbox
            program.
    """

    has_kernel_limits = False
    hides_files = False
    init_words = (f"/proc/self/fd/{INIT_DESCRIPTOR}",)

    def __init__(self, init: str = "") -> None:
        self.init = init

    def shows(self, path: str) -> bool:
        return True

    def processes(self, pid: int, most: int) -> list[int]:
        init = init_of(pid)
        return descendants(init, most) if init else []

    def memory_files_bytes(self, pid: int) -> int:
        return 0


def told_code(code: int) -> int:
    """Turns an exit code of a sandbox program back into the task's.

    Such programs hand on "killed by signal n" as the exit code 128+n, as shells do. A task that
    exits with one of these codes by itself cannot be told apart from that.
    """
    return 128 - code if code - 128 in _STANDARD_SIGNALS else code
