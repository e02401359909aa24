"""What the open files of this process mean for the processes it starts."""

from __future__ import annotations

import contextlib
import os
import resource

MOST_DESCRIPTORS = 65_536
"""RLIMIT_NOFILE is raised up to here. Not further, because tasks inherit it, and some programs
close every descriptor up to the limit when they start."""


def raise_descriptor_limit() -> None:
    """Allow this process as many descriptors as it may have, within reason."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def switch_core_dumps_off() -> None:
    """Have no process that this one starts leave a core file, unless it asks for one."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))


def seal_descriptors() -> int:
    """Keep every open descriptor but 0, 1 and 2 from the processes that are started.

    Python opens all of its own so; this is for those inherited from whoever started this
    process. Closed ones among 0 to 2 become /dev/null, so that no other file can get these
    numbers.

    Returns:
        A descriptor of /dev/null, above 2.
    """
    while (null := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(null, True)
    for name in os.listdir("/dev/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), False)
    return null
