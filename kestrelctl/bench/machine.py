"""The machine a sweep ran on, and the versions of what ran."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kestrelctl.checkout import described_version
from kestrelctl.worker.launch import native_program
from kestrelctl.xmpp.prosody import find_prosody


class BenchMachine(msgspec.Struct, frozen=True):
    """The facts about a machine that one needs to judge a figure.

    `cores` are those this process may use. `prosody` is empty if the server was not one of this
    machine. `launcher` says how workers of this machine start tasks: native or python; empty for a
    result from before there was a choice.
    """

    cores: int
    cpu_model: str
    memory_mb: int
    kernel: str
    python: str
    prosody: str
    kestrel: str
    date: str
    launcher: str = ""


def this_machine(prosody: str) -> BenchMachine:
    """Describes this machine, now. `prosody` is the version of the server that the pool used."""
    return BenchMachine(
        cores=len(os.sched_getaffinity(0)),
        cpu_model=_cpu_model(),
        memory_mb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        prosody=prosody,
        kestrel=described_version(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        launcher="python" if native_program.find(native_program.LAUNCHER) is None else "native",
    )


def prosody_version() -> str:
    """The version of the installed Prosody; empty if it does not say.

    `prosody --version` would start a server.
    """
    tool = find_prosody().with_name("prosodyctl")
    if not tool.exists():
        return ""
    about = subprocess.run([tool, "about"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"^Prosody (\d\S*)", about, re.MULTILINE)
    return found.group(1) if found else ""


def _cpu_model() -> str:
    """The `model name` of proc_cpuinfo(5), which not every architecture has."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
