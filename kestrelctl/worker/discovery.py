"""Finds out what this machine offers, within the limits that hold for this process."""

from __future__ import annotations

import math
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from kestrelctl.checkout import own_version

#: The largest part of what is free on the disk when a worker starts that tasks may take.
MOST_OF_FREE_DISK = 0.5
#: The same for what is kept of their inputs.
MOST_OF_FREE_DISK_FOR_INPUTS = 0.2


class Machine(msgspec.Struct, frozen=True):
    """The facts a worker advertises.

    Args:
        hostname: as the machine calls itself.
        os: kernel name, such as Linux.
        arch: machine type, such as x86_64.
        distribution: such as debian; empty if the machine does not say.
        python_version: of the interpreter that runs the worker.
        kestrel_version: of the worker.
        cpus: processors this process may use, at least 1.
        memory_bytes: memory this process may use.
    """

    hostname: str
    os: str
    arch: str
    python_version: str
    kestrel_version: str
    cpus: int
    memory_bytes: int
    distribution: str = ""


def machine_tags(machine: Machine) -> tuple[str, ...]:
    """The tags of every worker: what programs are made for, such as LINUX, X86_64, DEBIAN.

    The distribution is there where the machine says which it is (os-release(5)), without its
    version, so that an upgrade changes nobody's requirements.
    """
    names = (machine.os, machine.arch, machine.distribution)
    return tuple(name.upper() for name in names if name)


def disk_for_tasks_bytes(directory: Path) -> int:
    """The most that tasks may take of the disk on which a directory is."""
    return int(shutil.disk_usage(directory).free * MOST_OF_FREE_DISK)


def disk_for_inputs_bytes(directory: Path) -> int:
    """The most that may be kept of the inputs of tasks on the disk on which a directory is."""
    return int(shutil.disk_usage(directory).free * MOST_OF_FREE_DISK_FOR_INPUTS)


def even_bytes(amount_bytes: int) -> int:
    """The largest of 1, 1.5, 2, 3, 4, 6, 8 … that is not larger.

    So machines that are alike offer the same, though they never have the same free. Each different
    offer makes a class of its own, which costs the pool time.
    """
    if amount_bytes < 2:
        return max(0, amount_bytes)
    power = 1 << (amount_bytes.bit_length() - 1)
    return power + power // 2 if amount_bytes >= power + power // 2 else power


class CgroupLimits(NamedTuple):
    """Limits of control groups; infinite where there are none."""

    cpus: float
    memory_bytes: float


def discover() -> Machine:
    """Looks at this machine: processor affinity, control groups (v1 and v2), installed memory."""
    limits = cgroup_limits(Path("/"))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    kernel = os.uname()
    return Machine(
        hostname=socket.gethostname(),
        os=kernel.sysname,
        arch=kernel.machine,
        python_version=platform.python_version(),
        kestrel_version=own_version(),
        cpus=max(1, int(min(usable or 1, limits.cpus))),
        memory_bytes=int(min(psutil.virtual_memory().total, limits.memory_bytes)),
        distribution=_distribution(),
    )


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""


def cgroup_limits(root: Path) -> CgroupLimits:
    """The tightest limits of the control groups this process is in and of all above them.

    Source: cgroups(7); the kernel's cgroup-v2 (cpu.max, memory.max) and cgroup-v1
    (cpu.cfs_quota_us, memory.limit_in_bytes) documents.

    Args:
        root: where the file system begins.
    """
    cpus = memory_bytes = math.inf
    for group in _groups(root):
        for read_cpus in (_cpus_v2, _cpus_v1):
            cpus = min(cpus, read_cpus(group))
        for name in ("memory.max", "memory.limit_in_bytes"):
            memory_bytes = min(memory_bytes, _number(_read(group / name)))
    return CgroupLimits(cpus, memory_bytes)


def _groups(root: Path) -> Iterator[Path]:
    """Directories of the process's control groups and of those above that are visible."""
    paths = {}  # controller (empty for v2): path of the group
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        paths.update(dict.fromkeys(names.split(","), path))
    for line in _read(root / "proc/self/mountinfo").splitlines():
        # 36 35 98:0 /root-of-mount /mount-point rw,noatime shared:1 - type source options
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup2":
            controllers = {""}
        elif kind == "cgroup":
            controllers = set(options.split(","))
        else:
            continue
        mounted, point = before.split(" ")[3:5]
        for controller in controllers & paths.keys():
            group = Path("/", paths[controller])
            # What is outside the mounted part is not visible: then the mount point itself counts.
            group = group.relative_to(mounted) if group.is_relative_to(mounted) else Path()
            for part in (group, *group.parents):
                yield root / point.lstrip("/") / part


def _cpus_v2(group: Path) -> float:
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return _share(quota, period)


def _cpus_v1(group: Path) -> float:
    return _share(_read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us"))


def _share(quota: str, period: str) -> float:
    processors = _number(quota) / _number(period)
    return math.inf if math.isnan(processors) or not processors else processors


def _number(text: str) -> float:
    """A number; infinity for `max`, for -1 (none, in v1) and for a file that is not there."""
    text = text.strip()
    return float(text) if text.isdigit() else math.inf


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
