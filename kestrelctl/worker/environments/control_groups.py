"""What this machine can hold containers to."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from kestrelctl.core.environments.environment_class import EnvironmentResources

#: Where control groups are (cgroups(7)).
ROOT = Path("/sys/fs/cgroup")


def enforceable(
    resources: EnvironmentResources, *, root: Path = ROOT, own: Path = Path("/proc/self/cgroup")
) -> EnvironmentResources:
    """As much of some resources as containers can be held to here.

    An engine fails to start a container that is to be held to what no control group can.

    Args:
        own: says in which groups this process is; without root, containers are beside it.
    """
    place = root
    with suppress(OSError, IndexError):
        if os.geteuid() != 0:
            place = root / own.read_text().partition("0::/")[2].split()[0]
    try:
        there = (place / "cgroup.controllers").read_text().split()
    except OSError:
        return resources  # of the first version, where each of them has a place of its own
    return EnvironmentResources(
        cpus=resources.cpus if "cpu" in there else 0.0,
        memory_bytes=resources.memory_bytes if "memory" in there else 0,
    )
