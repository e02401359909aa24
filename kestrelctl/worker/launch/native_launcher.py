"""Has the programs of tasks started by a small program of ours, which is written in C.

Between the end of one task and the start of the next no Python runs, and a child begins with the
memory of that program instead of this process's: so its peak is known. What both say to each other
is defined in `launcher.c`.

The program is a child of this process, and the parent of all tasks. When this process ends, it ends
them. When it ends itself, or does not answer, nothing is known of its tasks any more: then the
worker has to end, too, and its keeper ends what they have left.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kestrelctl.timer import Timer
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
from kestrelctl.worker.run.orphans import kill
from kestrelctl.worker.run.process_tree import descendants

log = logging.getLogger(__name__)

_LENGTH = struct.Struct("=I")
_START = struct.Struct("=cQQQIBIII")
_NUMBER = struct.Struct("=cQ")
_SIGNAL = struct.Struct("=cQI")
_ANSWER = struct.Struct("=cBHiQiIddddQ")
_APPENDS, _JOINS, _WAITS, _HAS_STATUS = 1, 2, 4, 8
_MOST_BYTES = 32 << 20
"""Of one request: the kernel takes less for one program."""
_READ_BYTES = 1 << 16

PATIENCE_SECONDS = 5.0
"""A program that says nothing so long, while tasks run, is asked whether it is there. If it does
not answer, it is continued, because a task of the same user may have stopped it; after GIVE_UP of
these it counts as dead."""
GIVE_UP = 4
_CLOSE_SECONDS = 15.0
_WAITED_SECONDS = 1.0
"""Between the end of its socket and its own."""
_MANY = 100_000


def end_worker(why: str) -> None:
    """Kills this worker at once, by SIGKILL; its keeper ends what it leaves.

    The pool counts that as a loss of what ran, and finds out which task it was that ends workers.
    """
    log.critical("%s; so does this worker", why)
    os.kill(os.getpid(), signal.SIGKILL)


class NativeLauncher:
    """A `Launcher` whose work is done by another program.

    Args:
        program: its file.
        sandboxes: the directory that the sandboxes are in.
        tree: where the processes of tasks are.
        events: is told what happens.
        on_death: called with the reason when nothing is known of its tasks any more.

    Raises:
        OSError: the program cannot be started.
    """

    name = "native"

    def __init__(
        self,
        program: Path,
        sandboxes: OwnDirectory,
        tree: Tree,
        events: Events,
        on_death: Callable[[str], None] = end_worker,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._events = events
        self._on_death = on_death
        self._unsent: list[bytes] = []
        self._received = b""
        self._numbers: set[int] = set()  # of those whose end was not told
        self._orphans: dict[int, set[int]] = {}  # by attempt
        self._timer = Timer(self._look_after, self._loop)
        self._heard_at = 0.0
        self._unanswered = 0
        self._watches_room = False
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        with theirs:
            words: list[str | Path] = [
                program,
                str(theirs.fileno()),
                str(int(tree)),
                sandboxes.path,
            ]
            try:
                self._process = subprocess.Popen(
                    words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env={}
                )
            except OSError:
                self._socket.close()
                raise
        self._loop.add_reader(self._socket, self.hear)

    # ---- asking

    def start(self, order: Order) -> None:
        request = _encoded(order)
        self._numbers.add(order.number)
        self._send(request)
        if not self._timer.is_set:
            self._heard_at = self._loop.time()
            self._timer.set(PATIENCE_SECONDS)

    def begin(self, number: int) -> None:
        self._send(_NUMBER.pack(b"g", number))

    def withdraw(self, number: int) -> None:
        self._send(_NUMBER.pack(b"w", number))

    def signal(self, number: int, signal_number: int) -> None:
        if number in self._numbers:
            self._send(_SIGNAL.pack(b"t", number, signal_number))

    def kill(self, number: int) -> None:
        if number in self._numbers:
            self._send(_NUMBER.pack(b"k", number))

    def orphans_of(self, number: int) -> list[int]:
        return list(self._orphans.get(number, ()))

    def _send(self, request: bytes) -> None:
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += (_LENGTH.pack(len(request)), request)

    def _flush(self) -> None:
        if self._socket.fileno() < 0:
            return
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
        if self._socket.fileno() < 0:
            return
        while True:
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                break
            except ConnectionResetError:
                data = b""
            if not data:
                self._die("has ended")
                return
            self._received += data
            self._heard_at = self._loop.time()
            self._unanswered = 0
            if len(data) < _READ_BYTES:
                break
        whole = len(self._received) - len(self._received) % _ANSWER.size
        answers, self._received = self._received[:whole], self._received[whole:]
        untold = _ANSWER.iter_unpack(answers)
        try:
            for answer in untold:
                self._tell(*answer)
        finally:
            left = b"".join(_ANSWER.pack(*answer) for answer in untold)
            if left:  # one has failed: the others are told all the same
                self._received = left + self._received
                self._loop.call_soon(self.hear)

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
            self._events.on_started(Started(number, pid, wall, at, took_seconds))
        elif kind == b"e":
            self._numbers.discard(number)
            status = os.waitstatus_to_exitcode(code)
            self._events.on_ended(
                ProgramEnded(number, status, at, cpu_seconds, peak_bytes, bool(flags))
            )
        elif kind == b"n":
            self._numbers.discard(number)
            self._events.on_not_started(NotStarted(number, code, StartStep(step)))
        elif kind == b"b":
            self._events.on_begun(number, at)
        elif kind == b"w":
            self._numbers.discard(number)
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
        if not self._numbers:
            return
        if self._loop.time() - self._heard_at >= PATIENCE_SECONDS:
            if self._unanswered >= GIVE_UP:
                self._die("does not answer")
                return
            if self._unanswered:
                kill(self._process.pid, signal.SIGCONT)
            self._unanswered += 1
            self._send(_NUMBER.pack(b"p", 0))
        self._timer.set(PATIENCE_SECONDS)

    def _die(self, what: str) -> None:
        self._give_back()
        code = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(_WAITED_SECONDS if what == "has ended" else 0.0)
        how = "" if code is None else f": signal {-code}" if code < 0 else f": exit code {code}"
        self._on_death(f"the launcher {what}{how}")

    def _give_back(self) -> None:
        if self._socket.fileno() < 0:
            return
        self._timer.stop()
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()

    async def close(self) -> None:
        self._give_back()  # it ends with that, and everything that runs with it
        give_up = time.monotonic() + _CLOSE_SECONDS
        while self._process.poll() is None and time.monotonic() < give_up:
            kill(self._process.pid, signal.SIGCONT)
            await asyncio.sleep(0.005)
        if self._process.poll() is None:
            for pid in [*descendants(self._process.pid, _MANY), self._process.pid]:
                kill(pid)
            self._process.wait()


def _encoded(order: Order) -> bytes:
    """Makes the request by which a program is started.

    Raises:
        ValueError: it holds what no kernel accepts.
        OSError: it is longer than any kernel accepts.
    """
    launch = order.launch
    variables = check(launch)
    words = (order.sandbox, launch.program, launch.init, order.workdir, order.stdin_path)
    body = os.fsencode("\0".join((*words, *launch.argv, *variables, "")))
    head = _START.pack(
        b"s",
        order.number,
        order.device,
        order.inode,
        order.lane,
        _APPENDS * order.appends
        + _JOINS * order.joins
        + _WAITS * order.waits
        + _HAS_STATUS * launch.has_status,
        len(launch.argv),
        len(variables),
        len(launch.options),
    )
    if len(head) + len(body) + len(launch.options) > _MOST_BYTES:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))
    return head + body + launch.options
