"""How much a task really used."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Sequence

from kestrelctl.worker.run.process_tree import held_bytes

_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_SLACK = 1024  # the kernel's counters are kept per processor and summed up roughly


def own_peak() -> int:
    """What `peak_bytes` compares with: a bound for what children inherit, in units of ru_maxrss."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _SLACK


def peak_bytes(max_rss: int, inherited: int, sampled_bytes: int) -> int:
    """Peak resident memory of an ended task.

    A child starts with the peak of its parent: exec adds the address space it leaves to the
    usage (Linux, fs/exec.c, exec_mmap), and after posix_spawn that is ours. So the kernel's figure
    counts only where it is larger than our own; below that there are the samples.

    Args:
        max_rss: `ru_maxrss` from wait4.
        inherited: `own_peak()`.
        sampled_bytes: largest `sample`.

    Returns:
        Bytes; 0 if it is not known.
    """
    return max_rss * _UNIT_BYTES if max_rss > inherited else sampled_bytes


def sample(pid: int) -> int:
    """High-water mark of a running process's resident memory, in bytes; 0 if it cannot be told.

    Source: proc(5), VmHWM in /proc/pid/status.
    """
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
            _, _, rest = file.read().partition(b"VmHWM:")
    except OSError:
        return 0
    return int(rest.split(maxsplit=1)[0]) * 1024 if rest else 0


def used_now(pids: Sequence[int]) -> tuple[float, int]:
    """What processes have used of processor time, in seconds, and hold of memory, in bytes.

    The time has that of children that they have waited for. The memory is that of `held_bytes`.
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
