"""Reads what can be read of a Linux machine without a program of one's own.

Each function takes the words of `parameters` and returns a value, or raises `NoValue` or an
OSError. Each may block: it is called in a thread of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import TypeAlias

import psutil

from kestrelctl.core.properties.reading import PropertyValue
from kestrelctl.worker import gpus
from kestrelctl.worker.plugins import batch_queue, logins

#: The time over which a rate is measured.
RATE_SECONDS = 0.5

BuiltIn: TypeAlias = Callable[[Sequence[str]], PropertyValue]


class NoValue(Exception):
    """It cannot be read; the text says why."""


def _word(words: Sequence[str], place: int, usual: str, known: Sequence[str] = ()) -> str:
    found = words[place] if place < len(words) else usual
    if known and found not in known:
        raise NoValue(f"{found!r} is not one of {', '.join(known)}")
    return found


def ram(words: Sequence[str]) -> PropertyValue:
    """A line of /proc/meminfo, in its unit (proc_meminfo(5): most are KiB): `ram MemFree`."""
    wanted = _word(words, 0, "MemAvailable")
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == wanted:
            return int(rest.split()[0])
    raise NoValue(f"/proc/meminfo has no {wanted}")


def load(words: Sequence[str]) -> PropertyValue:
    """The load average of the last 1, 5 or 15 minutes: `load 5`."""
    minutes = _word(words, 0, "1", ("1", "5", "15"))
    return round(os.getloadavg()[("1", "5", "15").index(minutes)], 2)


def disk(words: Sequence[str]) -> PropertyValue:
    """Bytes that a disk has, or how full it is, in percent: `disk free /home`."""
    what = _word(words, 0, "free", ("free", "used", "total", "percent"))
    found = psutil.disk_usage(_word(words, 1, "/"))
    return float(found.percent) if what == "percent" else int(getattr(found, what))


def network(words: Sequence[str]) -> PropertyValue:
    """Bytes in a second, of all interfaces but the loopback one or of one: `network sent eth0`."""
    what = _word(words, 0, "received", ("received", "sent"))
    interface = _word(words, 1, "")
    before, began = _network_bytes(what, interface), time.monotonic()
    time.sleep(RATE_SECONDS)
    seconds = time.monotonic() - began
    return int(max(0, _network_bytes(what, interface) - before) / seconds)


def _network_bytes(what: str, interface: str) -> int:
    counts = psutil.net_io_counters(pernic=True)
    if interface and interface not in counts:
        raise NoValue(f"there is no interface {interface}")
    wanted = [interface] if interface else [name for name in counts if name != "lo"]
    field = "bytes_recv" if what == "received" else "bytes_sent"
    return sum(getattr(counts[name], field) for name in wanted)


def processes(words: Sequence[str]) -> PropertyValue:
    """The number of processes, all or of a name (15 characters, as in /proc): `processes nginx`."""
    name = _word(words, 0, "")
    pids = psutil.pids()
    return len(pids) if not name else sum(_called(pid) == name[:15] for pid in pids)


def _called(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().removesuffix("\n")
    except OSError:
        return ""  # It has ended.


def gpu(words: Sequence[str]) -> PropertyValue:
    """`gpus count`; of NVIDIA's all together: `gpus memory_used` (MiB), `gpus utilization` (%)."""
    what = _word(words, 0, "count", ("count", "memory_used", "utilization"))
    if what == "count":
        return len(gpus.detect())
    field = "memory.used" if what == "memory_used" else "utilization.gpu"
    said = gpus.output(("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"))
    numbers = [int(line) for line in said.split() if line.isdigit()]
    if not numbers:
        raise NoValue("nvidia-smi tells of none")
    return sum(numbers) if what == "memory_used" else round(sum(numbers) / len(numbers))


def users(words: Sequence[str]) -> PropertyValue:
    """Logins at the machine itself, or all: `users console`, `users all`."""
    found = logins.count(_word(words, 0, "console", ("console", "all")) == "console")
    if found is None:
        raise NoValue("neither logind nor utmp tells who is there")
    return found


def package(words: Sequence[str]) -> PropertyValue:
    """The version of a package of the system, or of this Python: `package python:kestrelctl`."""
    name = _word(words, 0, "")
    if not name or name.startswith("-"):
        raise NoValue("of which package?")
    if name.startswith("python:"):
        try:
            return metadata.version(name.removeprefix("python:"))
        except (metadata.PackageNotFoundError, ValueError):
            raise NoValue(f"this Python has no package {name.removeprefix('python:')}") from None
    version = _debian_version(name) or _rpm_version(name)
    if version:
        return version
    raise NoValue(f"there is no package {name}")


def _debian_version(name: str) -> str:
    """The version of an installed package; empty if there is none.

    It may be installed for several architectures, each of which dpkg-query(1) tells of.
    """
    said = gpus.output(
        (
            "dpkg-query",
            "--show",
            r"--showformat=${Package} ${db:Status-Status} ${Version}\n",
            name,
        )
    )
    wanted = f"{name.partition(':')[0]} installed "
    versions = {line.removeprefix(wanted) for line in said.splitlines() if line.startswith(wanted)}
    if len(versions) > 1:
        several = ", ".join(sorted(versions))
        raise NoValue(f"there are several versions of {name} ({several}): name one as NAME:ARCH")
    return versions.pop() if versions else ""


def _rpm_version(name: str) -> str:
    """The version of an installed package; of several, as of a kernel, the one installed last."""
    said = gpus.output(
        ("rpm", "--query", "--queryformat", r"%{INSTALLTIME} %{VERSION}-%{RELEASE}\n", name)
    )
    found = [line.partition(" ") for line in said.splitlines()]
    installed = [(int(at), version) for at, _, version in found if at.isdecimal()]
    return max(installed, default=(0, ""))[1]


def batch(words: Sequence[str]) -> PropertyValue:
    """Jobs or nodes of a batch system: `batch slurm pending feature=mpi`."""
    try:
        return batch_queue.batch(words)
    except batch_queue.NotAnswered as error:
        raise NoValue(str(error)) from None


#: By their names in `command`.
BUILT_IN: dict[str, BuiltIn] = {
    "batch": batch,
    "disk": disk,
    "gpus": gpu,
    "load": load,
    "network": network,
    "package": package,
    "processes": processes,
    "ram": ram,
    "users": users,
}
