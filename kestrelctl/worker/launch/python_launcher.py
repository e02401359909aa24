"""Starts the programs of tasks from this process.

It reaps every child of this process, so `subprocess` beside it works but learns no exit status. It
kills every orphan handed to this process; children that were there before it are left alone, and
so are later ones that stay in this process's session. It lives in the main thread, on the running
event loop, and changes the current directory of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from resource import RUSAGE_SELF, getrusage, struct_rusage

from kestrelctl.timer import Timer
from kestrelctl.worker.launch.launcher import (
    INIT_DESCRIPTOR,
    OPTIONS_DESCRIPTOR,
    STATUS_DESCRIPTOR,
    STATUS_FILE,
    Events,
    Launch,
    NotStarted,
    Order,
    ProgramEnded,
    Started,
    StartStep,
    Tree,
    check,
    read_status,
)
from kestrelctl.worker.own_files import NO_LINKS, OwnDirectory
from kestrelctl.worker.run.child_signal import ChildSignal
from kestrelctl.worker.run.orphans import (
    PR_SET_CHILD_SUBREAPER,
    Orphans,
    kill,
    kill_group,
    prctl,
)
from kestrelctl.worker.run.process_tree import children, descendants, init_of

FileActions = tuple[tuple[int, ...] | tuple[int, int, str, int, int], ...]

ORPHAN_SECONDS = 0.25
"""How often orphans are looked at while there are any."""
_ROUNDS = 20
"""How often what a task has started is looked for again while it is being killed."""
_MANY = 100_000
_GIVE_UP_SECONDS = 5.0
"""What still runs this long after it was killed, when the launcher is closed, is left to others."""
_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | NO_LINKS
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
_RSS_SLACK = 1024  # the kernel's counters are kept per processor and summed up roughly
_CHILD = re.compile(rb'"child-pid": (\d+)')


class _Task:
    """The program that runs of an attempt.

    Attributes:
        pid: the process that is waited for: the one that was started, or the init of its namespace.
        code: of the process that was started, once that has ended.
        has_own_init: whether `init.c` is the first process of its namespace.
    """

    __slots__ = (
        "code",
        "cpu_seconds",
        "has_own_init",
        "lane",
        "left_something",
        "max_rss",
        "number",
        "pid",
        "sandbox",
        "since",
    )

    def __init__(self, order: Order, pid: int, since: float) -> None:
        self.number = order.number
        self.sandbox = order.sandbox
        self.lane = order.lane
        self.has_own_init = bool(order.launch.init)
        self.pid = pid
        self.since = since
        self.code: int | None = None
        self.cpu_seconds = 0.0
        self.max_rss = 0
        self.left_something = False

    def add(self, usage: struct_rusage) -> None:
        self.cpu_seconds += usage.ru_utime + usage.ru_stime
        self.max_rss = max(self.max_rss, usage.ru_maxrss)


class PythonLauncher:
    """A `Launcher` that needs nothing but Python.

    Make it before other threads: they must not hear of the ends of children.

    Args:
        sandboxes: the directory that the sandboxes are in.
        tree: where the processes of tasks are.
        events: is told what happens.
    """

    name = "python"

    def __init__(self, sandboxes: OwnDirectory, tree: Tree, events: Events) -> None:
        self._loop = asyncio.get_running_loop()
        self._child_signal = ChildSignal(self._loop, self.hear)
        self._sandboxes = sandboxes
        self._tree = tree
        self._events = events
        self._tasks: dict[int, _Task] = {}  # by number
        self._by_pid: dict[int, _Task] = {}  # in order of start
        self._in_grace: set[int] = set()
        self._waiting: dict[int, Order] = {}  # by number
        self._untold: list[Callable[[], None]] = []
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._orphans = Orphans()
        self._looks_again = Timer(self.hear, self._loop)
        self._null = os.open(os.devnull, os.O_RDWR)
        self._home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._ignored_signals = [
            number
            for number in signal.valid_signals()
            if signal.getsignal(number) is signal.SIG_IGN
        ]

    # ---- starting

    def start(self, order: Order) -> None:
        check(order.launch)
        if order.waits:
            self._waiting[order.number] = order
        else:
            self._try(order)

    def begin(self, number: int) -> None:
        order = self._waiting.pop(number, None)
        if order is not None:
            self._try(order)

    def withdraw(self, number: int) -> None:
        if self._waiting.pop(number, None) is not None:
            self._tell_soon(partial(self._events.on_withdrawn, number))

    def _try(self, order: Order) -> None:
        """Starts a program; tells what is wrong."""
        try:
            self._start(order)
        except _StartError as failed:
            self._tell_soon(partial(self._events.on_not_started, failed.told))
        finally:
            if order.workdir:  # a user may want to unmount or remove it
                os.fchdir(self._home)

    def _give_place(self, lane: int) -> None:
        """Starts the next that waits in a lane."""
        order = next((each for each in self._waiting.values() if each.lane == lane), None)
        if order is not None:
            del self._waiting[order.number]
            now = time.monotonic()
            self._tell_soon(partial(self._events.on_begun, order.number, now))
            self._try(order)

    def _start(self, order: Order) -> None:
        number, launch = order.number, order.launch
        began = time.monotonic()
        try:
            self._enter(order)
        except OSError as error:
            raise _StartError(number, error, StartStep.SCRATCH) from error
        place = ".."
        if order.workdir:
            # Whoever may replace a directory on this path can lead the outputs astray: a job may
            # name a directory only where all tasks are the worker's owner's.
            place = f"{self._sandboxes.path}/{order.sandbox}"
            try:
                os.chdir(order.workdir)
            except OSError as error:
                raise _StartError(number, error, StartStep.WORKDIR) from error
        wall, since = time.time(), time.monotonic()  # it runs before the call returns
        try:
            with options_of(launch, place) as actions:
                pid = os.posix_spawn(
                    launch.program,
                    launch.argv,
                    launch.env,
                    file_actions=self._streams(order, place) + actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=self._ignored_signals,
                )
        except OSError as error:
            scratch = f"{self._sandboxes.path}/{order.sandbox}/scratch"
            is_there = not isinstance(error, FileNotFoundError) or os.path.isdir(scratch)
            step = StartStep.UNKNOWN if is_there else StartStep.SCRATCH
            raise _StartError(number, error, step) from error
        task = self._tasks[number] = self._by_pid[pid] = _Task(order, pid, since)
        started = Started(task.number, pid, wall, since, time.monotonic() - began)
        self._tell_soon(partial(self._events.on_started, started))

    def _enter(self, order: Order) -> None:
        """Makes the scratch directory the current one."""
        scratch = os.open(f"{order.sandbox}/scratch", _PATH, dir_fd=self._sandboxes.fd)
        try:
            state = os.fstat(scratch)
            if (state.st_dev, state.st_ino) != (order.device, order.inode):
                raise NotADirectoryError
            os.fchdir(scratch)
        finally:
            os.close(scratch)

    def _streams(self, order: Order, place: str) -> FileActions:
        """Descriptors 0, 1 and 2. The file of the last is opened, and so emptied, even where it is
        another name of the one before. O_NONBLOCK means nothing for a file, and an error where a
        FIFO would keep this process until somebody reads it."""
        flags = _APPEND if order.appends else _APPEND | os.O_TRUNC
        opened = [
            (os.POSIX_SPAWN_OPEN, 1, f"{place}/stdout", flags, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, f"{place}/stderr", flags, 0o600),
        ]
        joined = [(os.POSIX_SPAWN_DUP2, 1, 2)] if order.joins else []
        if not order.stdin_path:
            return ((os.POSIX_SPAWN_DUP2, self._null, 0), *opened, *joined)
        # Whoever waited for a writer of a FIFO would start nothing any more.
        reads = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        return ((os.POSIX_SPAWN_OPEN, 0, order.stdin_path, reads, 0), *opened, *joined)

    def _tell_soon(self, event: Callable[[], None]) -> None:
        if not self._untold:
            self._loop.call_soon(self._tell)
        self._untold.append(event)

    def _tell(self) -> None:
        untold, self._untold = iter(self._untold), []
        try:
            for event in untold:
                event()
        finally:
            left = list(untold)
            if left:  # one has failed: the others are told all the same, and in their order
                self._untold[:0] = left
                self._loop.call_soon(self._tell)

    # ---- signals

    def signal(self, number: int, signal_number: int) -> None:
        self._reap()  # the number of a process that was waited for may be anybody's
        task = self._tasks.get(number)
        if task is None:
            return
        if self._tree is Tree.GROUP:
            kill_group(task.pid, signal_number)
            self._in_grace.add(task.pid)
            return
        init = task.pid if task.code is not None else init_of(task.pid)
        if not init or not children(init):
            self.kill(number)
            return
        if task.has_own_init:  # it passes that on once it knows that the group has its grace
            kill(init, signal_number)
            return
        # The task's group is also the init's, which takes no notice (pid_namespaces(7)).
        with contextlib.suppress(ProcessLookupError):
            kill_group(os.getpgid(init), signal_number)

    def kill(self, number: int) -> None:
        self._reap()
        task = self._tasks.get(number)
        if task is None:
            return
        self._in_grace.discard(task.pid)
        if task.code is not None:
            kill(task.pid)
        elif self._tree is Tree.GROUP:
            _kill_below(task.pid)
        elif self._tree is Tree.INIT and (init := init_of(task.pid)):
            kill(init)
        else:
            kill_group(task.pid)
        self._loop.call_soon(self._reap)  # it may have ended long ago, and had its grace

    def hear(self) -> None:
        self._reap()
        self._tell()

    def orphans_of(self, number: int) -> list[int]:
        return self._orphans.of(number)

    # ---- ending

    def _reap(self) -> None:
        over: list[_Task] = []
        if self._in_grace:
            for child in self._ended_beside_graces():
                self._take(*child, over)
        else:
            with contextlib.suppress(ChildProcessError):
                while True:
                    pid, status, usage = os.wait4(-1, os.WNOHANG)
                    if not pid:
                        break
                    self._take(pid, status, usage, over)
        now = time.monotonic()
        self._orphans.look(self._by_pid, now)
        inherited = getrusage(RUSAGE_SELF).ru_maxrss + _RSS_SLACK
        for task in over:
            del self._tasks[task.number]
            if task.lane and self._waiting:
                self._give_place(task.lane)
            self._tell_soon(partial(self._events.on_ended, self._end_of(task, inherited, now)))
        if self._orphans:
            oldest = next((task.since for task in self._by_pid.values()), math.inf)
            self._orphans.kill_finished(self._tasks.__contains__, oldest)
            self._looks_again.set_once(ORPHAN_SECONDS)

    def _end_of(self, task: _Task, inherited: int, now: float) -> ProgramEnded:
        """Makes the event for the end of a task.

        Args:
            inherited: the most that a child has of memory because its parent had it. A child starts
                with the peak of its parent: exec adds the address space it leaves to the usage
                (Linux, fs/exec.c, exec_mmap), and after posix_spawn that is ours.
        """
        assert task.code is not None
        left = task.left_something
        if self._orphans:
            left = left or self._orphans.may_write(task.number)
        peak_bytes = task.max_rss * _RSS_UNIT_BYTES if task.max_rss > inherited else 0
        return ProgramEnded(task.number, task.code, now, task.cpu_seconds, peak_bytes, left)

    def _take(self, pid: int, status: int, usage: struct_rusage, over: list[_Task]) -> None:
        """Notes the end of a child; adds its task to `over` if nothing more is waited for."""
        self._orphans.reaped(pid)
        task = self._by_pid.pop(pid, None)
        if task is None:
            return
        # At once, before the group's id can belong to anybody else.
        task.left_something |= kill_group(pid)
        task.add(usage)
        if task.code is not None:
            over.append(task)
            return
        task.code = os.waitstatus_to_exitcode(status)
        init = 0
        if self._tree is Tree.INIT:
            init = self._init_left_by(task)
        if init:
            task.pid = init
            self._by_pid[init] = task
            self._orphans.reaped(init)
        else:
            over.append(task)

    def _init_left_by(self, task: _Task) -> int:
        """The init of the namespace that a sandbox program made; 0 if it is not waited for.

        The monitor ends with the task, and does not wait for the init. The init dies of that
        (--die-with-parent), with all that the task has left, and is the one that knows how much
        processor time was used.
        """
        told = _CHILD.search(read_status(f"{self._sandboxes.path}/{task.sandbox}"))
        if told is None:  # it has failed before it made one
            return 0
        init = int(told[1])
        try:
            os.waitid(os.P_PID, init, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # the monitor has seen it die
            return 0
        return init

    def _ended_beside_graces(self) -> Iterator[tuple[int, int, struct_rusage]]:
        """Waits for the children that have ended (wait4), while groups have their grace.

        The leader of such a group is waited for when nobody else of it lives: until then nobody
        else can have the group's id, and the task is not over.
        """
        for pid in {*self._orphans.children(), *self._by_pid}:
            if pid not in self._in_grace:
                yield from _waited_for(pid)
        ended = {pid for pid in self._in_grace if _has_ended(pid)}
        for pid in ended - self._orphans.living_groups(ended, self._by_pid):
            self._in_grace.discard(pid)
            yield from _waited_for(pid)

    async def close(self) -> None:
        self._events = _NOBODY
        self._untold.clear()
        self._waiting.clear()
        give_up = time.monotonic() + _GIVE_UP_SECONDS
        while (self._tasks or self._orphans) and time.monotonic() < give_up:
            for number in list(self._tasks):
                self.kill(number)
            self._orphans.kill_all()
            await asyncio.sleep(0.005)
        self._looks_again.stop()
        self._child_signal.close()
        self._orphans.close()
        prctl(PR_SET_CHILD_SUBREAPER, 0)
        os.fchdir(self._home)
        os.close(self._home)
        os.close(self._null)


class _StartError(Exception):
    """A program could not be started."""

    def __init__(self, number: int, error: OSError, step: StartStep) -> None:
        super().__init__(str(error))
        self.told = NotStarted(number, error.errno or errno.ESTALE, step)


class _Nobody:
    """Receives the events of a closed launcher, and does nothing."""

    def on_begun(self, number: int, at: float) -> None: ...

    def on_started(self, started: Started) -> None: ...

    def on_not_started(self, failure: NotStarted) -> None: ...

    def on_withdrawn(self, number: int) -> None: ...

    def on_ended(self, ended: ProgramEnded) -> None: ...


_NOBODY = _Nobody()


@contextlib.contextmanager
def options_of(launch: Launch, place: str) -> Iterator[FileActions]:
    """The file actions of posix_spawn by which a sandbox program gets what it needs.

    Args:
        place: the directory of the sandbox.
    """
    actions: FileActions = ()
    if launch.has_status:
        # A new one each time: a task may have put something else in the place of the last.
        status, writes = f"{place}/{STATUS_FILE}", os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with contextlib.suppress(OSError):
            os.unlink(status)
        actions += ((os.POSIX_SPAWN_OPEN, STATUS_DESCRIPTOR, status, writes, 0o600),)
    if launch.init:
        actions += ((os.POSIX_SPAWN_OPEN, INIT_DESCRIPTOR, launch.init, os.O_RDONLY, 0),)
    if not launch.options:
        yield actions
        return
    descriptor = os.memfd_create("options")
    try:
        os.write(descriptor, launch.options)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield ((os.POSIX_SPAWN_DUP2, descriptor, OPTIONS_DESCRIPTOR), *actions)
    finally:
        os.close(descriptor)


def _kill_below(pid: int) -> None:
    # Its group first: within that a signal reaches also what is being forked. The leader stays this
    # process's child until it is reaped, but what it had started is this process's then.
    others = descendants(pid, _MANY)
    kill_group(pid)
    for _ in range(_ROUNDS):
        if not others:
            break
        below = [child for each in others for child in descendants(each, _MANY)]
        for each in others:
            kill(each)
        others = below


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped."""
    with contextlib.suppress(ChildProcessError):
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, pid, options) is not None
    return True


def _waited_for(pid: int) -> Iterator[tuple[int, int, struct_rusage]]:
    """Reaps a child that has ended; yields nothing if it has not."""
    with contextlib.suppress(ChildProcessError):
        child = os.wait4(pid, os.WNOHANG)
        if child[0]:
            yield child
