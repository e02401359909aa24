"""Has the programs of tasks started by a small program of ours, which is written in C.

Between the end of one task and the start of the next no Python runs, and a child begins with the
memory of that program instead of this process's: so its peak is told. What both say to each other
is defined in `launcher.c`.

The program is a child of this process, and the parent of all tasks. When this process ends, it ends
them. When it ends itself, its tasks are handed to this process, which kills them: their attempts
have ended then, and another program is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from kestrelctl.core.model.end_reason import EndKind
from kestrelctl.worker.launch.launcher import (
    Events,
    NotStarted,
    Order,
    ProgramEnded,
    Started,
    StartStep,
    Tree,
    check,
)
from kestrelctl.worker.own_files import OwnDirectory
from kestrelctl.worker.run.orphans import PR_SET_CHILD_SUBREAPER, kill, prctl
from kestrelctl.worker.run.process_tree import children, descendants

log = logging.getLogger(__name__)

_LENGTH = struct.Struct("=I")
_START = struct.Struct("=cQQQIBIII")
_NUMBER = struct.Struct("=cQ")
_SIGNAL = struct.Struct("=cQI")
_ANSWER = struct.Struct("=cBHiQiIddddQ")
_APPENDS, _JOINS, _WAITS = 1, 2, 4
_MOST_BYTES = 32 << 20
"""Of one request: the kernel takes less for one program."""
_READ_BYTES = 1 << 16

PATIENCE_SECONDS = 5.0
"""A program that says nothing so long, while tasks run, is asked whether it is there. If it does
not answer, it is continued, because a task of the same user may have stopped it; after GIVE_UP of
these it is replaced."""
GIVE_UP = 4
PAUSE_SECONDS = 1.0
"""Between two starts of the program, if the first ends at once."""
_CLOSE_SECONDS = 15.0
_NAME = "kestrel-launche"
"""Of the program and of what it has not executed yet; the kernel keeps 15 characters."""
_MANY = 100_000


class NativeLauncher:
    """A `Launcher` whose work is done by another program.

    Args:
        program: its file.
        sandboxes: the directory that the sandboxes are in.
        tree: where the processes of tasks are.
        events: is told what happens.

    Raises:
        OSError: the program cannot be started.
    """

    name = "native"

    def __init__(self, program: Path, sandboxes: OwnDirectory, tree: Tree, events: Events) -> None:
        self._loop = asyncio.get_running_loop()
        self._argv = [str(program), "", str(int(tree)), str(sandboxes.path)]
        self._events = events
        self._unsent: list[bytes] = []
        self._received = b""
        # Of those nothing was told yet: what has to be said again to another program.
        self._ordered: dict[int, bytes] = {}
        self._running: dict[int, None] = {}
        self._orphans: dict[int, set[int]] = {}  # by attempt
        self._timer: asyncio.TimerHandle | None = None
        self._starts_again: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._unanswered = 0
        self._watches_room = False
        prctl(PR_SET_CHILD_SUBREAPER, 1)  # for what a program that was killed has left
        self._socket: socket.socket | None = None
        self._begun_at = -math.inf
        self._begin()

    def _begin(self) -> None:
        self._begun_at = self._heard_at = self._loop.time()
        self._unanswered = 0
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._argv[1] = str(theirs.fileno())
            self._process = subprocess.Popen(
                self._argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={}
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket = ours
        self._received = b""
        self._watches_room = False
        self._loop.add_reader(ours, self.hear)
        self._flush()

    def _begin_again(self) -> None:
        """Starts another program, but not many of them in a second."""
        soon = self._begun_at + PAUSE_SECONDS - self._loop.time()
        if soon <= 0:
            try:
                self._begin()
            except OSError as error:
                log.error("the launcher does not start: %s", error)
                soon = PAUSE_SECONDS
            else:
                return
        self._starts_again = self._loop.call_later(soon, self._begin_again)

    # ---- asking

    def start(self, order: Order) -> None:
        request = _encoded(order)
        self._ordered[order.number] = request if order.waits else b""
        self._send(request)
        if self._timer is None:
            self._heard_at = self._loop.time()
            self._timer = self._loop.call_later(PATIENCE_SECONDS, self._look_after)

    def begin(self, number: int) -> None:
        if number in self._ordered:
            self._ordered[number] = b""
        self._send(_NUMBER.pack(b"g", number))

    def withdraw(self, number: int) -> None:
        self._send(_NUMBER.pack(b"w", number))

    def signal(self, number: int, signal_number: int) -> None:
        if number in self._ordered or number in self._running:
            self._send(_SIGNAL.pack(b"t", number, signal_number))

    def kill(self, number: int) -> None:
        if number in self._ordered or number in self._running:
            self._send(_NUMBER.pack(b"k", number))

    def orphans_of(self, number: int) -> list[int]:
        return list(self._orphans.get(number, ()))

    def _send(self, request: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += (_LENGTH.pack(len(request)), request)

    def _flush(self) -> None:
        if self._socket is None:
            return  # until another program is there
        data = b"".join(self._unsent)
        self._unsent.clear()
        while data:
            try:
                data = data[self._socket.send(data) :]
            except BlockingIOError:
                break
            except OSError:  # it has ended; reading tells that
                data = b""
        if data:
            self._unsent.append(data)
        if bool(data) != self._watches_room:
            self._watches_room = bool(data)
            if data:
                self._loop.add_writer(self._socket, self._flush)
            else:
                self._loop.remove_writer(self._socket)

    # ---- hearing

    def hear(self) -> None:
        if self._socket is None:
            return
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data = self._socket.recv(_READ_BYTES)
                except ConnectionResetError:
                    data = b""
                if not data:
                    self._replace("has ended")
                    return
                self._received += data
                if len(data) < _READ_BYTES:
                    break
        self._heard_at = self._loop.time()
        self._unanswered = 0
        whole = len(self._received) - len(self._received) % _ANSWER.size
        answers, self._received = self._received[:whole], self._received[whole:]
        for answer in _ANSWER.iter_unpack(answers):
            self._tell(*answer)

    def _tell(
        self,
        kind: bytes,
        flags: int,
        step: int,
        code: int,
        number: int,
        pid: int,
        reserved: int,
        wall: float,
        at: float,
        took_seconds: float,
        cpu_seconds: float,
        peak_bytes: int,
    ) -> None:
        if kind == b"s":
            self._ordered.pop(number, None)
            self._running[number] = None
            self._events.on_started(Started(number, pid, wall, at, took_seconds))
        elif kind == b"e":
            self._running.pop(number, None)
            status = os.waitstatus_to_exitcode(code)
            self._events.on_ended(
                ProgramEnded(number, status, at, cpu_seconds, peak_bytes, bool(flags))
            )
        elif kind == b"n":
            self._ordered.pop(number, None)
            self._events.on_not_started(NotStarted(number, code, StartStep(step)))
        elif kind == b"b":
            self._ordered[number] = b""
            self._events.on_begun(number, at)
        elif kind == b"w":
            self._ordered.pop(number, None)
            self._events.on_withdrawn(number)
        elif kind == b"o" and flags:
            self._orphans.setdefault(number, set()).add(pid)
        elif kind == b"o":
            left = self._orphans.get(number, set())
            left.discard(pid)
            if not left:
                self._orphans.pop(number, None)

    # ---- a program that does not answer, or has ended

    def _look_after(self) -> None:
        self._timer = None
        if not (self._ordered or self._running):
            return
        if self._socket is not None and self._loop.time() - self._heard_at >= PATIENCE_SECONDS:
            if self._unanswered >= GIVE_UP:
                self._replace("does not answer")
                return
            if self._unanswered:
                kill(self._process.pid, signal.SIGCONT)
            self._unanswered += 1
            self._send(_NUMBER.pack(b"p", 0))
        self._timer = self._loop.call_later(PATIENCE_SECONDS, self._look_after)

    def _replace(self, what: str) -> None:
        """Ends the program and its tasks, tells that, and starts another."""
        self._give_back()
        below = descendants(self._process.pid, _MANY)
        kill(self._process.pid)
        for pid in below:
            kill(pid)
        self._end_adopted()
        code = self._process.poll()
        how = "" if code is None else f": signal {-code}" if code < 0 else f": exit code {code}"
        why = EndKind.NO_RESOURCES.text(f"the launcher {what}{how}")
        log.error("%s; %d tasks have ended with it", why, len(self._running))
        ordered, self._ordered = self._ordered, {}
        running, self._running = self._running, {}
        self._orphans.clear()
        self._unsent.clear()
        for number, waits in ordered.items():
            if waits:
                self._ordered[number] = waits
                self._send(waits)
            else:
                self._events.on_not_started(NotStarted(number, errno.EAGAIN, StartStep.UNKNOWN))
        for number in running:
            now = time.monotonic()
            self._events.on_ended(ProgramEnded(number, -signal.SIGKILL, now, 0.0, 0, True, why))
        self._begin_again()

    def _give_back(self) -> None:
        for timer in (self._timer, self._starts_again):
            if timer is not None:
                timer.cancel()
        self._timer = self._starts_again = None
        if self._socket is None:
            return
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        self._socket = None

    async def close(self) -> None:
        self._give_back()  # it ends with that, and everything that runs with it
        give_up = time.monotonic() + _CLOSE_SECONDS
        while self._process.poll() is None and time.monotonic() < give_up:
            kill(self._process.pid, signal.SIGCONT)
            await asyncio.sleep(0.005)
        if self._process.poll() is None:
            for pid in [*descendants(self._process.pid, _MANY), self._process.pid]:
                kill(pid)
        self._end_adopted()
        prctl(PR_SET_CHILD_SUBREAPER, 0)

    def _end_adopted(self) -> None:
        """Kills and waits for the children that this process was handed by a program that ended.

        Those of its own session it has started itself, unless they are that program's, which have
        not become a task yet.
        """
        for _ in range(1000):
            has_ended = self._process.poll() is not None
            adopted = [pid for pid in children(os.getpid()) if self._is_adopted(pid)]
            if has_ended and not adopted:
                return
            for pid in adopted:
                kill(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)

    def _is_adopted(self, pid: int) -> bool:
        if pid == self._process.pid:
            return False
        try:
            name = Path(f"/proc/{pid}/comm").read_text()
            return os.getsid(pid) != os.getsid(0) or name.startswith(_NAME)
        except (OSError, ValueError):
            return True  # it is over, but perhaps not waited for


def _encoded(order: Order) -> bytes:
    """The request by which a program is started.

    Raises:
        ValueError: it holds what no kernel accepts.
        OSError: it is longer than any kernel accepts.
    """
    launch = order.launch
    variables = check(launch)
    words = (order.sandbox, launch.program, order.workdir, order.stdin_path)
    body = os.fsencode("\0".join((*words, *launch.argv, *variables, "")))
    head = _START.pack(
        b"s",
        order.number,
        order.device,
        order.inode,
        order.lane,
        _APPENDS * order.appends + _JOINS * order.joins + _WAITS * order.waits,
        len(launch.argv),
        len(variables),
        len(launch.options),
    )
    if len(head) + len(body) + len(launch.options) > _MOST_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    return head + body + launch.options
