"""Finds out which limits this machine can hold containers to."""

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
    """Returns those of some resources that containers can be held to here.

    An engine fails to start a container with a limit that no control group can hold it to.

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
        return resources  # version 1, where each controller has a place of its own
    return EnvironmentResources(
        cpus=resources.cpus if "cpu" in there else 0.0,
        memory_bytes=resources.memory_bytes if "memory" in there else 0,
    )
