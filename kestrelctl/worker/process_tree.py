"""The processes below a process, and the memory that they take together (proc(5))."""

from __future__ import annotations

import os

_MOST_THREADS = 5000
"""Of one process, that are asked for children: each costs as much as a process."""
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


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

    Those that lost their parent are not below it any more, unless it adopts them.
    """
    found = children(pid)
    for each in found:  # grows on the way
        if len(found) > most:
            break
        found += children(each)
    return found


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


def proportional_bytes(pids: list[int]) -> tuple[int, int]:
    """Memory of all of them with each shared page counted once: of their own, and shared files in
    memory (tmpfs, shm).

    This takes the kernel a walk over their page tables: for doubtful cases only. Where it is
    refused, the resident memory counts.
    """
    own = shared = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:
                fields = dict(line.split(b":", 1) for line in file.readall().splitlines()[1:])
            memory = _kilobytes(fields[b"Pss"])
            in_files = _kilobytes(fields.get(b"Pss_Shmem", b"0 kB"))
        except ProcessLookupError:
            continue
        except (OSError, KeyError, ValueError):
            own += resident_bytes([pid])
            continue
        own += memory - in_files
        shared += in_files
    return own, shared


def _kilobytes(text: bytes) -> int:
    return int(text.split()[0]) * 1024
