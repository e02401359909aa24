"""Adopts processes that lost their parent, finds them, and kills them.

A task may start a daemon: fork twice, setsid, and no process group or parent leads back to it.
On Linux a *subreaper* becomes the parent of every such orphan below it (prctl(2),
PR_SET_CHILD_SUBREAPER). Elsewhere orphans go to init and only the task's own process group is
killed.

The keeper uses this module before anything else is loaded: it imports only what is small.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Container, Sized
from typing import Protocol

from kestrelctl.worker.run.process_tree import descendants

ATTEMPT_VARIABLE = "KESTREL_ATTEMPT_ID"
"""Environment variable with the number of the attempt that a process belongs to."""

SCRATCH_VARIABLE = "KESTREL_SCRATCH"
"""Environment variable that names the scratch directory of a task."""

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

_MARK = f"{ATTEMPT_VARIABLE}=".encode()
_MOST_DIGITS = 20
"""Of an attempt number: a task can write any text in the place of it."""
_MOST_BELOW = 10_000
"""Below one orphan, that are looked at for their group."""


def prctl(option: int, value: int) -> bool:
    """Calls prctl(2). Returns False where it does not exist or refuses."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


class Children:
    """The list of processes whose parent is the main thread of this process.

    Source: proc(5), /proc/pid/task/tid/children. The list is exact for us, because an entry
    leaves it only when we reap it. Without CONFIG_PROC_CHILDREN, or off Linux, it is always empty.
    """

    def __init__(self) -> None:
        try:
            path = f"/proc/self/task/{os.getpid()}/children"
            self._descriptor: int | None = os.open(path, os.O_RDONLY)
        except OSError:
            self._descriptor = None

    def listing(self) -> bytes:
        """Process ids in decimal, each followed by one space; about 0.1 µs a child."""
        if self._descriptor is None:
            return b""
        listing = chunk = os.pread(self._descriptor, 65536, 0)
        while chunk:
            chunk = os.pread(self._descriptor, 65536, len(listing))
            listing += chunk
        return listing

    def close(self) -> None:
        """Gives the descriptor back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


class Processes(Container[int], Sized, Protocol):
    """Process ids, asked only for membership and number."""


class Orphans:
    """The orphans handed to this process, and the attempt each belongs to.

    Children that exist already when this is made are nobody's orphans.
    """

    def __init__(self) -> None:
        self._children = Children()
        self._foreign = set(map(int, self._children.listing().split()))
        self._attempts: dict[int, int | None] = {}
        self._found_at: dict[int, float] = {}

    def look(self, own: Processes, now: float) -> None:
        """Notices new orphans.

        Args:
            own: ids of the children this process started and has not reaped.
            now: seconds, on the clock that `kill_finished` is asked with.
        """
        listing = self._children.listing()
        if listing.count(b" ") == len(own) + len(self._attempts) + len(self._foreign):
            return
        present = set(map(int, listing.split()))
        self._foreign &= present
        for pid in present:
            if pid in own or pid in self._attempts or pid in self._foreign:
                continue
            if _in_our_session(pid):
                self._foreign.add(pid)
            else:
                self._attempts[pid] = attempt_of(pid)
                self._found_at[pid] = now

    def children(self) -> list[int]:
        """All children of this process, also those that have ended and were not waited for."""
        return [int(pid) for pid in self._children.listing().split()]

    def living_groups(self, leaders: set[int], own: Container[int]) -> set[int]:
        """The process groups whose leaders have ended, but in which somebody lives.

        What a leader leaves is handed to this process as it ends. A process of its group may also
        be below one that has left the group.

        Args:
            leaders: of the groups that are asked about.
            own: ids of the children this process started and has not reaped, leaders included.
        """
        if not leaders:
            return set()
        groups = {pid: group_of(pid) for pid in self.children() if pid not in own}
        found = leaders.intersection(groups.values())
        for pid, group in groups.items():
            if len(found) == len(leaders):
                break
            if group not in leaders:
                found |= leaders.intersection(map(group_of, descendants(pid, _MOST_BELOW)))
        return found

    def reaped(self, pid: int) -> None:
        """Forgets a process that was waited for."""
        self._foreign.discard(pid)
        self._attempts.pop(pid, None)
        self._found_at.pop(pid, None)

    def kill_finished(self, is_running: Callable[[int], bool], oldest_start: float) -> None:
        """Kills the orphans whose attempt is over.

        An orphan that names no attempt (it cleared its environment) belongs to one of the
        attempts that ran when it was found, so it dies when all of those are over.

        Args:
            is_running: whether the attempt with this number runs.
            oldest_start: when the oldest running attempt started; infinity if none runs.
        """
        for pid, number in self._attempts.items():
            over = oldest_start > self._found_at[pid] if number is None else not is_running(number)
            if over:
                kill(pid)

    def may_write(self, number: int) -> bool:
        """Whether an orphan exists that belongs, or may belong, to this attempt."""
        return any(owner is None or owner == number for owner in self._attempts.values())

    def of(self, number: int) -> list[int]:
        """The orphans that say they belong to this attempt."""
        return [pid for pid, owner in self._attempts.items() if owner == number]

    def kill_all(self) -> None:
        """Kills every orphan known."""
        for pid in self._attempts:
            kill(pid)

    def close(self) -> None:
        """Gives the descriptor back."""
        self._children.close()

    def __len__(self) -> int:
        return len(self._attempts)


def _in_our_session(pid: int) -> bool:
    # Tasks are started with setsid and nothing can join a foreign session: whoever is in our
    # own session was started by this program for itself.
    try:
        return os.getsid(pid) == os.getsid(0)
    except ProcessLookupError:
        return False


def attempt_of(pid: int) -> int | None:
    """The attempt number in a process's environment; None if it says none or cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            environment = file.read()
    except OSError:
        return None
    for entry in environment.split(b"\0"):
        digits = entry.removeprefix(_MARK)
        if digits != entry and digits.isdigit() and len(digits) <= _MOST_DIGITS:
            return int(digits)
    return None


def group_of(pid: int) -> int:
    """The process group of a process; 0 if it is gone."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Signals one process; no error if it is gone or not ours to kill."""
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def kill_group(leader: int, number: int = signal.SIGKILL) -> bool:
    """Signals a process group. Returns whether anybody was in it."""
    try:
        os.killpg(leader, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
