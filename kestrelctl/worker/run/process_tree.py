"""The processes below a process, and the memory that they take together (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

_MOST_THREADS = 5000
"""Of one process, that are asked for children: each costs as much as a process."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PROPORTIONAL = (b"Pss_Anon", b"Pss_Shmem", b"Pss_File")


def children(pid: int) -> list[int]:
    """Children of a process, of all its threads; empty if it is gone or the kernel does not say."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for thread in threads[:_MOST_THREADS]:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
                found += map(int, file.readall().split())
        except OSError:  # the thread has ended meanwhile
            continue
    return found


def descendants(pid: int, most: int) -> list[int]:
    """Everything below a process, without itself. The search ends once more than `most` are found.

    Processes that lost their parent are not below it any more, unless it adopts them.
    """
    found = children(pid)
    for each in found:  # grows on the way
        if len(found) > most:
            break
        found += children(each)
    return found


def init_of(monitor: int) -> int:
    """The init of a task's process namespace, whose monitor this is; 0 if there is none (yet)."""
    return next(iter(children(monitor)), 0)


def thread_count(pids: list[int]) -> int:
    """Threads of all of them: a process is one at least. Each takes a process id of the machine."""
    total = 0
    for pid in pids:
        try:
            total += os.stat(f"/proc/{pid}/task").st_nlink - 2
        except OSError:
            continue
    return total


def resident_bytes(pids: list[int]) -> int:
    """Resident memory of all of them; pages that they share count several times."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm", "rb", buffering=0) as file:
                total += int(file.read().split()[1])
        except (OSError, IndexError):
            continue
    return total * _PAGE_BYTES


def held_bytes(pids: Sequence[int]) -> int:
    """Anonymous and shared memory of all of them; what they share counts several times.

    Pages of files are not theirs: the kernel takes them back when it needs room. Source: proc(5),
    /proc/pid/status.
    """
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
                lines = file.read().split(b"\n")  # a name may hold any other end of a line
        except OSError:
            continue
        total += sum(
            _kilobytes(line.partition(b":")[2])
            for line in lines
            if line.startswith((b"RssAnon:", b"RssShmem:"))
        )
    return total


class ExactMemory(NamedTuple):
    """The memory of processes together, each page that they share counted once.

    Attributes:
        anonymous_bytes: of no file.
        shared_bytes: of files that are in memory only (tmpfs, shm).
        file_bytes: of other files, which the kernel can take back.
    """

    anonymous_bytes: int
    shared_bytes: int
    file_bytes: int


def exact_memory(pids: Sequence[int]) -> ExactMemory:
    """Memory of all of them with each shared page counted once.

    The kernel walks over their page tables for this: it is for doubtful cases only. Where it is
    refused, or not told so exactly, what they hold counts as anonymous. Source: proc(5),
    /proc/pid/smaps_rollup.
    """
    anonymous = shared = in_files = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
                fields = dict(line.split(b":", 1) for line in file.readall().splitlines()[1:])
            of_each = [_kilobytes(fields[name]) for name in _PROPORTIONAL]
        except ProcessLookupError:
            continue
        except (OSError, KeyError, ValueError):
            anonymous += held_bytes([pid])
            continue
        anonymous += of_each[0]
        shared += of_each[1]
        in_files += of_each[2]
    return ExactMemory(anonymous, shared, in_files)


def _kilobytes(text: bytes) -> int:
    return int(text.split()[0]) * 1024
