"""Measures how much a task really used."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kestrelctl.worker.run.process_tree import held_bytes

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def sample(pid: int) -> int:
    """High-water mark of a running process's resident memory, in bytes; 0 if it cannot be told.

    Source: proc(5), VmHWM in /proc/pid/status.
    """
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            # The name of the process, which may hold anything, stands before it in one line.
            _, _, rest = file.read().partition(b"\nVmHWM:")
    except OSError:
        return 0
    return int(rest.split(maxsplit=1)[0]) * 1024 if rest else 0


def used_now(pids: Sequence[int]) -> tuple[float, int]:
    """Returns the processor time that processes used, in seconds, and the memory held, in bytes.

    The time includes that of children they have waited for. The memory is that of `held_bytes`.
    Source: proc(5), /proc/pid/stat.
    """
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
                fields = file.read().rpartition(b")")[2].split()  # a name may hold anything
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_SECOND, held_bytes(pids)
