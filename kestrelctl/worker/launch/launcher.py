"""The port between an attempt and the processes of the machine.

A launcher starts programs in sandboxes, waits for them, signals them, and ends what they leave
behind. It knows nothing of stages, limits or results.
"""

from __future__ import annotations

import enum
import os
from typing import NamedTuple, Protocol

from kestrelctl.worker.own_files import NO_LINKS, open_file

STATUS_FILE = "sandbox-status"
"""Beside the scratch directory: what a sandbox program says of what it did."""
OPTIONS_DESCRIPTOR = 3
STATUS_DESCRIPTOR = 4
INIT_DESCRIPTOR = 5

_STATUS_BYTES = 8192


def read_status(place: str) -> bytes:
    """The last that a sandbox program said of what it did; empty if it said nothing.

    Args:
        place: the path of the sandbox's directory, which some tasks can reach.
    """
    try:
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | NO_LINKS)
        try:
            file = open_file(STATUS_FILE, os.O_RDONLY, directory)
        finally:
            os.close(directory)
        try:
            size_bytes = os.fstat(file).st_size
            return os.pread(file, _STATUS_BYTES, max(0, size_bytes - _STATUS_BYTES))
        finally:
            os.close(file)
    except OSError:
        return b""


class Tree(enum.IntEnum):
    """The layout of the processes of a task.

    GROUP: the process that is started leads the task's group. All of that has its grace when it is
        asked to end. MONITOR: it watches over a process namespace, which it takes along when it is
        killed. INIT: the same, and the first process of the namespace may outlive it: that is
        waited for, too.
    """

    GROUP = 0
    MONITOR = 1
    INIT = 2


class StartStep(enum.IntEnum):
    """The step that failed when a program could not be started."""

    UNKNOWN = 0
    SCRATCH = 1  #: its scratch directory is not the one that was made for it
    STREAMS = 2  #: what it was to read or write could not be opened
    WORKDIR = 3  #: the directory in which it was to start could not be entered
    PROGRAM = 4  #: it could not be executed


class Launch(NamedTuple):
    """The command that is executed for a task.

    Attributes:
        program: the file.
        options: OPTIONS_DESCRIPTOR reads this, if there is anything.
        init: INIT_DESCRIPTOR is this file, which the program executes; empty for none.
        has_status: STATUS_DESCRIPTOR writes to STATUS_FILE.
    """

    program: str
    argv: tuple[str, ...]
    env: dict[str, str]
    options: bytes = b""
    init: str = ""
    has_status: bool = False


def check(launch: Launch) -> list[str]:
    """Refuses what no kernel accepts.

    Returns:
        The variables as a program finds them.

    Raises:
        ValueError: it holds such a thing.
    """
    if not launch.argv:
        raise ValueError("a command has at least one word")
    if any(not name or "=" in name for name in launch.env):
        raise ValueError("illegal environment variable name")
    variables = [f"{name}={value}" for name, value in launch.env.items()]
    if any("\0" in text for text in (launch.program, *launch.argv, *variables)):
        raise ValueError("embedded null byte")
    return variables


class Order(NamedTuple):
    """An order to start a program.

    Attributes:
        number: of the attempt, of which nothing else runs.
        sandbox: the name of its directory. There the process starts in `scratch`, and writes to
            `stdout` and `stderr`.
        device, inode: of the scratch directory; it is started in no other one.
        workdir: where it starts instead; empty for the scratch directory.
        stdin_path: absolute path of what it reads; empty for nothing.
        appends: whether it goes on writing where another one has ended.
        joins: whether stderr goes into stdout.
        lane: in which it gives its place to the next that waits when it ends; 0 for none.
        waits: it is not to be started before `begin`, or until such a place is given.
    """

    number: int
    launch: Launch
    sandbox: str
    device: int
    inode: int
    workdir: str = ""
    stdin_path: str = ""
    appends: bool = False
    joins: bool = False
    lane: int = 0
    waits: bool = False


class Started(NamedTuple):
    """A program runs.

    Attributes:
        pid: of the process that was started; it may have ended since.
        wall: when, in seconds since the epoch.
        at: the same moment, monotonic.
        took_seconds: to start it.
    """

    number: int
    pid: int
    wall: float
    at: float
    took_seconds: float


class NotStarted(NamedTuple):
    """A program could not be started.

    Attributes:
        error: an errno.
    """

    number: int
    error: int
    step: StartStep


class ProgramEnded(NamedTuple):
    """All that was waited for has ended.

    Attributes:
        code: exit code of the process that was started, or minus the signal.
        at: when it was noticed, monotonic.
        cpu_seconds: of it and of those that it has waited for.
        peak_bytes: largest resident memory of one process as the kernel tells it; 0 if that cannot
            be told from what it began with.
        left_something: somebody may still write to what it wrote to.
    """

    number: int
    code: int
    at: float
    cpu_seconds: float
    peak_bytes: int
    left_something: bool


class Events(Protocol):
    """Receives what happens, on the event loop, and never from inside a call to the launcher."""

    def on_begun(self, number: int, at: float) -> None:
        """Is told that one that waited is being started, in the place of another; `on_started` or
        `on_not_started` follows.

        Args:
            at: when (monotonic).
        """

    def on_started(self, started: Started) -> None:
        """Is told that a program runs; `on_ended` follows."""

    def on_not_started(self, failure: NotStarted) -> None:
        """Is told that nothing runs; nothing else follows."""

    def on_withdrawn(self, number: int) -> None:
        """Is told that one has not started; nothing else follows."""

    def on_ended(self, ended: ProgramEnded) -> None:
        """Is told that nothing runs any more, but perhaps orphans, which are being killed."""


class Launcher(Protocol):
    """Starts programs.

    Attributes:
        name: as `worker info` and `bench` show it.
    """

    name: str

    def start(self, order: Order) -> None:
        """Starts a program, or has it wait. `on_started` or `on_not_started` follows.

        Raises:
            ValueError: it holds what no kernel accepts.
        """

    def begin(self, number: int) -> None:
        """Starts one that waits; `on_begun` is not told of it. Nothing happens if it does not wait
        (any more).
        """

    def withdraw(self, number: int) -> None:
        """Forgets one that waits; `on_withdrawn` follows. Nothing happens if it does not wait (any
        more), which has been or will be told.
        """

    def signal(self, number: int, signal_number: int) -> None:
        """Sends a signal to the first process group of a task, which has its grace then.

        One that has not begun yet, because its namespace is still being made, is ended at once.
        Nothing happens if there is no such task (any more).
        """

    def kill(self, number: int) -> None:
        """Ends a task and whatever it has started, as far as it can be found, at once."""

    def hear(self) -> None:
        """Tells now what has happened so far: the only call from which `Events` are told."""

    def orphans_of(self, number: int) -> list[int]:
        """The processes of a task that lost their parent and say that they belong to it."""

    async def close(self) -> None:
        """Ends everything that still runs, and gives everything back. Nobody is told."""
